# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports as the modules write them: of plans and runs in a simulated cluster, and of a roll of 300 nodes.

That of a rehearsal is the report of a run.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import Sample
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

Results = list[dict[str, t.Any]]

NODES = tuple(f"ip-10-20-113-{number}.eu-central-1.compute.internal" for number in (7, 107, 207, 208))
"""As one cloud names them."""
LONG = "customer-facing-checkout-and-payment-orchestration-service-eu"
"""61 characters; a Service's name may have 63."""
UNBROKEN = "authenticationandauthorizationgateway"
"""A name in which no line can end."""
MANY, PODS = 300, 14


def cluster() -> list[Raw]:
    """One of each that a drain treats in another way, with the names of real clusters."""
    apps = [manifests.deployment(LONG, 1), manifests.deployment(UNBROKEN, 3), manifests.deployment("web", 4)]
    services = [manifests.service(name) for name in (LONG, UNBROKEN, "web", "db")]
    budgets = [manifests.budget(UNBROKEN, maxUnavailable=1), manifests.budget("db", maxUnavailable=1)]
    nodes = [manifests.node(name) for name in NODES]
    return [*nodes, *apps, manifests.stateful_set("db", 3), manifests.daemon_set("agent"), *services, *budgets]


def blocking() -> list[Raw]:
    """What stops a maintenance, so that it is told with remedies and advice."""
    bare = {"metadata": {"name": f"debug-{UNBROKEN}", "namespace": "shop"}, "apiVersion": "v1", "kind": "Pod"}
    scratch = [{"name": "scratch", "emptyDir": {}}]
    return [
        manifests.budget("web", minAvailable="100%"),
        manifests.stateful_set(f"{LONG}-db", 1),
        manifests.deployment("thumbnails-of-everything-there-is", 2, volumes=scratch),
        {**bare, "spec": {"nodeName": NODES[0], "containers": [{"name": "c", "image": "registry.example/c:1"}]}},
    ]


def planned(*more: Raw) -> Results:
    with World([*cluster(), *more]) as world:
        me = world.process("mira")
        result = me.run(lambda ctx: make_plan(ctx, PlanOptions(nodes=NODES, max_parallel=2)))
        return [result.shaped(me.contexts[-1])]


def patched(actor: Actor, name: str) -> None:
    """The user's tasks."""
    actor.world.reboot(name)
    actor.clock.sleep(40.0)


def run() -> Results:
    with World(cluster()) as world:
        me = world.process("mira")
        task = me.spawn(lambda: maintain(me, Input(NODES[:3], work=patched)))
        world.machine.run_until(lambda: not task.alive)
        calls = task.value().calls
        return [result.shaped(ctx) for (_name, result), ctx in zip(calls, me.contexts, strict=True)]


def many() -> Results:
    return Sample(MANY, PODS, per_wave=10, fail_tasks=[17, 203]).results


REPORTS: dict[str, t.Callable[[], Results]] = {
    "plan": planned,
    "blocked": lambda: planned(*blocking()),
    "run": run,
    "failed": lambda: Sample(3, PODS, fail_tasks=[1]).results,
    "dark": lambda: Sample(3, PODS, dark=True).results,
    "plan-300": lambda: many()[:1],
    "run-300": many,
}
