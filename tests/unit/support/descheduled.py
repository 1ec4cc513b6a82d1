# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cluster with a descheduler, and calls of `descheduler_config` on it.

Its pods run what the ConfigMap held when they started; a pod whose configuration names `no-such-class` ends again
and again. What real ones do is shown on the lab.
"""

from __future__ import annotations

import copy
import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import (
    CallAborted,
    Context,
    stopped,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.arguments import SPEC
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Killed, Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.programs import Program
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import still_world

HOME = "koordinator-system"
NAME = "koord-descheduler"
CONFIG = "koord-descheduler-config"
HEAD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\nleaderElection: {leaderElect: false}\n"
OLD = f"{HEAD}# as it was\ndeschedulingInterval: 10s\n"
NEW = f"{HEAD}deschedulingInterval: 60s\n"
BAD = f"""{NEW}profiles:
- name: koord-descheduler
  pluginConfig:
  - name: MigrationController
    args: {{priorityThreshold: {{name: no-such-class}}}}
"""
LAST_WORDS = "Usage:\n\nno-such-class not found\n"
MIGRATION = {"Enabled": [{"Name": "MigrationController"}]}
DEFAULTS: Raw = {name: spec.get("default") for name, spec in SPEC.options.items()}


def means(text: str) -> t.Any:
    """What the descheduler makes of its configuration."""
    params = SPEC.prepare(SPEC.converted({**DEFAULTS, "config": text}))
    return params["engine"].parse(text)


class Descheduler(Program):
    """`runs` is what each pod runs, by its name; a pod is well for `well` seconds where it does not run OLD."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs: dict[str, str] = {}
        self.well: float | None = None

    def start(self, pod: Raw) -> str:
        name = pod["metadata"]["name"]
        text = self.runs[name] = self.world.get(kinds.CONFIGMAPS, CONFIG, HOME)["data"][CONFIG]
        if self.well is not None and text != OLD:
            kubelets = self.world.controller(nodes.Kubelets)
            self.world.machine.after(self.well, lambda: kubelets.crash((HOME, name), LAST_WORDS), "crash")
        return LAST_WORDS if "no-such-class" in text else ""

    def page(self, pod: Raw) -> Raw:
        points = {"Evict": MIGRATION, "Filter": MIGRATION, "Deschedule": {}, "Balance": {}}
        config = means(self.runs[pod["metadata"]["name"]])
        return {"componentconfig": {**config, "Profiles": [{"Name": NAME, "Plugins": points}]}}

    def log(self, pod: Raw) -> str:
        running = json.dumps(self.page(pod)["componentconfig"])
        return f'I1121 configfile.go:93] "Using component config" config={json.dumps(running)}\n'


def mounting(config_map: str) -> list[Raw]:
    return [{"name": "config", "configMap": {"name": config_map}}]


def config_map(name: str, namespace: str, **data: str) -> Raw:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


class Cluster:
    """The cluster; `text` is the configuration that its descheduler was started with, None where there is none."""

    def __init__(self, text: str | None = OLD, *, replicas: int = 1, ours: bool = True) -> None:
        self.world = world = still_world(manifests.node("infra"), manifests.namespace(HOME))
        self.descheduler = world.server.program = Descheduler(world)
        if ours:
            world.apply(manifests.namespace(names.NAMESPACE))
        if text is not None:
            world.apply(config_map(CONFIG, HOME, **{CONFIG: text}))
        world.apply(manifests.deployment(NAME, replicas, namespace=HOME, volumes=mounting(CONFIG)))
        world.settle()

    # -- calls ---------------------------------------------------------------------------------------------

    def roll(self, config: object = NEW, *, check: bool = False, **more: t.Any) -> Raw:
        """A call of the module, with its result as users get it.

        Raises:
            Killed: its process was.
        """
        return self.end(self.begin("ann", config, check=check, **more))

    def begin(self, who: str, config: object = NEW, *, check: bool = False, **more: t.Any) -> Task:
        """A call by somebody, as far as nothing has happened yet."""
        params = SPEC.prepare(SPEC.converted({**DEFAULTS, "config": config, **more}))
        actor = self.world.process(who)
        ctx = actor.ctx(check=check)
        return actor.spawn(lambda: called(ctx, params))

    def end(self, *tasks: Task) -> Raw:
        """The result of the last of these calls, once all have ended."""
        self.world.machine.run_until(lambda: not any(task.alive for task in tasks), within=7200.0)
        return t.cast("Raw", tasks[-1].value())

    def killed_at(self, write: int, what: What, config: object = NEW, **more: t.Any) -> bool:
        """A call that is killed before or after that write (from 1); False where it made fewer."""
        count = iter(range(1, 10**6))
        ann = self.world.process("ann")
        ann.faults.when(lambda request: writes(request) and next(count) == write, Fault(what))
        try:
            self.roll(config, **more)
        except (Killed, RuntimeError):
            # What a dead process still holds is let go by whoever unwinds it, twice if it was waiting.
            assert ann.process.dead
            return True
        ann.faults.clear()
        return False

    # -- what is there ---------------------------------------------------------------------------------------

    def text(self) -> str:
        return str(self.world.get(kinds.CONFIGMAPS, CONFIG, HOME)["data"][CONFIG])

    def workload(self) -> Raw:
        return self.world.get(kinds.DEPLOYMENTS, NAME, HOME)

    def journals(self) -> list[str]:
        """Notes of calls that have not come to their end."""
        found = self.world.store.of(kinds.CONFIGMAPS.resource)
        return [name for place, name in found if place == names.NAMESPACE and name.startswith("descheduler-")]

    def kept(self) -> tuple[object, ...]:
        """What has to be as before where a call is taken back."""
        data = self.world.get(kinds.CONFIGMAPS, CONFIG, HOME)["data"]
        return copy.deepcopy((data, self.workload()["spec"]))

    def asked(self) -> list[str]:
        """Verb and resource of each write since the cluster is there, refused or not, but for those of the lock."""
        return [f"{s.request.verb} {s.request.resource}" for s in self.world.log if configures(s.request)]

    @property
    def journal_name(self) -> str:
        return f"descheduler-{self.workload()['metadata']['uid']}"

    def leases(self) -> list[str]:
        """Locks of deschedulers."""
        found = self.world.store.of(kinds.LEASES.resource)
        return [name for place, name in found if place == names.NAMESPACE and name.startswith("descheduler-")]

    # -- what others do -------------------------------------------------------------------------------------

    def write_text(self, text: str) -> None:
        self.world.patch(kinds.CONFIGMAPS, CONFIG, {"data": {CONFIG: text}}, HOME)

    def restart(self) -> None:
        """`kubectl rollout restart`, to its end."""
        mark = {"kubectl.kubernetes.io/restartedAt": str(self.world.machine.now)}
        self.world.patch(kinds.DEPLOYMENTS, NAME, {"spec": {"template": {"metadata": {"annotations": mark}}}}, HOME)
        self.world.settle()

    def deny(self, *rights: str) -> None:
        """Rights as `verb resource`, everywhere, or `verb resource namespace`, there alone."""
        server = self.world.server
        for right in rights:
            verb, resource, *place = right.split()
            server.denied.add((verb, resource))
            if place:
                server.permitted |= {(verb, resource, other) for other in {HOME, names.NAMESPACE} - {*place}}

    def permit_all(self) -> None:
        self.world.server.denied.clear()


def called(ctx: Context, params: Raw) -> Raw:
    try:
        return SPEC.engine(ctx, params).shaped(ctx)
    except CallAborted as stop:
        return stopped(stop).shaped(ctx)


def configures(request: Request) -> bool:
    """Whether it changes anything but a lock."""
    return writes(request) and request.resource != kinds.LEASES.resource


def writes(request: Request) -> bool:
    """Whether it changes anything; a question about rights does not."""
    return request.writes and request.resource != kinds.SELF_SUBJECT_ACCESS_REVIEWS.resource
