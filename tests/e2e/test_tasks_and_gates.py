# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The user works on the node: his tasks, the reboot, and the gates before the node takes pods again."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import nodes as fake
from support.arena import Arena
from support.plays import Player, Run
from support.waiting import until
from support.watching import Watch
from witness import objects
from witness.kinds import OWN_NAMESPACE
from witness.log import Json

RECORD = "maintenance.kubeops.io/record"
SAYS = "echo Reading lists; echo no such package >&2; exit 3"
FAIL: Json = {"name": "Patch it", "ansible.builtin.command": {"argv": ["sh", "-c", SAYS]}}


def stays_out(arena: Arena, run: Run, here: str) -> None:
    """Record, cordon and taint are in place, the lock is released, and the user knows how to go on."""
    assert not run.ok
    assert arena.step(here) == "parked"
    assert arena.is_cordoned(here)
    taints = [taint["key"] for taint in arena.node(here)["spec"]["taints"]]
    assert "maintenance.kubeops.io/in-progress" in taints
    assert arena.find("Lease", f"node-{here}", OWN_NAMESPACE) is None
    assert "release" in run.text


def test_the_users_tasks_run_while_the_node_is_empty(
    arena: Arena, play: Player, watching: Watch, tmp_path: Path
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="1s")
    listed = tmp_path / "pods"
    command = f"{play.lab.kubectl} --kubeconfig {play.lab.kubeconfig} get pods -A -o name"
    shell = f"{command} --field-selector spec.nodeName={here} > {listed}; touch {listed}"
    tasks = play.tasks({"name": "Look", "ansible.builtin.shell": shell})
    with watching() as seen:
        run = play("maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_tasks=tasks)
        assert run.ok, run.text
    seen.all_held()
    assert listed.read_text(encoding="utf-8") == ""
    assert seen.dark_seconds(web) == 0


def test_when_the_users_tasks_fail_the_node_stays_out(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    tasks = play.tasks(FAIL)
    arguments: Json = {"maintain_nodes": [here], "maintain_tasks": tasks, "inventory": play.hosts([here])}
    with watching() as seen:
        run = play("maintain", **arguments)
        stays_out(arena, run, here)
        (problem,) = run.report["problems"]
        for said in ("Patch it", here, "rc 3", "no such package"):
            assert said in problem["message"]
            assert said in run.text
        (line,) = run.report["nodes"]
        assert line["tasks_failed"]
        assert "maintain_until" not in run.text
        Path(tasks).write_text("- name: Now it works\n  ansible.builtin.command: 'true'\n", encoding="utf-8")
        run = play("maintain", **arguments)
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert len(seen.new_pods(web)) == 1


REGISTERED = """
import json, subprocess, sys
kubectl, node = sys.argv[1:-1], sys.argv[-1]
meta = json.loads(subprocess.check_output([*kubectl, "get", "node", node, "-o", "json"]))["metadata"]
notes = {key: value for key, value in meta["annotations"].items() if key.startswith(("lab.", "kwok."))}
labels = {key: value for key, value in meta["labels"].items() if not key.startswith(("node.", "remediation."))}
again = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels, "annotations": notes}}
subprocess.check_call([*kubectl, "delete", "node", node])
subprocess.run([*kubectl, "create", "-f", "-"], input=json.dumps(again).encode(), check=True)
subprocess.check_call([*kubectl, "wait", "--for=condition=Ready", "node/" + node, "--timeout=60s"])
"""


@pytest.mark.whole
def test_a_node_that_the_tasks_register_again_returns_and_leaves_nothing(arena: Arena, play: Player) -> None:
    """Also where they fail after that: the same command is not in its own way."""
    here, _unused = arena.nodes(2)
    arena.deployment("web", 2, on=here)
    kubectl = [str(play.lab.kubectl), "--kubeconfig", str(play.lab.kubeconfig)]
    argv = [sys.executable, "-c", REGISTERED, *kubectl, here]
    register: Json = {"name": "Register", "ansible.builtin.command": {"argv": argv}}
    tasks = play.tasks(register, FAIL)
    arguments: Json = {"maintain_nodes": [here], "maintain_tasks": tasks, "inventory": play.hosts([here])}

    def left() -> list[Json | None]:
        guards = [each for each in arena.all("PodDisruptionBudget") if objects.name(each).startswith(objects.GUARD)]
        return [arena.find("Lease", f"node-{here}", OWN_NAMESPACE), arena.record(here), *guards]

    failed = play("maintain", **arguments)
    assert not failed.ok
    assert left() == [None, None]
    assert "stays out of service" not in failed.text
    Path(tasks).write_text(json.dumps([register]), encoding="utf-8")
    run = play("maintain", **arguments)
    assert run.ok, run.text
    assert left() == [None, None]
    assert not arena.is_cordoned(here)
    outcomes = [node["outcome"] for call in run.of("node_cordon") for node in call["nodes"]]
    assert "replaced" in outcomes


@pytest.mark.whole
def test_a_node_that_stayed_out_is_released_by_hand(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with watching() as seen:
        run = play("maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_tasks=play.tasks(FAIL))
        stays_out(arena, run, here)
        run = play("release", maintain_nodes=[here])
        assert run.ok, run.text
    # It was the last node of its run: nothing is left to resume, and so nothing is left.
    seen.all_held()


@pytest.mark.whole
def test_a_release_tells_what_its_run_still_has_to_do(arena: Arena, play: Player) -> None:
    here, later, _unused = arena.nodes(3)
    hosts, tasks = play.hosts([here, later]), play.tasks(FAIL)
    run = play("maintain", inventory=hosts, maintain_nodes=[here, later], maintain_tasks=tasks)
    stays_out(arena, run, here)
    assert not arena.is_cordoned(later)
    run = play("release", maintain_nodes=[here])
    assert run.ok, run.text
    told = re.search(rf"Run (\w+) still has to maintain {later}: the same command resumes it", run.text)
    assert told, run.text
    assert arena.find("ConfigMap", f"run-{told[1]}", OWN_NAMESPACE)
    run = play("recover", recover_run=told[1])
    assert run.ok, run.text
    assert arena.find("ConfigMap", f"run-{told[1]}", OWN_NAMESPACE) is None


@pytest.mark.whole
def test_on_failure_release_gives_the_node_back_whatever_failed(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with watching() as seen:
        run = play(
            "maintain",
            inventory=play.hosts([here]),
            maintain_nodes=[here],
            maintain_tasks=play.tasks(FAIL),
            maintain_on_failure="release",
        )
    assert not run.ok
    seen.all_held(resumable=True)
    assert not arena.is_cordoned(here)


@pytest.mark.whole
def test_on_failure_keep_leaves_a_node_out_that_could_not_be_drained(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    arena.job("endless", here)
    arena.settle()
    run = play("maintain", maintain_nodes=[here], maintain_timeout=8, maintain_on_failure="keep")
    stays_out(arena, run, here)
    assert play("release", maintain_nodes=[here]).ok


@contextlib.contextmanager
def nobody_gives_back(arena: Arena, here: str) -> Iterator[None]:
    """The API server refuses every change of the node that takes the record away."""
    group, name = "/apis/admissionregistration.k8s.io/v1", f"{arena.name}-keep"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    had, has = (f"'{RECORD}' in {it}.metadata.?annotations.orValue({{}})" for it in ("oldObject", "object"))
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rule, "resourceNames": [here]}]},
        "validations": [{"expression": f"!({had}) || {has}", "message": "not today"}],
    }
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding"}
    meta = {"metadata": {"name": name}}
    arena.api.create(f"{group}/validatingadmissionpolicies", {**policy, **meta, "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    arena.api.create(f"{group}/validatingadmissionpolicybindings", {**binding, **meta, "spec": bound})
    try:
        yield
    finally:
        arena.api.delete(f"{group}/validatingadmissionpolicybindings/{name}")
        arena.api.delete(f"{group}/validatingadmissionpolicies/{name}")


@pytest.mark.whole
def test_a_node_that_could_not_be_given_back_is_in_the_last_message(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    arena.job("endless", here)
    arena.settle()
    with nobody_gives_back(arena, here):
        run = play("maintain", maintain_nodes=[here], maintain_timeout=12)
        assert not run.ok
        assert arena.is_cordoned(here)
        last = run.words[run.words.rindex("Fail if anything failed") :]
        assert "endless" in last, "why it was not drained"
        assert "It could not be returned to service" in last
        assert "not today" in last
        assert f"release -e maintain_nodes={here}" in last

    def released() -> bool:
        return play("release", maintain_nodes=[here]).ok

    until(released, 120, "the policy is not in force any more", every=1.0)


def test_a_reboot_is_waited_for_and_proven_by_a_new_boot_id(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    arena.settle()
    booted = fake.boot_id(arena.api, here)
    with watching() as seen:
        run = play("maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_reboot=True, within=180)
        assert run.ok, run.text
    seen.all_held()
    assert fake.boot_id(arena.api, here) != booted
    assert fake.is_up(arena.api, here)
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_a_node_that_still_has_its_old_boot_id_is_given_no_pods(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    booted = fake.boot_id(arena.api, here)
    with watching() as seen:
        run = play(
            "maintain",
            inventory=play.hosts([here], fake_node_stale=True),
            maintain_nodes=[here],
            maintain_reboot=True,
            maintain_timeout=10,
            within=180,
        )
        stays_out(arena, run, here)
    assert booted in run.text or "boot" in run.text.lower()
    seen.all_held(left=True)


def test_a_node_that_comes_back_not_ready_is_given_no_pods(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    broken = play.kubectl_task(f"annotate node {here} lab.kubeops.io/node=not-ready")
    with watching() as seen:
        run = play(
            "maintain",
            inventory=play.hosts([here]),
            maintain_nodes=[here],
            maintain_tasks=play.tasks(broken),
            maintain_timeout=10,
        )
        stays_out(arena, run, here)
    assert "Ready" in run.text
    seen.all_held(left=True)
    fake.switch(arena.api, here, None)
    until(lambda: fake.is_up(arena.api, here), 30, "the node is Ready")
    assert play("release", maintain_nodes=[here]).ok
    assert not arena.is_cordoned(here)


def is_cordoned(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable"))


def agents(arena: Arena, play: Player, here: str, note: str) -> list[Json]:
    """A DaemonSet, and tasks of the user in which it is updated on the node.

    Its new pod cannot start there as long as the node carries our taint: only the cordon is tolerated.
    """
    arena.daemonset("agent", start="1s", spec={"updateStrategy": {"type": "OnDelete"}})
    arena.settle()
    patch = f'{{"spec":{{"template":{{"metadata":{{"annotations":{{{note}}}}}}}}}}}'
    update = play.kubectl_task(f"patch daemonset agent -n {arena.namespace} --type merge -p '{patch}'")
    (pod,) = arena.pods("agent", on=here)
    return [update, play.kubectl_task(f"delete pod {pod['metadata']['name']} -n {arena.namespace}")]


@pytest.mark.whole
def test_a_daemonset_that_does_not_tolerate_our_taint_is_there_again_before_pods_come(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    tasks = play.tasks(*agents(arena, play, here, '"version":"2"'))
    with watching() as seen:
        run = play("maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_tasks=tasks)
        assert run.ok, run.text
    (pod,) = arena.pods("agent", on=here)
    assert pod["metadata"]["annotations"]["version"] == "2"
    cordoned = seen.when("Node", here, is_cordoned)
    opened = seen.when("Node", here, lambda node: not is_cordoned(node), after=cordoned)
    assert seen.when("Pod", pod["metadata"]["name"], objects.ready) < opened
    assert not [violation for violation in seen.violations() if violation.kind == "Node"]


@pytest.mark.whole
def test_a_node_without_its_daemonset_pods_is_given_no_pods(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    tasks = play.tasks(*agents(arena, play, here, '"lab.kubeops.io/ready":"never"'))
    with watching() as seen:
        run = play(
            "maintain",
            inventory=play.hosts([here]),
            maintain_nodes=[here],
            maintain_tasks=tasks,
            maintain_timeout=10,
        )
        stays_out(arena, run, here)
    assert "agent" in run.text
    assert not [violation for violation in seen.violations(left=True) if violation.kind != "DaemonSet"]


@pytest.mark.whole
def test_the_tasks_do_not_run_on_a_node_that_is_not_empty_any_more(arena: Arena, play: Player, tmp_path: Path) -> None:
    here, _unused = arena.nodes(2)
    assert play("evacuate", maintain_nodes=[here]).ok
    arena.pod("intruder", here)
    arena.settle()
    touched = tmp_path / "touched"
    tasks = play.tasks({"name": "Work on it", "ansible.builtin.command": f"touch {touched}"})
    run = play("maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_tasks=tasks)
    assert not run.ok
    assert "intruder" in run.text
    assert not touched.exists()
    arena.delete("Pod", "intruder", gracePeriodSeconds=0)
    assert play("release", maintain_nodes=[here]).ok
