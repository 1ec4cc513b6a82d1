# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The account with the documented rights: what it may not do, what it is told to be missing, a moment without them.

That the rights suffice is shown by all other tests: they run the collection as this account, and the fixture `play`
fails where it was refused anything.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from support import rights, sampling
from support.ablation import calling
from support.arena import Arena
from support.koordinator import restart_api_server
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness import audit
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_cordon, arguments_taint
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments as guard

COMMAND = re.compile(
    r"kubectl (?:-n \S+ )?create (?:cluster)?rolebinding \S+ --clusterrole=kubeops-node-maintenance-(\S+) "
    r"--serviceaccount=[a-z0-9:-]+"
)
APPS, RBAC_GROUP = "apps", "rbac.authorization.k8s.io"


@pytest.mark.parametrize(
    ("verb", "group", "resource", "namespace"),
    [
        ("delete", "", "pods", ""),
        ("delete", "", "pods", "default"),
        ("deletecollection", "", "pods", ""),
        ("create", "", "pods", ""),
        ("get", "", "secrets", ""),
        ("list", "", "secrets", "kubeops-node-maintenance"),
        ("list", "", "configmaps", ""),
        ("patch", "", "configmaps", "default"),
        ("patch", APPS, "deployments", ""),
        ("delete", "", "nodes", ""),
        ("create", "", "namespaces", ""),
        ("create", RBAC_GROUP, "clusterrolebindings", ""),
        ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
        ("impersonate", "", "users", ""),
        ("create", "", "pods/exec", ""),
    ],
)
def test_what_the_account_may_not_do(lab: Lab, verb: str, group: str, resource: str, namespace: str) -> None:
    assert rights.may(lab.operator, "create", "", "pods/eviction"), "the question reaches its account"
    assert not rights.may(lab.operator, verb, group, resource, namespace)


@pytest.mark.parametrize(
    ("role", "missing"),
    sampling.first(
        1,
        [
            ("nodes", {"patch nodes"}),
            ("locks", {f"{verb} leases.coordination.k8s.io" for verb in ("get", "list", "create", "patch", "delete")}),
            ("runs", {f"{verb} configmaps" for verb in ("get", "list", "create", "patch", "delete")}),
            ("evict", {"create pods/eviction"}),
            ("guard", {f"{verb} poddisruptionbudgets.policy" for verb in ("create", "patch", "delete")}),
            ("surge", {"patch deployments.apps/scale"}),
        ],
    ),
)
def test_a_role_that_is_missing_is_told_whole_before_anything_is_written(
    lab: Lab, arena: Arena, play: Player, watching: Watch, tmp_path: Path, role: str, missing: set[str]
) -> None:
    here, _there = arena.nodes(2)
    arena.deployment("single", on=here)
    arena.deployment("many", 3, on=here)
    name = f"without-{role}-{arena.name}"
    held = rights.roles().keys() - rights.NOT_HELD - {role}
    config = rights.granted(arena.api, tmp_path / name, name, held)
    try:
        until(lambda: rights.may(config, "list", "", "nodes"), 10, "its roles are known")
        with watching() as seen:
            run = play(
                "maintain", maintain_nodes=[here], maintain_method="surge", env={"K8S_AUTH_KUBECONFIG": str(config)}
            )
        assert not run.ok
        assert missing <= {right.partition(" in ")[0] for right in rights.lacking(run.words)}, run.text
        assert set(COMMAND.findall(run.words)) == {role}
        assert [request for request in seen.writes if request.accepted] == []
    finally:
        rights.revoke(arena.api, name)


def test_a_plan_tells_the_commands_that_grant_what_it_lacks(
    lab: Lab, arena: Arena, play: Player, watching: Watch, tmp_path: Path
) -> None:
    """Of an account with no right: first what it needs to read, then what the pods that it finds need."""
    here, _there = arena.nodes(2)
    arena.deployment("single", on=here)
    arena.deployment("many", 3, on=here)
    name = f"planner-{arena.name}"
    config = rights.granted(arena.api, tmp_path / name, name, ["announce"])
    play.may_be_refused = True
    try:
        with watching() as seen:
            for told in (["locks", "nodes", "read", "runs"], ["evict", "guard", "surge"], []):
                run = play(
                    "plan", maintain_nodes=[here], maintain_method="surge", env={"K8S_AUTH_KUBECONFIG": str(config)}
                )
                assert sorted(COMMAND.findall(run.words)) == told, run.text
                assert run.ok is not bool(told)
                assert "has no attribute" not in run.text
                for command in {found[0] for found in re.finditer(COMMAND, run.words)}:
                    words = [str(lab.kubectl), "--kubeconfig", str(lab.kubeconfig), *command.split()[1:]]
                    subprocess.run(words, check=True, capture_output=True)
                until(lambda: rights.may(config, "patch", "", "nodes"), 10, "its roles are known")
        assert [request for request in seen.writes if request.accepted and request.user == rights.account(name)] == []
    finally:
        rights.revoke(arena.api, name)


ALONE: dict[str, tuple[specs.ModuleSpec, Json, set[str]]] = {
    "node_cordon": (arguments_cordon.SPEC, {"state": "cordoned"}, {"create leases.coordination.k8s.io", "patch nodes"}),
    "pdb_guard": (guard.SPEC, {}, {"create poddisruptionbudgets.policy in namespace", "patch deployments.apps/scale"}),
    "node_drain": (drain.SPEC, {}, {"create pods/eviction in namespace", "patch nodes", "patch pods in namespace"}),
    "node_taint": (arguments_taint.SPEC, {"taints": ["a=b:NoSchedule"]}, {"patch nodes"}),
}
"""A module, what it is asked for, and what it lacks that it would come to later, or in other namespaces."""


@pytest.mark.parametrize("module", sampling.first(1, ["node_drain", *(name for name in ALONE if name != "node_drain")]))
@pytest.mark.parametrize("held", ["read", "announce"])
def test_a_module_called_alone_names_all_that_it_lacks(
    lab: Lab, arena: Arena, tmp_path: Path, module: str, held: str
) -> None:
    """With a role that reads, so that the namespaces of the pods are known, and with one for something else."""
    here, _there = arena.nodes(2)
    arena.deployment("web", on=here, service=False)
    spec, asked, missing = ALONE[module]
    name = f"alone-{arena.name}"
    config = rights.granted(arena.api, tmp_path / name, name, [held])
    try:
        until(lambda: rights.may(config, "list", "", "nodes") == (held == "read"), 10, "its role is known")
        result = calling.call(spec, str(config), nodes=[here], **asked)
    finally:
        rights.revoke(arena.api, name)
    assert result["failed"]
    assert not result["changed"]
    more = {"list nodes in the whole cluster"} if held == "announce" else set()
    place = f"namespace {arena.name}" if held == "read" else "the whole cluster"
    wanted = {words.replace("in namespace", f"in {place}") for words in missing | more}
    told = rights.lacking(result["msg"])
    assert all(any(right.startswith(words) for right in told) for words in wanted), result["msg"]


@pytest.mark.whole
def test_the_api_server_knows_no_roles_for_a_moment_after_its_restart(lab: Lab, arena: Arena, play: Player) -> None:
    """Without the witness, which loses its watches as everybody does."""
    play.may_be_refused = True
    here, there = arena.nodes(2)
    with arena.placing(here):
        for i in range(3):
            arena.deployment(f"web-{i}", 3, start="3s", budget={"maxUnavailable": 1}, service=False)
    arena.settle()
    mark = lab.audit_log.stat().st_size
    run = play.start("maintain", maintain_nodes=[here])
    until(lambda: len(arena.pods(on=here)) <= 7, 60, "two pods have been evicted")
    with rights.withheld(arena.api):
        restart_api_server(lab)
        refused = until(lambda: rights.refusals(lab.audit_log, mark), 30, "it is refused what it has a right to")
        time.sleep(1)
    done = run.wait(240)
    assert done.ok, f"refused {refused}\n{done.text}"
    assert not arena.is_cordoned(here)
    assert arena.record(here) is None
    requests = audit.read(lab.audit_log, mark)
    evicted = Counter(request.name for request in requests if request.evicts and request.accepted)
    assert sorted(evicted.values()) == [1] * 9, "all pods of the node, each once"
    assert {node for i in range(3) for node in (p["spec"]["nodeName"] for p in arena.pods(f"web-{i}"))} == {there}
