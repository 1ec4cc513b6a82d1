# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that are replaced before they leave: let go by their ReplicaSets, replaced, evicted."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, run_listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import replacement_conditions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, serving, workloads
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import READY, START
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import evictions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_pending import drained
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import traces
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

PODS, TOP = kinds.PODS, kinds.DEPLOYMENTS
FIRST = ("n1",)
ENDING = "deletionTimestamp"


class Shop:
    """A Deployment with all of its pods on n1, and what may take them; the least that served is noted."""

    def __init__(self, replicas: int, *more: Raw, others: t.Sequence[Raw] = (), **options: t.Any) -> None:
        options = {"annotations": {START: "4s"}, **options}
        web = manifests.deployment("web", replicas, **options)
        self.world = World([manifests.node("n1"), web, manifests.service("web"), *more])
        self.world.apply(*(others or (manifests.node("n2"), manifests.node("n3"))))
        self.world.settle()
        self.replicas, self.least = replicas, self.world.serving("web")
        self.world.on_event.append(self._look)

    def __enter__(self) -> Shop:
        return self

    def __exit__(self, *_error: object) -> None:
        self.world.close()

    def _look(self, event: Event) -> None:
        if event.resource == kinds.ENDPOINT_SLICES.resource:
            self.least = min(self.least, self.world.serving("web"))

    def run(self, within: float = 120.0, **choices: t.Any) -> Outcome:
        """The command, with a limit for the drain, until it ends or dies."""
        me, wishes = self.world.process("me"), DrainPolicy(**{"backend": "eviction", "method": "replace", **choices})
        given = Input(FIRST, choices=wishes, gates=("ready",), settle=0.0, gap=0.05, timeout=within)
        task = me.spawn(lambda: maintain(me, given))
        self.world.machine.run_until(lambda: not task.alive, within=1800.0)
        return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())

    def recover(self) -> None:
        other = self.world.process("recoverer")
        task = other.spawn(lambda: recover(other))
        self.world.machine.run_until(lambda: not task.alive, within=1800.0)
        task.value()

    def let_go(self) -> list[Raw]:
        return [pod for pod in self.world.pods() if names.RELEASED in (pod["metadata"].get("labels") or {})]

    def whole(self) -> bool:
        """Whether it is as it was: all of its pods its ReplicaSet's, nothing of ours left."""
        self.world.settle()
        pods = self.world.pods(app="web")
        owned = [owner["kind"] for pod in pods for owner in pod["metadata"]["ownerReferences"]]
        marks = {names.RELEASED, names.UNSERVED}
        marked = [pod for pod in pods if marks & (pod["metadata"].get("annotations") or {}).keys()]
        return not (traces(self.world) or self.let_go() or marked) and owned == ["ReplicaSet"] * self.replicas

    def writes(self, resource: str, method: str = "PATCH") -> list[int]:
        sent = (one for one in self.world.log if one.process == "me" and one.request.method == method)
        return [one.status for one in sent if one.request.resource == resource]


def routes(outcome: Outcome) -> list[tuple[str, str]]:
    return [(pod["route"], pod["outcome"]) for pod in drained(outcome)["pods"]]


@pytest.mark.parametrize("rule", [{}, {"minAvailable": "100%"}, {"maxUnavailable": 0}, {"minAvailable": 1}])
@pytest.mark.parametrize("replicas", [1, 3, 6])
def test_all_serve_all_the_time_whatever_the_budget_says(replicas: int, rule: dict[str, t.Any]) -> None:
    budgets = [manifests.budget("web", **rule)] if rule else []
    with Shop(replicas, *budgets) as shop:
        outcome = shop.run()
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert shop.least == replicas
        assert routes(outcome) == [("replace", "replaced")] * replicas
        assert shop.writes("pods/eviction", "POST") == [201] * replicas
        assert shop.writes(PODS.resource) == [200] * replicas, "one write each, and none of counts"
        assert not [one for one in shop.world.log if one.process == "me" and one.request.resource.endswith("/scale")]
        assert shop.whole()


@pytest.mark.parametrize("method", ["surge", "replace", "evict"])
def test_the_owner_of_a_workload_chooses_for_it(method: str) -> None:
    with Shop(1) as shop:
        meta = {"annotations": {names.METHOD: method, names.ALLOW_INTERRUPTION: "true"}}
        shop.world.patch(TOP, "web", {"metadata": meta})
        outcome = shop.run(method="surge" if method == "replace" else "replace")
        route = {"surge": "surge", "replace": "replace", "evict": "evict"}[method]
        assert [found for found, _outcome in routes(outcome)] == [route]
        assert shop.least == (0 if method == "evict" else 1)


def test_nothing_is_let_go_unless_somebody_wants_it() -> None:
    with Shop(3) as shop:
        assert shop.run(method="surge").ok
        assert shop.writes(PODS.resource) == []


def taker(kind: str) -> Raw:
    if kind == "DaemonSet":
        found = manifests.daemon_set("other")
        # So that it has no pod of its own before.
        found["spec"]["template"]["spec"]["nodeSelector"] = {"no": "where"}
    else:
        found = manifests.replica_set("other", 0)
    found["spec"]["selector"] = {"matchLabels": {"tier": "front"}}
    found["spec"]["template"]["metadata"]["labels"] = {"tier": "front"}
    return found


@pytest.mark.parametrize("kind", ["DaemonSet", "ReplicaSet"])
def test_what_others_would_take_for_their_own_keeps_its_way(kind: str) -> None:
    web = manifests.deployment("front", 2)
    web["spec"]["template"]["metadata"]["labels"]["tier"] = "front"
    with Shop(1, web, taker(kind)) as shop:
        outcome = shop.run()
        assert outcome.ok, outcome
        assert sorted(found for found, _outcome in routes(outcome)) == ["evict", "evict", "replace"]
        planned = next(result for name, result in outcome.calls if name == "plan").data["pods"]
        reasons = [pod["reason"] for pod in planned if pod["route"] == "evict"]
        assert all(f"{kind} shop/other" in reason for reason in reasons)


@pytest.mark.parametrize("kind", sorted(run_listing.REFUSABLE))
def test_where_it_is_unknown_who_would_take_them_they_keep_their_way(kind: str) -> None:
    assert kind in replacement_conditions.KINDS
    with Shop(3) as shop:
        shop.world.server.add_ons, resource = frozenset({"apps.kruise.io"}), run_listing.KINDS[kind].resource
        shop.world.server.denied.add(("list", resource))
        outcome = shop.run()
        assert (outcome.ok, routes(outcome)) == (True, [("evict", "evicted")] * 3)
        planned = next(result for name, result in outcome.calls if name == "plan").data["pods"]
        assert all(resource in pod["reason"] for pod in planned)
        assert shop.writes(PODS.resource) == []


def test_no_more_are_let_go_at_once_where_watches_lag_behind_answers() -> None:
    """As on a busy machine: with two of four let go, the Deployment was no longer available."""
    with Shop(4) as shop:
        spread, most = shop.world.server._spread, [0]

        def late(event: Event) -> None:
            if event.resource == PODS.resource:
                living = [pod for pod in shop.let_go() if ENDING not in pod["metadata"]]
                most[0] = max(most[0], len(living))
                shop.world.machine.after(0.5, lambda: spread(event), "lag")
            else:
                spread(event)

        listeners = shop.world.store.listeners
        listeners[listeners.index(spread)] = late
        outcome = shop.run()
        assert (outcome.ok, routes(outcome)) == (True, [("replace", "replaced")] * 4)
        assert (most, shop.least) == ([1], 4)


@pytest.mark.parametrize("kind", ["DaemonSet", "ReplicaSet"])
def test_others_do_take_and_end_such_a_pod(kind: str) -> None:
    """As real controllers did; what the rule above is for."""
    with Shop(1, taker(kind)) as shop:
        (pod,) = shop.world.pods(app="web")
        labels = {"tier": "front", names.HASH: None}
        shop.world.patch(PODS, pod["metadata"]["name"], {"metadata": {"labels": labels}})
        shop.world.settle()
        assert shop.least == 0


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(
    "what", ["killed after", "killed before", "lost", "conflict", "error", "throttled", "in doubt"]
)
@pytest.mark.parametrize("which", ["pods", "pods/eviction"])
def test_a_run_that_is_broken_off_there_is_finished_by_the_next(replicas: int, what: t.Any, which: str) -> None:
    with Shop(replicas, manifests.budget("web", maxUnavailable=0)) as shop:
        me = shop.world.process("me")
        me.faults.when(lambda request: request.resource == which and request.writes, Fault(what))
        outcome = shop.run()
        if outcome.wrong == ["killed"]:
            assert bool(shop.let_go()) == (which == "pods/eviction" or what == "killed after")
            outcome = shop.run()
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert shop.least == replicas
        assert len(evictions(shop.world)) == replicas
        assert shop.whole()


@pytest.mark.parametrize("replicas", [1, 3])
def test_what_a_killed_run_left_is_undone_by_another(replicas: int) -> None:
    slow = manifests.node("n2")
    slow["metadata"]["annotations"] = {START: "300s"}
    with Shop(replicas, others=[slow], annotations={"version": "1"}) as shop:
        me = shop.world.process("me")
        me.faults.when(lambda request: request.resource == "pods" and request.writes, Fault("killed after"))
        assert shop.run().wrong == ["killed"]
        assert shop.let_go()
        before = {pod["metadata"]["uid"] for pod in shop.world.pods(on="n1", app="web")}
        shop.recover()
        assert shop.whole()
        assert shop.least == replicas
        assert {pod["metadata"]["uid"] for pod in shop.world.pods(on="n1", app="web")} == before


@pytest.mark.parametrize("rule", [{"maxUnavailable": 0}, {"maxUnavailable": 1}])
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("other", [{"pods": 0}, {READY: "never"}])
def test_where_no_replacement_comes_the_pod_is_its_replica_sets_again(
    replicas: int, rule: dict[str, t.Any], other: dict[str, t.Any]
) -> None:
    node = manifests.node("n2", pods=other.get("pods", 20))
    if READY in other:
        node["metadata"]["annotations"] = {READY: "never"}
    with Shop(replicas, manifests.budget("web", **rule), others=[node]) as shop:
        outcome = shop.run()
        assert not outcome.ok
        assert shop.least >= replicas - (1 if replicas > 1 and rule["maxUnavailable"] else 0)
        assert not shop.let_go()
        assert not traces(shop.world)
        shop.world.settle()
        assert all(pod["metadata"]["labels"].get(names.HASH) for pod in shop.world.pods(app="web"))


@pytest.mark.parametrize(("allowed", "code"), [(1, "fits_nowhere"), (0, "no_room")])
def test_of_pods_that_shun_each_other_and_are_everywhere_one_leaves_only_if_its_budget_allows_it(
    allowed: int, code: str
) -> None:
    objects = [manifests.deployment("web", 3, affinity=manifests.apart("web")), manifests.service("web")]
    budget = manifests.budget("web", maxUnavailable=allowed)
    with World([*(manifests.node(f"n{number}") for number in (1, 2, 3)), *objects, budget]) as world:
        me, choices = world.process("me"), DrainPolicy(backend="eviction", method="replace")
        task = me.spawn(lambda: maintain(me, Input(FIRST, choices=choices, gates=("ready",), gap=0.05)))
        world.machine.run_until(lambda: not task.alive, within=1800.0)
        outcome: Outcome = task.value()
        planned = next(result for name, result in outcome.calls if name == "plan").data
        assert code in [found["code"] for found in planned["findings"]], "it is foretold"
        assert [pod["route"] for pod in planned["pods"]] == ["replace"]
        assert outcome.ok == bool(allowed)
        if allowed:
            assert routes(outcome) == [("evict", "evicted")]
        assert not traces(world)
        world.settle()
        assert world.serving("web") == 3


@pytest.mark.parametrize(("undone", "times"), [(False, 1), (False, 3), (True, 1)])
def test_whatever_is_written_to_such_pods_names_the_lock_and_is_sent_again_if_that_is_ours(
    undone: bool, times: int
) -> None:
    """The fence in the server refuses what names no entry of its map, such as one that somebody has removed."""
    with Shop(1) as shop:
        me = shop.world.process("recoverer" if undone else "me")
        me.faults.when(lambda request: request.resource == "pods" and request.writes, Fault("fenced"), times=times)
        if undone:
            faults = shop.world.process("me").faults
            faults.when(lambda request: request.resource == "pods/eviction", Fault("killed before"))
            assert shop.run().wrong == ["killed"]
            shop.recover()
        else:
            assert shop.run().ok
        assert len(me.faults.met) == times
        assert (shop.whole(), shop.least) == (True, 1)
        sent = [one.request for one in shop.world.log if one.request.resource == "pods" and one.request.writes]
        managers = {dict(one.query)["fieldManager"] for one in sent if one.method == "PATCH" and one.body}
        assert len(managers) == 1 + undone, "each start names its own"
        assert all(manager.startswith(f"{names.MANAGER}/") for manager in managers)


@pytest.mark.parametrize("what", ["throttled", "conflict", "in doubt"])
def test_the_report_has_it_once_that_a_pod_was_let_go_however_often_that_was_sent(what: t.Any) -> None:
    with Shop(2) as shop:
        me = shop.world.process("me")
        me.faults.when(lambda request: request.resource == "pods" and request.writes, Fault(what), times=2)
        assert shop.run().ok
        noted = [event.name for ctx in me.contexts for event in ctx.timeline if event.what == phases.What.RELEASED]
        assert len(me.faults.met) == len(noted) == len(set(noted)) == 2


def once(shop: Shop, do: t.Callable[[], object], after: float = 1.0) -> None:
    """Somebody does it so many seconds after the first pod was let go."""
    done: list[float] = []

    def hear(event: Event) -> None:
        if (
            event.resource == PODS.resource
            and not done
            and names.RELEASED in (event.raw["metadata"].get("labels") or {})
        ):
            done.append(shop.world.machine.now)
            shop.world.machine.after(after, do, "somebody")

    shop.world.on_event.append(hear)


@pytest.mark.parametrize("after", [0.0, 1.0, 4.5, 7.0])
def test_a_deployment_that_is_deleted_takes_its_pods_with_it(after: float) -> None:
    with Shop(1) as shop:
        once(shop, lambda: shop.world.delete(TOP, "web"), after)
        outcome = shop.run()
        assert outcome.ok, outcome
        shop.world.settle()
        assert shop.world.pods(app="web") == []
        assert traces(shop.world) == []


@pytest.mark.parametrize("after", [0.0, 1.0, 4.5, 7.0])
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_rollout_beside_it_is_no_harm(replicas: int, after: float) -> None:
    with Shop(replicas, manifests.budget("web", maxUnavailable=0)) as shop:
        body = {"spec": {"template": {"metadata": {"annotations": {START: "4s", "version": "2"}}}}}
        once(shop, lambda: shop.world.patch(TOP, "web", body), after)
        outcome = shop.run()
        assert outcome.ok, outcome
        assert shop.least == replicas
        assert shop.whole()
        assert {pod["metadata"]["annotations"].get("version") for pod in shop.world.pods(app="web")} == {"2"}


@pytest.mark.parametrize("after", [0.0, 1.0, 4.5])
@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_what_is_wanted_is_read_live(wanted: int, after: float) -> None:
    with Shop(3) as shop:
        once(shop, lambda: shop.world.patch(TOP, "web", {"spec": {"replicas": wanted}}, subresource="scale"), after)
        outcome = shop.run()
        assert outcome.ok, outcome
        assert shop.least >= min(wanted, 3)
        shop.replicas = wanted
        assert shop.whole()


def test_with_the_controllers_down_nothing_is_evicted_and_all_is_undone() -> None:
    """The status still says that all pods are there."""
    with Shop(3) as shop:
        shop.world.controller(workloads.ReplicaSets).stop()
        shop.world.controller(workloads.Deployments).stop()
        assert not shop.run().ok
        assert evictions(shop.world) == []
        assert (shop.least, shop.let_go(), traces(shop.world)) == (3, [], [])
        shop.world.controller(workloads.ReplicaSets).go_on()
        assert shop.whole()


@pytest.mark.parametrize("force", [False, True])
def test_a_pod_that_was_given_back_is_nobodys_for_a_moment_only(force: bool) -> None:
    """Until its ReplicaSet takes it back, which may be long, it is no pod without a controller."""
    with Shop(1, others=[manifests.node("n2")]) as shop:
        controller = shop.world.controller(workloads.ReplicaSets)
        once(shop, lambda: shop.world.cordon("n2"), after=0.0)
        once(shop, controller.stop, after=1.0)
        assert not shop.run(force=force).ok
        (pod,) = shop.world.pods(on="n1", app="web")
        assert ENDING not in pod["metadata"]
        assert names.HASH in pod["metadata"]["labels"], "it was given back"
        controller.go_on()
        shop.world.cordon("n2", False)
        shop.recover()
        assert shop.least == 1
        assert shop.whole()


def test_an_autoscaler_beside_it_is_left_alone() -> None:
    with Shop(1, manifests.autoscaler("web", 1, 4, load=1)) as shop:
        assert shop.run().ok
        assert shop.least == 1
        assert not [one for one in shop.world.log if one.request.resource == kinds.HPAS.resource and one.request.writes]
        assert shop.whole()


def test_check_mode_names_both_writes_and_makes_none() -> None:
    with Shop(1) as shop:
        me = shop.world.process("me")
        choices = DrainPolicy(backend="eviction", method="replace")
        given = Input(FIRST, choices=choices, gates=("ready",), settle=0.0, gap=0.05, check=True)
        task = me.spawn(lambda: maintain(me, given))
        shop.world.machine.run_until(lambda: not task.alive)
        (drained,) = task.value().steps("migrate")
        assert drained["nodes"][0]["pods"][0]["outcome"] == "replaced"
        assert [action.split()[0] for action in drained["actions"]][:2] == ["Let", "Evict"]
        index = [name for name, _result in task.value().calls].index("out")
        shaped = task.value().calls[index][1].shaped(me.contexts[index])
        assert [each for each in shaped["diff"] if names.HASH in each["before"].get("labels", ())]
        assert not [one for one in shop.world.log if one.request.method in ("PATCH", "DELETE")]


@pytest.mark.parametrize("undo", [False, True])
def test_in_a_large_cluster_only_what_is_needed_is_read(undo: bool) -> None:
    """There the pods of other nodes are known by labels alone."""
    others = [manifests.node(f"m{number}") for number in range(105)]
    with Shop(3, manifests.budget("web", maxUnavailable=0), others=others) as shop:
        me = shop.world.process("me")
        me.faults.when(lambda request: request.resource == "pods/eviction", Fault("killed before"))
        assert shop.run().wrong == ["killed"]
        assert len(shop.let_go()) == 1
        if undo:
            # Of its ready pods a ReplicaSet ends one of the node that has most of them.
            shop.recover()
        else:
            assert shop.run().ok
            assert shop.world.pods(on="n1", app="web") == []
        assert shop.whole()
        assert shop.least == 3


def test_what_its_replica_set_would_not_take_back_is_ended_when_the_node_is_given_back() -> None:
    """A rollout was over before anybody came back to the pod."""
    with Shop(2) as shop:
        me = shop.world.process("me")
        me.faults.when(lambda request: request.resource == "pods/eviction", Fault("killed before"))
        assert shop.run().wrong == ["killed"]
        body = {"spec": {"template": {"metadata": {"annotations": {START: "4s", "version": "2"}}}}}
        shop.world.patch(TOP, "web", body)
        shop.world.settle()
        assert len(shop.let_go()) == 1
        shop.recover()
        assert shop.whole()
        assert (shop.least, len(evictions(shop.world))) == (2, 1)
        told = [event.what for ctx in shop.world.actors["recoverer"].contexts for event in ctx.timeline]
        assert told.count(phases.What.EVICTED) == 1


WAIT: dict[str, t.Any] = {"load_balancer_wait": 30.0}


def left_at(shop: Shop) -> list[tuple[str, float]]:
    """When each pod was taken out of its Services, and when it was evicted, as they come."""
    found: list[tuple[str, float]] = []

    def hear(event: Event) -> None:
        meta, before = event.raw["metadata"], (event.before or {}).get("metadata") or {}
        if event.resource != PODS.resource:
            return
        if names.UNSERVED in (meta.get("annotations") or {}) and names.UNSERVED not in (
            before.get("annotations") or {}
        ):
            found.append(("out", shop.world.machine.now))
        if (
            meta.get("deletionTimestamp")
            and not before.get("deletionTimestamp")
            and names.UNSERVED in meta["annotations"]
        ):
            found.append(("evicted", shop.world.machine.now))

    shop.world.on_event.append(hear)
    return found


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("rule", [{}, {"maxUnavailable": 0}, {"minAvailable": "100%"}])
def test_a_pod_leaves_its_services_some_time_before_it_ends(replicas: int, rule: dict[str, t.Any]) -> None:
    budgets = [manifests.budget("web", **rule)] if rule else []
    with Shop(replicas, *budgets) as shop:
        came = left_at(shop)
        outcome = shop.run(**WAIT)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert [what for what, _at in came] == ["out", "evicted"] * replicas
        waited = [then - at for (_out, at), (_evicted, then) in zip(came[::2], came[1::2], strict=True)]
        assert all(30.0 <= seconds < 33.0 for seconds in waited), waited
        assert shop.least == replicas
        assert shop.writes(PODS.resource) == [200, 200] * replicas
        assert shop.writes("pods/eviction", "POST") == [201] * replicas
        assert shop.whole()


def test_it_waits_from_when_its_services_have_left_it() -> None:
    """Their controller may be slow."""
    with Shop(1) as shop:
        came = left_at(shop)
        slow = shop.world.controller(serving.EndpointSlices)

        def hold(event: Event) -> None:
            if names.UNSERVED in (event.raw["metadata"].get("annotations") or {}) and len(came) == 1:
                slow.stop()
                shop.world.machine.after(20.0, slow.go_on, "somebody")

        shop.world.on_event.append(hold)
        assert shop.run(**WAIT).ok
        (_out, at), (_evicted, then) = came
        assert 49.99 < then - at < 54.0


@pytest.mark.parametrize(
    ("wish", "waited"),
    [
        ({}, False),
        ({"annotations": {f"{names.PREFIX}/load-balancer-wait": "30s"}}, True),
        ({"rules": [{"namespaces": ["shop"], "load_balancer_wait": "30s"}]}, True),
        ({**WAIT, "annotations": {f"{names.PREFIX}/load-balancer-wait": "0"}}, False),
    ],
)
def test_the_owner_of_a_workload_chooses_how_long(wish: dict[str, t.Any], waited: bool) -> None:
    with Shop(1) as shop:
        came, notes = left_at(shop), wish.pop("annotations", {})
        shop.world.patch(TOP, "web", {"metadata": {"annotations": notes}})
        rules, _faults = pod_rules.read(wish.pop("rules", []))
        assert shop.run(**wish, rules=rules).ok
        assert bool(came) == waited


def policy(selector: dict[str, str], *, peers: bool = False) -> Raw:
    chosen = {"podSelector": {"matchLabels": selector}}
    spec = {"podSelector": {}, "ingress": [{"from": [chosen]}]} if peers else chosen
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "np", "namespace": manifests.SHOP},
        "spec": spec,
    }


@pytest.mark.parametrize("peers", [False, True])
@pytest.mark.parametrize("selector", [{"app": "web"}, {"app": "other"}])
def test_it_stays_in_them_where_a_network_policy_selects_it_by_that(peers: bool, selector: dict[str, str]) -> None:
    with Shop(1, policy(selector, peers=peers)) as shop:
        came = left_at(shop)
        outcome = shop.run(**WAIT)
        assert outcome.ok
        assert bool(came) == (selector == {"app": "other"})
        assert shop.least == 1


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(
    "what", ["killed after", "killed before", "lost", "conflict", "error", "throttled", "in doubt"]
)
@pytest.mark.parametrize("which", ["leave", "evict"])
def test_a_run_that_is_broken_off_on_the_way_out_is_finished_by_the_next(
    replicas: int, what: t.Any, which: str
) -> None:
    with Shop(replicas, manifests.budget("web", maxUnavailable=0)) as shop:
        came, me = left_at(shop), shop.world.process("me")
        me.faults.when(leaves if which == "leave" else lambda request: request.resource == "pods/eviction", Fault(what))
        outcome = shop.run(**WAIT)
        if outcome.wrong == ["killed"]:
            assert bool(came) == (which == "evict" or what == "killed after")
            assert len(shop.let_go()) == 1
            outcome = shop.run(**WAIT)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert (shop.least, len(evictions(shop.world))) == (replicas, replicas)
        assert shop.whole()


def leaves(request: verbs.Request) -> bool:
    """Whether it takes a pod out of its Services."""
    notes = ((request.body or {}).get("metadata") or {}).get("annotations") or {}
    return request.resource == PODS.resource and request.writes and notes.get(names.UNSERVED) is not None


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_pod_that_is_out_is_given_back_to_its_services_too(replicas: int) -> None:
    with Shop(replicas) as shop:
        me = shop.world.process("me")
        me.faults.when(leaves, Fault("killed after"))
        assert shop.run(**WAIT).wrong == ["killed"]
        (out,) = shop.let_go()
        assert "app" not in out["metadata"]["labels"]
        shop.recover()
        assert shop.whole()
        assert (shop.least, evictions(shop.world)) == (replicas, [])


@pytest.mark.parametrize("room", [True, False])
def test_it_serves_again_if_its_replacement_does_not_last(room: bool) -> None:
    """Until it was out for so long, all can be undone."""
    with Shop(1, others=[manifests.node("n2")]) as shop:
        came: list[tuple[str, float]] = left_at(shop)
        dark: list[float] = []

        def end() -> None:
            (pod,) = shop.world.pods(on="n2", app="web")
            shop.world.cordon("n2", not room)
            shop.world.delete(PODS, pod["metadata"]["name"])

        def hear(event: Event) -> None:
            if len(came) == 1 and not dark:
                dark.append(shop.world.machine.now)
                shop.world.machine.after(5.0, end, "somebody")
                shop.world.machine.after(8.0, lambda: dark.append(shop.world.serving("web")), "somebody")

        shop.world.on_event.append(hear)
        outcome = shop.run(**WAIT)
        assert dark[1] == 1, "it is in its Service again"
        assert outcome.ok == room
        assert [what for what, _at in came] == ["out", "out", "evicted"][: 3 if room else 1]
        shop.world.settle()
        assert (shop.world.serving("web"), shop.let_go()) == (1, [])


def test_check_mode_names_that_too() -> None:
    with Shop(1) as shop:
        me = shop.world.process("me")
        given = Input(
            FIRST, choices=DrainPolicy(backend="eviction", method="replace", **WAIT), gates=("ready",), check=True
        )
        task = me.spawn(lambda: maintain(me, given))
        shop.world.machine.run_until(lambda: not task.alive)
        (drained,) = task.value().steps("migrate")
        assert [action.split()[0] for action in drained["actions"]][:3] == ["Let", "Take", "Evict"]


SETTLED = 3.0
"""Others serve for two seconds before a pod may end, and somebody has to look."""


@pytest.mark.parametrize("wait", [0.0, 10.0])
@pytest.mark.parametrize("replicas", [1, 3, 6])
def test_a_pod_and_its_replacement_are_counted_for_less_than_between_two_looks(replicas: int, wait: float) -> None:
    """By an autoscaler: what the Deployment's selector matches and does not end. It looks every 15 seconds."""
    with Shop(replicas) as shop:
        since: list[float] = []
        longest = [0.0]

        def count(event: Event) -> None:
            if event.resource != PODS.resource:
                return
            counted = [pod for pod in serving.running(shop.world.pods(app="web")) if not pod["metadata"].get(ENDING)]
            if len(counted) > replicas:
                since.append(shop.world.machine.now)
            elif since:
                longest[0] = max(longest[0], shop.world.machine.now - since[0])
                since.clear()

        shop.world.on_event.append(count)
        assert shop.run(load_balancer_wait=wait).ok
        assert 0 < longest[0] <= SETTLED
        assert not since


EACH = 2
"""Requests for one more pod that is replaced: it is patched and evicted. What selects pods is read for all."""
LEAVES = 1
"""And for one that leaves its Services first: it is patched once more."""


def sent_for(singles: int, **choices: t.Any) -> int:
    """The requests of a run on a node with so many single pods."""
    pods = [manifests.deployment(f"s{number}", 1) for number in range(singles)]
    services = [manifests.service(f"s{number}") for number in range(singles)]
    with World([manifests.node("n1"), *pods, *services]) as world:
        world.apply(manifests.node("n2"))
        world.settle()
        me, wishes = world.process("me"), DrainPolicy(backend="eviction", method="replace", **choices)
        task = me.spawn(lambda: maintain(me, Input(FIRST, choices=wishes, gates=("ready",), gap=0.05)))
        world.machine.run_until(lambda: not task.alive, within=900.0)
        assert task.value().ok
        return sum(one.process == "me" for one in world.log)


@pytest.mark.parametrize(("wait", "most"), [(0.0, EACH), (3.0, EACH + LEAVES)])
def test_a_pod_costs_few_requests(wait: float, most: int) -> None:
    assert sent_for(6, load_balancer_wait=wait) - sent_for(1, load_balancer_wait=wait) <= 5 * most
