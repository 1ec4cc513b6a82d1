# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the steps of a call have to be allowed, and what is said of a right that is missing."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.permissions import (
    Lack,
    Need,
    missing,
    of_steps,
)


def test_whoever_replaces_pods_and_nothing_else_is_told_the_least_role() -> None:
    """Pods are patched by several roles; one that may scale is named where counts have to be changed, too."""
    patch, scale = Need("patch", "", "pods", ("shop",)), Need("patch", "apps", "deployments/scale", ("shop",))
    prefix = "ClusterRole kubeops-node-maintenance-"
    for lacking, roles in (([patch], ["replace"]), ([patch, scale], ["surge"]), ([scale], ["surge"])):
        found = missing([Lack(need, ("shop",)) for need in lacking], "mira")
        assert [one.object for one in found] == [prefix + role for role in roles]


EVERYWHERE = Lack(Need("create", "", "pods/eviction"))
IN_SHOP = Lack(Need("create", "", "pods/eviction", ("shop",)), ("shop",))
LOCKS = Lack(Need("patch", "coordination.k8s.io", "leases", ("medik8s-leases",)), ("medik8s-leases",))
KUBELETS = Lack(Need("list", "coordination.k8s.io", "leases", ("kube-node-lease",)), ("kube-node-lease",))
READS_NODES = [Lack(Need(verb, "", "nodes")) for verb in ("get", "list")]
READS_MORE = [Lack(Need(verb, "", "pods")) for verb in ("get", "list")]
NO_ROLE = Lack(Need("list", "", "secrets"))
CLUSTER, HERE = "kubectl create clusterrolebinding ", "create rolebinding "


@pytest.mark.parametrize(
    ("lacks", "object", "message", "command"),
    [
        ([EVERYWHERE], "evict", "create pods/eviction in the whole cluster", f"{CLUSTER}{{role}}-jane --clusterrole"),
        ([IN_SHOP], "evict", "create pods/eviction in namespace shop", CLUSTER),
        ([EVERYWHERE, IN_SHOP], "evict", "whole cluster, nor create pods/eviction in namespace shop", CLUSTER),
        ([LOCKS], "locks", "patch leases", f"kubectl -n medik8s-leases {HERE}"),
        ([KUBELETS], "kubelets", "list leases", f"kubectl -n kube-node-lease {HERE}"),
        (READS_NODES + READS_MORE, "read", "get, list nodes, pods in the whole cluster", "--user=jane"),
    ],
)
def test_a_role_that_is_missing_is_one_finding(lacks: list[Lack], object: str, message: str, command: str) -> None:
    (finding,) = missing(lacks, "jane")
    role = f"kubeops-node-maintenance-{object}"
    assert finding.object == f"ClusterRole {role}"
    assert message in finding.message
    assert command.format(role=role) in finding.remedy
    assert f"--clusterrole={role} " in finding.remedy


def test_every_role_that_is_missing_is_a_finding_of_its_own() -> None:
    found = missing([EVERYWHERE, *READS_NODES, NO_ROLE], "jane")
    assert [finding.object.rpartition("-")[2] for finding in found] == ["evict", "read", "list secrets"]
    assert "kubectl" not in found[-1].remedy


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("system:serviceaccount:ci:robot", "-ci-robot --clusterrole={role} --serviceaccount=ci:robot"),
        ("system:node:n1", "-system-node-n1 --clusterrole={role} --user=system:node:n1"),
        ("x; rm -rf /", "-x-rm--rf- --clusterrole={role} '--user=x; rm -rf /'"),
    ],
)
def test_the_command_names_the_user_that_the_server_knows(user: str, subject: str) -> None:
    (finding,) = missing([EVERYWHERE], user)
    assert finding.remedy.endswith(subject.format(role="kubeops-node-maintenance-evict"))


@pytest.mark.parametrize(
    ("steps", "namespaces", "asked", "not_asked"),
    [
        (("evict",), ("shop",), {"create pods/eviction in shop"}, set()),
        (("evict",), (), {"create pods/eviction in "}, set()),
        (("locks",), ("shop",), {"patch leases.coordination.k8s.io in kubeops-node-maintenance"}, set()),
        (("surge",), (), {"patch deployments.apps/scale in "}, {"patch rollouts.argoproj.io/scale in "}),
        (("jobs",), (), {"create podmigrationjobs.scheduling.koordinator.sh in "}, set()),
        (("read",), (), {"list nodes in "}, {"get customresourcedefinitions.apiextensions.k8s.io in "}),
    ],
)
def test_what_a_call_of_these_steps_needs(
    steps: tuple[str, ...], namespaces: tuple[str, ...], asked: set[str], not_asked: set[str]
) -> None:
    found = {f"{need.words} in {', '.join(need.namespaces)}" for need in of_steps(steps, namespaces)}
    assert asked <= found
    assert not not_asked & found
