# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Worlds that are explored: small, and with one of each thing that a maintenance has to treat in another way."""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, pod_selectors, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import applications, koordinator, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import nodes as on_nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import EVERY, Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

INTERRUPTED = tuple(fault for fault in EVERY if fault.what in ("killed before", "killed after", "lost"))
"""Where what is tried is whether another start goes on as the first one would have."""

FOREIGN_TAINTS = (
    {"key": "dedicated", "value": "shop", "effect": "NoSchedule"},
    {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"},
)


CANARY = "canary-5b1d7c"
"""What stands in the pods of the users where secrets stand: nobody may tell or store it."""


@dataclass(frozen=True)
class Scene:
    """A name, the objects, the least that each Service has to serve, and what the user asks for.

    ``first`` are objects that are there before the others, so that pods of theirs are on nodes of theirs. Of the kinds
    in ``touches`` the tasks make other objects. ``faults`` are tried at each request.
    """

    name: str
    objects: tuple[Raw, ...]
    floors: t.Mapping[str, int]
    given: Input
    add_ons: tuple[str, ...] = ()
    first: tuple[Raw, ...] = ()
    touches: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = EVERY
    options: t.Mapping[str, t.Any] = field(default_factory=dict)

    @functools.cached_property
    def begins(self) -> Saved:
        """The world at rest, before anything."""
        with World(self.first, add_ons=self.add_ons) as world:
            world.apply(*self.objects)
            world.settle()
            return world.saved(at_rest=True)

    def world(self, **options: t.Any) -> World:
        """Another world that begins there."""
        return World.of(self.begins, **{**self.options, **options})


def reboot(actor: Actor, node: str) -> None:
    """What the user's tasks do: the node comes back with another boot ID."""
    actor.clock.sleep(2.0)
    actor.world.reboot(node)
    actor.clock.sleep(1.0)


def register_again(actor: Actor, node: str) -> None:
    """Tasks that give the node a new image: its object goes, and comes again."""
    actor.world.delete(kinds.NODES, node)
    actor.clock.sleep(2.0)
    actor.world.apply(manifests.node(node))
    actor.clock.sleep(2.0)


def node(name: str) -> Raw:
    """A node with two taints of somebody else, which all pods of these scenes tolerate."""
    found = manifests.node(name)
    found["spec"] = {**found.get("spec", {}), "taints": [dict(taint) for taint in FOREIGN_TAINTS]}
    return found


def _tolerant(raw: Raw) -> Raw:
    """A workload for such nodes, with secrets in its pods and its annotations."""
    raw["spec"]["template"]["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return secretive(raw)


def secretive(raw: Raw) -> Raw:
    """A workload whose pods have a secret in their environment and annotations, as it has in its own."""
    template = raw["spec"]["template"]
    for container in template["spec"]["containers"]:
        container["env"] = [{"name": "PASSWORD", "value": CANARY}]
    template["metadata"]["annotations"] = {"shop.example/token": CANARY}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": CANARY})}
    raw["metadata"]["annotations"] = applied
    return raw


def begin_and_end(backend: str = "eviction") -> Scene:
    """A node with a surge, a budget, a StatefulSet and two taints; with Koordinator where jobs move pods."""
    by_jobs = backend != "eviction"
    how: dict[str, t.Any] = {"schedulerName": "koord-scheduler"} if by_jobs else {}
    first = (
        node("n1"),
        _tolerant(manifests.deployment("single", 1, **how)),
        manifests.service("single"),
    )
    objects = (
        *(manifests.koordinator("0s") if by_jobs else ()),
        node("n2"),
        node("n3"),
        _tolerant(manifests.deployment("web", 3, **how)),
        manifests.service("web"),
        manifests.budget("web", maxUnavailable=1),
        _tolerant(manifests.stateful_set("db", 3, **how)),
        manifests.service("db"),
        _tolerant(manifests.daemon_set("agent")),
    )
    given = Input(("n1",), work=reboot, choices=DrainPolicy(backend=backend))
    floors = {"single": 1, "web": 2, "db": 2}
    return Scene(backend, objects, floors, given, (koordinator.GROUP,) if by_jobs else (), first)


def waited_for() -> Scene:
    """What has to follow the pods of n1 comes late, or fits nowhere before n1 is back.

    Of three replicas that shun each other one is on each node; the pods of a pair take long to start on the others.
    """
    late = [manifests.node(name) for name in ("n2", "n3")]
    for one in late:
        one["metadata"]["annotations"] = {on_nodes.START: "25s"}
    first = (manifests.node("n1"), manifests.deployment("pair", 2), manifests.service("pair"))
    apart = manifests.deployment("apart", 3, affinity=manifests.apart("apart"), annotations={on_nodes.START: "2s"})
    objects = (*late, apart, manifests.service("apart"))
    faults = tuple(fault for fault in EVERY if fault.what in ("conflict", "down", "frozen"))
    given = Input(("n1",), work=reboot, settle=0.0, gates=("ready",))
    floors = {"pair": 1, "apart": 2}
    return Scene("waits", objects, floors, given, first=first, faults=(*INTERRUPTED, *faults))


def crowded() -> Scene:
    """Three pods of one kind on n1, of which the other node has room for two."""
    first = (manifests.node("n1"), manifests.deployment("trio", 3), manifests.service("trio"))
    given = Input(("n1",), settle=0.0, gap=0.05, gates=("ready",), timeout=120.0)
    return Scene("crowded", (manifests.node("n2", pods=2),), {"trio": 2}, given, first=first)


def small(*, nodes: int = 2) -> Scene:
    """Few pods, so that many orders can be tried: a surge, and a pair behind a guard."""
    objects = (
        *(manifests.node(f"n{number}") for number in range(1, nodes + 1)),
        manifests.deployment("single", 1),
        manifests.service("single"),
        manifests.deployment("pair", 2),
        manifests.service("pair"),
    )
    given = Input(("n1",), settle=0.0, gap=0.05, gates=("ready",))
    return Scene("small", objects, {"single": 1, "pair": 1}, given)


def replaced() -> Scene:
    """A single pod and three behind a budget that allows nothing, all on n1: each is replaced before it leaves.

    The three leave their Service some time before.
    """
    first = (manifests.node("n1"), manifests.deployment("single", 1), manifests.deployment("trio", 3))
    first[2]["metadata"]["annotations"] = {f"{names.PREFIX}/load-balancer-wait": "3s"}
    objects = (
        manifests.node("n2"),
        manifests.service("single"),
        manifests.autoscaler("single", 1, 3, load=1),
        manifests.service("trio"),
        manifests.budget("trio", maxUnavailable=0),
    )
    choices = DrainPolicy(backend="eviction", method="replace")
    given = Input(("n1",), choices=choices, settle=0.0, gap=0.05, gates=("ready",))
    return Scene("replaced", objects, {"single": 1, "trio": 3}, given, first=first)


def odd() -> Scene:
    """Pods with the labels of a Job's, a leader by a label that its template lacks, a DaemonSet that is never Ready."""
    leader = manifests.service("leader")
    leader["spec"]["selector"] = {"app": "single", **applications.LEADER}
    first = (
        manifests.node("n1"),
        manifests.deployment("single", 1, annotations={applications.LEADS: "yes"}),
        manifests.deployment("pair", 2),
        manifests.replica_set("plain", 2),
    )
    objects = (
        manifests.node("n2"),
        *(manifests.service(name) for name in ("single", "pair", "plain")),
        leader,
        *(manifests.job(f"report-{app}", app, "n2") for app in ("pair", "plain")),
        manifests.daemon_set("sick", annotations={on_nodes.READY: "never"}),
    )
    given = Input(("n1",), work=reboot, settle=0.0, gap=0.05, gates=("ready", "daemonsets"))
    floors = {"single": 1, "pair": 1, "plain": 1}
    return Scene("odd", objects, floors, given, first=first, faults=INTERRUPTED)


def anew() -> Scene:
    """The small world, in which the tasks register the node again."""
    known = small()
    given, touches = replace(known.given, work=register_again), (kinds.NODES.kind,)
    return replace(known, name="anew", given=given, touches=touches, faults=INTERRUPTED)


def scaled() -> Scene:
    """Two nodes, and on the first a pod whose number an HPA sets by its load; it is replaced before it leaves."""
    first = (manifests.node("n1"), manifests.deployment("single", 1), manifests.autoscaler("single", 1, 3, load=1))
    given = Input(("n1",), choices=DrainPolicy(method="replace"), settle=0.0, gap=0.05, gates=("ready",))
    objects = (manifests.node("n2"), manifests.service("single"))
    return Scene("scaled", objects, {"single": 1}, given, first=first)


def deleted() -> Scene:
    """A single pod and three of one kind; people delete one of each, so that as many fewer may serve."""
    objects = (
        manifests.node("n1"),
        manifests.node("n2"),
        manifests.deployment("single", 1),
        manifests.service("single"),
        manifests.deployment("trio", 3),
        manifests.service("trio"),
    )
    return Scene("deleted", objects, {"single": 0, "trio": 1}, Input(("n1",), settle=0.0, gap=0.05, gates=("ready",)))


def crowd() -> Scene:
    """Three nodes and four pods: a single one, and three behind a budget. People do as they like to them."""
    objects = (
        *(manifests.node(f"n{number}") for number in (1, 2, 3)),
        manifests.deployment("single", 1),
        manifests.service("single"),
        secretive(manifests.deployment("trio", 3)),
        manifests.service("trio"),
        manifests.budget("trio", maxUnavailable=1),
    )
    given = Input(("n1",), settle=0.0, gap=0.05, gates=("ready",), timeout=120.0)
    return Scene("crowd", objects, {}, given)


def _hook(
    hook: hook_definitions.Hook, selector: str, action: hook_definitions.Action = "http"
) -> hook_definitions.Rule:
    http = hook_definitions.Http("http://{node}.example/maintenance") if action == "http" else None
    selects = pod_selectors.PodSelector(selectors.parse(selector))
    return hook_definitions.Rule(hook, f"{hook} {selector}", action, 60.0, selects, http=http)


def participants() -> Scene:
    """On one node pods of all who take part in its maintenance, and another node that takes them.

    A single pod is called by HTTP, a pair agrees by annotations, an operator moves a master, a Job is waited for until
    it has finished, a gang goes as a whole. The node has conditions, hooks of its own, and a taint after each boot.
    """
    host = manifests.node("n1")
    host["metadata"]["annotations"] = {applications.STARTUP: "4s"}
    master = manifests.stateful_set("pg", 2, annotations={applications.SWITCHES: "5s"})
    labels = {applications.CLUSTER: "pg", applications.ROLE: applications.REPLICA, "application": "spilo"}
    master["spec"]["template"]["metadata"]["labels"] |= labels
    ruled = manifests.budget("postgres-pg-pdb", minAvailable=1)
    ruled["spec"]["selector"] = {"matchLabels": {**labels, applications.ROLE: applications.MASTER}}
    gang = manifests.deployment("workers", 2)
    gang["metadata"]["annotations"] = {names.ALLOW_INTERRUPTION: "true"}
    group = {f"leaderworkerset.sigs.k8s.io/{key}": value for key, value in (("name", "workers"), ("group-key", "g1"))}
    gang["spec"]["template"]["metadata"]["labels"] |= group
    batch = manifests.template("batch", annotations={on_nodes.COMPLETE: "45s"}, restartPolicy="Never")
    meta = {"name": "batch", "namespace": manifests.SHOP}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": batch}}
    pair = manifests.deployment("pair", 2, annotations={applications.AGREES: "3s"})
    first = (host, manifests.deployment("single", 1), pair, master, gang, job)
    services = (manifests.service("single"), manifests.service("pair"))
    rules, _faults = pod_rules.read([{"name": "batch", "pods": "app=batch", "wait": "finished", "deadline": "5m"}])
    given = Input(
        ("n1",),
        work=reboot,
        choices=DrainPolicy(backend="eviction", rules=rules),
        settle=0.0,
        gap=0.05,
        gates=("ready", "schedulable", "conditions"),
        timeout=300.0,
        node_conditions=True,
        planned_notice=2.0,
        hook_rules=(
            _hook("before_node", "kubernetes.io/hostname"),
            _hook("before_pod", "app=single"),
            _hook("before_pod", "app=pair", "annotation"),
            _hook("after_pod", "app=single"),
            _hook("after_node", "kubernetes.io/hostname"),
        ),
    )
    objects = (manifests.node("n2"), *services, ruled)
    return Scene("participants", objects, {"single": 1, "pair": 1}, given, first=first)


def locked() -> Scene:
    """One node, and our namespace for its lock."""
    given = Input(("n1",))
    return Scene("locked", (manifests.node("n1"), manifests.namespace(names.NAMESPACE)), {}, given)
