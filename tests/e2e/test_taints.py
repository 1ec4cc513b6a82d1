# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Taints against the real thing: the scheduler, the taint manager, and a node that others write as well."""

from __future__ import annotations

import datetime
import itertools
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from support import nodes as fake
from support import sampling
from support.arena import Arena
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from witness.api import STRATEGIC_PATCH, Api
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.calls import perform
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_taint import TaintOptions, taint

ROUNDS = 100
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
KEYS = {"MemoryPressure": "memory-pressure", "DiskPressure": "disk-pressure", "PIDPressure": "pid-pressure"}
FOREIGN: Json = {"key": "keep", "value": "me", "effect": "PreferNoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}


def node_taint(lab: Lab, node: str, *words: str, **more: Any) -> Json:
    """The engine of the module, without a process for each call; `words` are kubectl's."""
    wishes, faults = node_taints.read([node_taints.parse(word) for word in words], "present")
    assert not faults
    options = TaintOptions("present", (node,), wishes, **more)
    return perform(
        {"kubeconfig": str(lab.operator)},
        lambda ctx: taint(ctx, options),
        user_agent="kubeops-test",
        run=None,
        check=False,
        progress=lambda event: None,
        guard=None,
    )


def words_of(node: Json) -> set[str]:
    return {node_taints.in_words(x) for x in node["spec"].get("taints") or []}


@contextmanager
def versions(api: Api, path: str) -> Iterator[list[tuple[float, Json]]]:
    """Every version of what a path lists, with the moment at which its watch brought it."""
    seen: list[tuple[float, Json]] = []
    over = threading.Event()
    start = api.get(path)["metadata"]["resourceVersion"]

    def follow() -> None:
        for event in api.watch(path, start, 90.0):
            seen.append((time.monotonic(), event))
            if over.is_set():
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()


def pressure(api: Api, node: str, kind: str, on: bool) -> None:
    condition = {"type": kind, "status": "True" if on else "False", "reason": "Test"}
    api.patch(f"{fake.path(node)}/status", {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)


def test_nothing_is_lost_when_two_runs_and_the_node_controller_taint_one_node(lab: Lab, arena: Arena) -> None:
    (node,) = arena.nodes(1)
    arena.taint(node, FOREIGN)
    calls = ("a={}:NoSchedule", "b={}:PreferNoSchedule")
    with versions(arena.api, "/api/v1/nodes") as seen, ThreadPoolExecutor(2) as runs:
        for number in range(ROUNDS):
            kind, on = PRESSURES[number % 3], number // 3 % 2 == 0
            answers = [runs.submit(node_taint, lab, node, word.format(number)) for word in calls]
            pressure(arena.api, node, kind, on)
            for answer in answers:
                assert not answer.result()["failed"], answer.result()["msg"]
            present = words_of(arena.node(node))
            assert {word.format(number) for word in calls} <= present, f"lost in round {number}: {present}"
            theirs = f"node.kubernetes.io/{KEYS[kind]}:NoSchedule"
            until(lambda: (theirs in words_of(arena.node(node))) is on, 5, f"{kind} shows", every=0.01)  # noqa: B023
    # Three writers, each with a change in every round.
    assert len(seen) > 2 * ROUNDS
    last: Json | None = None
    for _at, event in seen:
        found = event["object"]
        if found["metadata"]["name"] != node or event["type"] == "DELETED":
            continue
        # Each version holds what was there before, unless its owner took it away.
        assert FOREIGN in found["spec"]["taints"]
        assert last is None or {"a", "b"} & keys_of(last) <= keys_of(found)
        conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
        for kind, key in KEYS.items():
            gone = f"node.kubernetes.io/{key}"
            if last is not None and gone in keys_of(last) - keys_of(found):
                assert conditions[kind] == "False", f"{gone} was lost: {found['metadata']['resourceVersion']}"
        last = found


def keys_of(node: Json) -> set[str]:
    return {x["key"] for x in node["spec"].get("taints") or []}


def some_tolerations(draw: random.Random) -> list[Json]:
    """What a pod's author may write, in an order that matters."""
    found = []
    for _unused in range(draw.choice((0, 1, 1, 1, 2, 2, 3))):
        key = draw.choice(("x", "x", "y", "y", ""))
        operator = draw.choice(("Exists", "Equal", None)) if key else "Exists"
        one: Json = {"key": key} if key else {}
        if operator:
            one["operator"] = operator
        if operator != "Exists":
            one["value"] = draw.choice(("1", "1", "2"))
        effect = draw.choice(("NoExecute", "NoExecute", "NoExecute", "", "NoSchedule"))
        if effect:
            one["effect"] = effect
        if effect == "NoExecute":
            seconds = draw.choice((None, -3, 0, 3, 6, 9, 12))
            one |= {} if seconds is None else {"tolerationSeconds": seconds}
        found.append(one)
    return found


def told_at(pod: Json) -> float:
    """When a pod was told to end, by the API server's own clock."""
    meta = pod["metadata"]
    end = datetime.datetime.fromisoformat(meta["deletionTimestamp"].replace("Z", "+00:00")).timestamp()
    return end - float(meta["deletionGracePeriodSeconds"])


@pytest.mark.whole
def test_the_forecast_of_no_execute_is_what_the_taint_manager_does(lab: Lab, arena: Arena) -> None:
    (node,) = arena.nodes(1)
    draw = random.Random(5)
    for number in range(60):
        # They stay terminating, so that each can be asked when it was told to.
        arena.pod(f"p{number}", node, {"tolerations": some_tolerations(draw)}, stop="never")
    arena.settle()
    forecast = node_taint(lab, node, "x=1:NoExecute", "y=1:NoExecute", allow_no_execute=True)
    set_at = time.time()
    assert not forecast["failed"], forecast["msg"]
    expected = {kill["name"]: kill["seconds"] for kill in forecast["evicts"]}
    assert 0 < len(expected) < 60
    assert len(set(expected.values())) > 3

    def told() -> dict[str, float]:
        ending = [pod for pod in arena.all("Pod") if pod["metadata"].get("deletionTimestamp")]
        return {pod["metadata"]["name"]: round(told_at(pod) - set_at, 1) for pod in ending}

    until(lambda: len(told()) >= len(expected), 30, f"{len(expected)} pods are told to end", every=0.5)
    time.sleep(1)
    real = told()
    assert set(real) == set(expected)
    late = {name: (real[name], seconds) for name, seconds in expected.items() if abs(real[name] - seconds) > 2}
    assert not late, f"told to end and forecast, in seconds: {late}"


NODES: dict[str, list[str]] = {
    "plain": [],
    "hard": ["k=v:NoSchedule"],
    "bare": ["k:NoSchedule"],
    "soft": ["k=v:PreferNoSchedule"],
    "exec": ["k=v:NoExecute"],
    "book": ["key1=value1:NoSchedule", "key1=value1:NoExecute", "key2=value2:NoSchedule"],
    "both": ["k=v:NoSchedule", "k=v:NoExecute", "other:PreferNoSchedule"],
}
PODS: dict[str, list[Json]] = {
    "none": [],
    "equal": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
    "default-operator": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    "other-value": [{"key": "k", "value": "w", "effect": "NoSchedule"}],
    "no-value": [{"key": "k", "effect": "NoSchedule"}],
    "exists": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    "other-key": [{"key": "other", "operator": "Exists"}],
    "every-effect": [{"key": "k", "value": "v"}],
    "every-effect-exists": [{"key": "k", "operator": "Exists"}],
    "every-key": [{"operator": "Exists", "effect": "NoSchedule"}],
    "everything": [{"operator": "Exists"}],
    "exec-alone": [{"key": "k", "value": "v", "effect": "NoExecute"}],
    "book": [{"key": "key1", "value": "value1", "effect": effect} for effect in ("NoSchedule", "NoExecute")],
    "book-all": [{"key": "key1", "value": "value1"}, {"key": "key2", "value": "value2", "effect": "NoSchedule"}],
}


@pytest.mark.whole
def test_every_rule_of_matching_is_the_schedulers(lab: Lab, arena: Arena) -> None:
    names = dict(zip(NODES, arena.nodes(len(NODES)), strict=True))
    for kind, words in NODES.items():
        if words:
            node_taint(lab, names[kind], *words, allow_no_execute=True)
    expected: dict[str, bool] = {}
    for (kind, words), (who, tolerations) in itertools.product(NODES.items(), PODS.items()):
        name = f"{who}-on-{kind}"
        keeping_out = node_taints.untolerated(tolerations, [node_taints.parse(word) for word in words])
        expected[name] = not keeping_out
        spec: Json = {"tolerations": tolerations, "nodeSelector": {"kubernetes.io/hostname": names[kind]}}
        loose_pod(arena, name, spec)
    real: dict[str, bool] = {}

    def decided() -> bool:
        for pod in arena.all("Pod"):
            for condition in pod["status"].get("conditions") or []:
                if condition["type"] == "PodScheduled":
                    real[pod["metadata"]["name"]] = condition["status"] == "True"
        return len(real) == len(expected)

    until(decided, 30, "the scheduler has judged every pod", every=0.2)
    assert real == expected
    # A soft taint keeps nobody out, and loses against a node without one.
    two = {"key": "kubernetes.io/hostname", "operator": "In", "values": [names["soft"], names["plain"]]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [two]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for number in range(5):
        loose_pod(arena, f"free-{number}", {"affinity": affinity})
    until(lambda: all(len(arena.pods(f"free-{n}", on=names["plain"])) for n in range(5)), 10, "all five avoid it")


def loose_pod(arena: Arena, name: str, spec: Json) -> None:
    """A bare pod that the scheduler has to place."""
    container = {"name": "main", "image": "registry.invalid/app:1"}
    made = {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    arena.api.create(arena.path("Pod"), {"apiVersion": "v1", "kind": "Pod", **made})


def test_a_node_comes_back_with_its_taints(arena: Arena, play: Player) -> None:
    here, _other = arena.nodes(2)
    arena.taint(here, {"key": "old", "effect": "PreferNoSchedule"}, FOREIGN)
    run = play("maintain", survey={"maintain_nodes": here, "maintain_taints": "dedicated=gpu:NoSchedule,old-"})
    assert run.ok, run.text
    node = arena.node(here)
    assert node["spec"]["taints"] == [FOREIGN, {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    assert not arena.is_cordoned(here)
    # The taint was there before the node took pods again.
    steps = [step["step"] for found in run.results for step in found.result.get("steps", [])]
    assert steps.index("taint") < steps.index("uncordon")
    play.module("node_cordon", nodes=[here], state="cordoned", run="by-hand")
    run = play("release", maintain_nodes=[here], maintain_taints=[{"key": "dedicated", "state": "absent"}])
    assert run.ok, run.text
    assert arena.node(here)["spec"]["taints"] == [FOREIGN]


@pytest.mark.whole
@pytest.mark.parametrize(
    "taint_word", sampling.first(1, ["dedicated=gpu", "a b:NoSchedule", "maintenance.kubeops.io/in-progress-"])
)
def test_a_wrong_taint_stops_the_run_before_it_begins(arena: Arena, play: Player, taint_word: str) -> None:
    (here,) = arena.nodes(1)
    run = play("maintain", survey={"maintain_nodes": here, "maintain_taints": taint_word})
    assert not run.ok
    assert "maintain_taints[" in run.words
    assert arena.record(here) is None


def test_outdated_keys_of_dead_nodes_are_named_and_protect_no_pod(lab: Lab, arena: Arena) -> None:
    """node.alpha.kubernetes.io/notReady and unreachable: the API server adds the present keys, which alone count."""
    (here,) = arena.nodes(1)
    long = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 6000}
    arena.pod("old", here, pod={"tolerations": [{"key": key, **long} for key in node_taints.OUTDATED]})
    (pod,) = arena.pods("old")
    given = {each["key"]: each["tolerationSeconds"] for each in pod["spec"]["tolerations"]}
    assert given == {**dict.fromkeys(node_taints.OUTDATED, 6000), **dict.fromkeys(node_taints.OUTDATED.values(), 300)}
    for old, now in node_taints.OUTDATED.items():
        said = node_taint(lab, here, f"{old}:PreferNoSchedule")["nodes"][0]["message"]
        assert f"Key {old} is outdated: Kubernetes uses {now} instead." in said
        (kill,) = node_taint(lab, here, f"{now}:NoExecute")["evicts"]
        assert (kill["name"], kill["seconds"]) == ("old", 300)
