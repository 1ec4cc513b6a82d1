# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documented roles against what a run asks for: nothing without a role, and no role for nothing."""

from __future__ import annotations

import json
import re
import runpy
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import accounts, policies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import roles as granted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.permissions import Need
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.plan_needs import READS, for_events, needs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    deployment,
    mounts,
    node,
    owned,
    pod,
    snapshot,
    workload,
)

ROOT = Path(__file__).parents[3]
RIGHTS = ROOT / "playbooks/files/rights.yml"
GUIDE = ROOT / "docs/docsite/rst/guide_rights.rst"
DOCS = runpy.run_path(str(ROOT / "docs/rights.py"))
WRITTEN: dict[Path, str] = DOCS["files"]()
OBJECTS: dict[str, list[Raw]] = DOCS["objects"]()
PREFIX = "kubeops-node-maintenance-"
EVERYWHERE = "*"
READING = {"get", "list", "watch"}


def roles() -> dict[str, Raw]:
    found = [one for one in yaml.safe_load(RIGHTS.read_text(encoding="utf-8"))["items"] if one["kind"] == "ClusterRole"]
    return {one["metadata"]["name"].removeprefix(PREFIX): one for one in found}


def rights(role: Raw) -> set[tuple[str, str, str, str]]:
    """Verb, group, resource and place of all that a role allows where it is meant to be bound."""
    return {
        (verb, group, resource, place)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for place in role["metadata"]["annotations"]["maintenance.kubeops.io/bind-in"].split()
    }


DOCUMENTED = {right for role in roles().values() for right in rights(role)}


def covered(need: Need) -> bool:
    asked = (need.verb, need.group, need.resource)
    if (*asked, EVERYWHERE) in DOCUMENTED:
        return True
    return bool(need.namespaces) and all((*asked, place) in DOCUMENTED for place in need.namespaces)


WEB = owned("ReplicaSet", "web")


def everything_asked() -> set[Need]:
    """What runs of all sorts ask for together: eviction, guards, surges of all kinds, jobs, dead nodes, deletion."""
    nodes = [node("n1"), node("n2")]
    guarded = snapshot(deployment("web", 3), nodes=nodes, pods=[pod("web-0", owner=WEB), pod("web-1", owner=WEB)])
    claiming = snapshot(deployment("web", 3), nodes=nodes, pods=[pod("web-0", owner=WEB, volumes=mounts("data"))])
    surged = snapshot(deployment("web", 1), nodes=nodes, pods=[pod("web-0", owner=WEB)])
    alone = snapshot(replica_sets=[workload("ReplicaSet", "web", 1)], nodes=nodes, pods=[pod("web-0", owner=WEB)])
    answered = snapshot(deployment("web", 3), nodes=nodes, pods=[pod("web-0", owner=WEB, responders=["acme.io/db"])])
    found = set(READS)
    for cluster in (guarded, claiming, surged, alone, answered):
        found |= asked(cluster, lambda route: route)
        found |= asked(cluster, lambda route: "job" if route in ("evict", "surge") else route, fallback="eviction")
    found |= asked(guarded, lambda route: route, disable_eviction=True, force=True)
    found |= asked(guarded, lambda route: route, code=unreachable.FENCED, locks=names.MEDIK8S_NAMESPACE)
    for kind in ("Rollout", "CloneSet"):
        group = "argoproj.io/v1alpha1" if kind == "Rollout" else "apps.kruise.io/v1alpha1"
        others = tuple(replace(one, kind=kind, api_version=group) for one in alone.workloads)
        found |= asked(replace(alone, workloads=others), lambda route: "surge")
    return found


def asked(
    cluster: Snapshot, reroute: t.Callable[[str], str], code: str = "", locks: str = names.NAMESPACE, **choices: t.Any
) -> set[Need]:
    chosen = DrainPolicy(**choices)
    plans = [
        replace(plan, route=t.cast("t.Any", reroute(plan.route)), code=code or plan.code)
        for plan in routes(cluster, ("n1",), chosen)
    ]
    return set(needs(cluster, plans, chosen, namespace_missing=True, locks=locks, conditions=True))


def test_nothing_is_asked_for_that_is_not_documented() -> None:
    missing = sorted(need.words for need in everything_asked() if not covered(need))
    assert missing == []


def test_no_role_allows_a_write_that_nobody_asks_for() -> None:
    """Reservations made beforehand, /configz, the fence, and a descheduler's own namespace are asked for elsewhere."""
    fence = {
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("maintenance.kubeops.io", "nodefences"),
    }
    elsewhere = {
        ("create", "scheduling.koordinator.sh", "reservations"),
        ("create", "", "pods/portforward"),
        *((verb, *what) for verb in ("create", "patch", "delete") for what in fence),
    }
    asked = (*everything_asked(), *for_events(()))
    wanted = {(need.verb, need.group, need.resource) for need in asked}
    needless = {
        f"{name}: {verb} {resource}.{group}"
        for name, role in roles().items()
        for verb, group, resource, _place in rights(role)
        if name not in ("descheduler", "preview")
        and verb not in READING
        and (verb, group, resource) not in wanted | elsewhere
    }
    assert needless == set()


def test_what_everything_was_asked_for_is_all_there_is() -> None:
    """The needs of this file reach every kind of write that `needs` knows; else the tests above say too little."""
    words = {need.words for need in everything_asked()}
    for word in (
        "create pods/eviction",
        "delete pods",
        "create poddisruptionbudgets.policy",
        "patch deployments.apps/scale",
        "patch replicasets.apps/scale",
        "patch rollouts.argoproj.io/scale",
        "patch clonesets.apps.kruise.io/scale",
        "create podmigrationjobs.scheduling.koordinator.sh",
        "patch podmigrationjobs.scheduling.koordinator.sh/status",
        "create namespaces",
        "patch nodes/status",
    ):
        assert word in words


@pytest.mark.parametrize("name", sorted(roles()))
def test_no_role_reads_secrets_or_allows_everything(name: str) -> None:
    for verb, group, resource, _place in rights(roles()[name]):
        assert "*" not in (verb, group, resource)
        assert resource != "secrets"
        assert verb not in ("impersonate", "escalate", "bind", "deletecollection")


def test_pods_are_deleted_by_one_role_alone() -> None:
    """And those of a descheduler's own namespace by one more."""
    found = {name: [x[3] for x in rights(role) if x[:3] == ("delete", "", "pods")] for name, role in roles().items()}
    where = {name: places for name, places in found.items() if places}
    assert where == {"delete-pods": [EVERYWHERE], "preview": ["koordinator-system"]}


def test_configmaps_are_written_in_named_namespaces_alone() -> None:
    """Whoever may write them everywhere may change what anything in the cluster is told to do."""
    for _verb, _group, resource, place in DOCUMENTED:
        assert resource != "configmaps" or place != EVERYWHERE


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_the_files_and_the_guide_show_what_the_module_installs(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == WRITTEN[path], "python docs/rights.py writes it anew"


@pytest.mark.parametrize("name", OBJECTS)
def test_a_file_is_read_as_the_objects_that_it_was_written_from(name: str) -> None:
    found = yaml.safe_load((RIGHTS.parent / name).read_text(encoding="utf-8"))["items"]
    assert found == json.loads(json.dumps(OBJECTS[name]))
    assert all(accounts.ours(one) for one in found)


def test_no_two_accounts_share_a_policy_or_a_binding() -> None:
    pairs = [("a", "b"), ("b", "a"), ("a.b", "c"), ("operator", names.NAMESPACE)]
    made = [accounts.Account(name, namespace) for name, namespace in pairs]
    found = [one["metadata"]["name"] for account in made for one in (*account.bindings(), *policies.bounding(account))]
    count = len(made) * (len(granted.MAINTAIN) + 2 * len(policies.LIMITS))
    assert len(found) == count
    assert len(set(found)) == count - len(made) * len(policies.LIMITS), "a policy and its binding have one name"


def test_the_guide_explains_every_role_and_no_other() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("   * - Role\n")[2].partition("\n\n")[0]
    told = re.findall(r"^   \* - ``([\w-]+)``$", table, re.MULTILINE)
    assert told == list(roles())


def test_a_policy_sees_every_resource_that_it_limits() -> None:
    account = accounts.Account("operator", names.NAMESPACE, (), (), (), "")
    for limit in policies.LIMITS:
        policy, _binding = policies._policy(limit, account)
        rules = policy["spec"]["matchConstraints"]["resourceRules"]
        seen = [(rule["apiGroups"], resource) for rule in rules for resource in rule["resources"]]
        assert seen == [([group], resource) for group, resource in sorted_by_group(limit.resources)]
        assert all(rule["operations"] == list(limit.operations) for rule in rules)


def sorted_by_group(resources: t.Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Together by group, in the order in which the groups come first."""
    groups = list(dict.fromkeys(group for group, _resource in resources))
    return sorted(resources, key=lambda one: groups.index(one[0]))
