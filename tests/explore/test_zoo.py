# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts that nobody here wrote, in a simulated cluster: nodes maintained in one run, or in one that is killed.

Only with ZOO: see tests/e2e/support/zoo.py. The simulator plays what Kubernetes itself does, not what operators make.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import typing as t

import pytest
import yaml
from support import zoo

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World

RUNS = int(os.environ.get("RUNS") or "12")
NODES = tuple(f"n{number}" for number in range(1, 9))
APPLIED = (kinds.DEPLOYMENTS, kinds.STATEFUL_SETS, kinds.DAEMON_SETS, kinds.SERVICES, kinds.BUDGETS, kinds.HPAS)
KEPT = (*APPLIED, kinds.NODES, kinds.REPLICA_SETS)
SIZE = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110"}
LOCKS_ARE_OVER = 4000.0
Place = tuple[str, str]


@functools.cache
def begun() -> Saved:
    applied = {(kind.api_version, kind.kind) for kind in APPLIED}
    documents = [yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) for text in zoo.documents()]
    known = [raw for raw in documents if raw and (raw["apiVersion"], raw["kind"]) in applied]
    nodes = [manifests.node(name) for name in NODES]
    for node in nodes:
        node["status"] |= {"allocatable": SIZE, "capacity": SIZE}
    claims = [raw for raw in documents if raw and raw["kind"] == "PersistentVolumeClaim"]
    for raw in known:
        if raw["kind"] == "StatefulSet":
            for number in range(1 if raw["spec"].get("replicas") is None else raw["spec"]["replicas"]):
                claims += [_claim(raw, each, number) for each in raw["spec"].get("volumeClaimTemplates") or ()]
    with World(nodes, settle=False) as world:
        world.apply(*(part for claim in claims for part in _bound(claim)), *known)
        world.settle()
        return world.saved(at_rest=True)


def _claim(owner: Raw, template: Raw, number: int) -> Raw:
    name = f"{template['metadata']['name']}-{owner['metadata']['name']}-{number}"
    return {"metadata": {"name": name, "namespace": owner["metadata"]["namespace"]}, "spec": template["spec"]}


def _bound(claim: Raw) -> tuple[Raw, Raw]:
    """The claim with its volume, which every node can mount."""
    meta = claim["metadata"]
    name = f"pv-{meta['namespace']}-{meta['name']}"
    bound = {"namespace": meta["namespace"], "name": meta["name"]}
    notes = {"pv.kubernetes.io/bind-completed": "yes"}
    api = {"apiVersion": "v1"}
    return (
        {
            **api,
            "kind": "PersistentVolumeClaim",
            "metadata": {**bound, "annotations": notes},
            "spec": {**copy.deepcopy(claim["spec"]), "volumeName": name},
        },
        {
            **api,
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {"csi": {"driver": "zoo.example", "volumeHandle": name}, "claimRef": bound},
        },
    )


def kept(world: World) -> dict[str, t.Any]:
    """What is as before in the end; and how many pods of each workload are ready."""
    found: dict[str, t.Any] = {}
    for kind in KEPT:
        for (namespace, name), raw in world.store.of(kind.resource).items():
            meta, ready = raw["metadata"], (raw.get("status") or {}).get("readyReplicas", 0)
            own = (raw.get("spec"), meta.get("labels") or {}, meta.get("annotations") or {}, ready)
            found[f"{kind.kind} {namespace}/{name}"] = json.loads(json.dumps(own))
    return found


def left(world: World) -> list[str]:
    """Whatever names this collection."""
    raws = [raw for some in world.store.objects.values() for raw in some.values()]
    return [str(raw) for raw in raws if raw["kind"] != "Namespace" and names.PREFIX in str(raw)]


def serving(world: World) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for (namespace, _name), raw in world.store.of(kinds.ENDPOINT_SLICES.resource).items():
        place = (namespace, raw["metadata"]["labels"]["kubernetes.io/service-name"])
        ready = sum(bool(each["conditions"]["ready"]) for each in raw.get("endpoints") or ())
        found[place] = found.get(place, 0) + ready
    return found


class Dark:
    """The Services that served at first and have had no ready endpoint since."""

    def __init__(self, world: World) -> None:
        self.world, self.before = world, serving(world)
        self.found: dict[Place, None] = {}
        world.on_event.append(self._hear)

    def _hear(self, event: Event) -> None:
        if event.resource == kinds.ENDPOINT_SLICES.resource:
            now = serving(self.world)
            self.found |= {place: None for place, count in self.before.items() if count and not now.get(place)}

    def unnamed(self, plan: Result) -> list[Place]:
        """Those that neither a warning nor a blocker of the plan is about."""
        told = [found for found in plan.data["findings"] if found["severity"] != "info"]
        about = {name for found in told for name in found["objects"]}
        return [place for place in self.found if f"Service {'/'.join(place)}" not in about]


@pytest.mark.parametrize("seed", range(RUNS))
def test_real_charts_are_as_before_and_what_goes_dark_was_named(seed: int) -> None:
    dice = random.Random(seed)
    method = dice.choice(pod_rules.METHODS)
    choices = DrainPolicy(delete_emptydir_data=True, force=True, allow_interruption=True, method=method)
    with World.of(begun()) as world:
        me, serial = world.process("me"), dice.randint(1, 3)
        plan = me.run(lambda ctx: make_plan(ctx, PlanOptions(nodes=NODES, choices=choices)))
        blocked = {node["name"] for node in plan.data["nodes"] if node["outcome"] == "blocked"}
        given = Input(tuple(dice.sample(sorted({*NODES} - blocked), 3)), choices=choices, serial=serial)
        asked = PlanOptions(nodes=given.nodes, choices=choices, max_parallel=serial)
        plan = me.run(lambda ctx: make_plan(ctx, asked))
        before, dark = kept(world), Dark(world)
        task = me.spawn(lambda: maintain(me, given))
        if seed % 2:
            # Killed at any moment: the same command or `recover` ends it.
            world.machine.run_for(dice.uniform(1, 60))
            if task.alive:
                me.process.kill()
                world.machine.run_for(LOCKS_ARE_OVER)
                again = world.process("me")
                task = again.spawn(lambda: maintain(again, given) if dice.random() < 0.5 else recover(again))
        world.machine.run_until(lambda: not task.alive, within=20_000)
        outcome = task.value()
        assert outcome == [] or outcome.ok, outcome
        world.settle()
        after = kept(world)
        assert {name: (was, after.get(name)) for name, was in before.items() if after.get(name) != was} == {}
        assert left(world) == []
        assert dark.unnamed(plan) == []
