# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guards of pods that are replaced before they leave, and what notices that one of them is missing."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    released,
    replacement_conditions,
    run_replace,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.explore import people
from ansible_collections.kubeops.node_maintenance.tests.explore.guards import Guard, is_eviction, replaced_by
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Violation
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import evictions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_replacing import (
    FIRST,
    WAIT,
    Shop,
    left_at,
    taker,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def undisturbed() -> None:
    with Shop(3) as shop:
        assert shop.run().ok
        if shop.least < shop.replicas:
            raise Violation(f"I1: {shop.least} ready endpoints of {shop.replicas}")


def another_taker() -> None:
    """What selects the pods by another label, too, wants none of its own."""
    front = manifests.deployment("front", 1)
    front["spec"]["template"]["metadata"]["labels"]["tier"] = "front"
    with Shop(1, front, manifests.service("front"), taker("ReplicaSet")) as shop:
        least = [1]

        def look() -> None:
            least[0] = min(least[0], shop.world.serving("front"))

        shop.world.machine.on_step.append(look)
        shop.run()
        if least[0] < 1:
            raise Violation("I1: the only pod was taken, and ended")


def broken_off(shop: Shop) -> None:
    """The run is killed before it evicts a pod that it has let go."""
    shop.world.process("me").faults.when(is_eviction, Fault("killed before"))
    assert shop.run().wrong == ["killed"]
    assert len(shop.let_go()) == 1


def deleted() -> None:
    """The Deployment is deleted, and nobody comes back."""
    with Shop(1) as shop:
        broken_off(shop)
        shop.world.delete(kinds.DEPLOYMENTS, "web")
        shop.world.settle()
        if left := shop.world.pods(app="web"):
            raise Violation(f"{left[0]['metadata']['name']} serves on for nobody")


def rolled_out() -> None:
    """A rollout is over before somebody undoes the run; a pod of the old version is asked to leave, and not ended."""
    with Shop(2) as shop:
        broken_off(shop)
        people.roll_out(shop.world, "web")
        shop.world.settle()
        shop.recover()
        if len(evictions(shop.world)) != 1:
            raise Violation("a pod was ended without a question to its budgets")


def one_at_a_time(lag: float = 0.0) -> None:
    """Of four pods one is let go at a time, also where events come late."""
    with Shop(4) as shop:
        spread, most = shop.world.server._spread, [0]

        def late(event: Event) -> None:
            if event.resource == kinds.PODS.resource:
                living = [pod for pod in shop.let_go() if "deletionTimestamp" not in pod["metadata"]]
                most[0] = max(most[0], len(living))
            if event.resource == kinds.PODS.resource and lag:
                shop.world.machine.after(lag, lambda: spread(event), "lag")
            else:
                spread(event)

        listeners = shop.world.store.listeners
        listeners[listeners.index(spread)] = late
        assert shop.run().ok
        if most[0] > 1:
            raise Violation(f"{most[0]} of four were let go at once: it is not available any more")


def replacement_ends() -> None:
    """The new pod ends while the old one is out of its Services, and another one takes some time to start."""
    with Shop(1, others=[manifests.node("n2")]) as shop:
        came, dark = left_at(shop), list[float]()

        def end() -> None:
            (pod,) = shop.world.pods(on="n2", app="web")
            shop.world.delete(kinds.PODS, pod["metadata"]["name"])

        def hear(_event: Event) -> None:
            if len(came) == 1 and not dark:
                dark.append(1)
                shop.world.machine.after(5.0, end, "somebody")
                shop.world.machine.after(8.0, lambda: dark.append(shop.world.serving("web")), "somebody")

        shop.world.on_event.append(hear)
        shop.run(**WAIT)
        if dark[1] != 1:
            raise Violation("I1: nothing serves, and the old pod could")


def balancers() -> None:
    """What forwards requests has time to hear that the pod is out."""
    with Shop(1) as shop:
        came = left_at(shop)
        assert shop.run(**WAIT).ok
        (_out, at), (_evicted, then) = came
        if then - at < WAIT["load_balancer_wait"]:
            raise Violation(f"it was evicted {then - at:.1f} s after it had left its Services")


def no_place() -> None:
    """No new pod has a place, and the budget can do without one: the pod leaves as it would have."""
    affinity = manifests.apart("web")
    objects = [manifests.deployment("web", 3, affinity=affinity), manifests.budget("web", maxUnavailable=1)]
    with World([*(manifests.node(f"n{number}") for number in (1, 2, 3)), *objects]) as world:
        me, choices = world.process("me"), DrainPolicy(method="replace")
        given = Input(FIRST, choices=choices, gates=("ready",), gap=0.05, timeout=60.0)
        task = me.spawn(lambda: maintain(me, given))
        world.machine.run_until(lambda: not task.alive, within=1800.0)
        if not task.value().ok:
            raise Violation("n1 was not emptied, and could be")


def without_deployment(patch: pytest.MonkeyPatch) -> None:
    """The pod is let go without a reference to its Deployment."""
    real = released._letting_go

    def letting_go(pod: t.Any, owners: t.Any, mark: t.Any) -> t.Any:
        change = real(pod, owners, mark)
        assert change.body
        return replace(change, body={"metadata": {**change.body["metadata"], "ownerReferences": list(owners)}})

    patch.setattr(released, "_letting_go", letting_go)


def as_is_seen(patch: pytest.MonkeyPatch) -> None:
    """What counts as let go are the pods that the watch shows so."""

    def let_go(_self: object, move: t.Any, snapshot: t.Any) -> bool:
        pod = snapshot.pod(move.pod.uid)
        return pod is not None and names.RELEASED in pod.labels

    patch.setattr(run_replace.Replacing, "_let_go", let_go)


GUARDS = (
    Guard("others are enough before it ends", replaced_by(released, "lacks", lambda *args: ""), undisturbed),
    Guard(
        "nothing else takes it", replaced_by(replacement_conditions, "takers", lambda *args: iter(())), another_taker
    ),
    Guard("its Deployment owns it meanwhile", without_deployment, deleted),
    Guard("what was rolled out over is evicted", replaced_by(released, "may_return", lambda *args: True), rolled_out),
    Guard("as many as may be missing", replaced_by(released, "most_at_once", lambda *args: 9), one_at_a_time),
    Guard("what was written counts before it is seen", as_is_seen, lambda: one_at_a_time(0.5)),
    Guard("it serves again", replaced_by(released, "returning", lambda *args, **how: None), replacement_ends),
    Guard("balancers are waited for", replaced_by(run_replace.Unserving, "waits_for", lambda *args: ""), balancers),
    Guard("no hope is seen", replaced_by(run_replace.Replacing, "_hopeless", lambda *args: False), no_place),
)
