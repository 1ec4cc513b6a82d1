# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest real use of each step that needs Koordinator: its jobs, and its descheduler."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import arguments as descheduler
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import arguments as jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments as plan
from support import koordinator, rights, rollouts, shapes
from support.ablation import calling, scenes
from support.jobs import JOBS, RESERVATIONS, RESERVED
from support.lab import ROOT
from support.waiting import until

QUIET = "lab.kubeops.io/ablation"


class Movable(scenes.World):
    """Three nodes, and pods for which a place can be reserved."""

    APP = "moved"

    def fill(self) -> None:
        self.arena.deployment(self.APP, 4, pod=RESERVED, service=False)


class Moved(scenes.Scene):
    """``pod_migration_job``: a job that finds no place and is removed, then one that is approved and moves its pod."""

    steps = ("read", "jobs", "koordinator", "events")
    app = Movable.APP
    PLACE: ClassVar[Json] = {"reservation_template": {"spec": {"ttl": "2m", "template": {"spec": RESERVED}}}}

    def __init__(self, world: scenes.World, folder: Path) -> None:
        super().__init__(world, folder)
        self._count = 0

    def use(self) -> None:
        self._without_place()
        self._approved()

    def _without_place(self) -> None:
        name, asked = self._asked()
        for node in self.world.nodes:
            self.arena.cordon(node)
        self.done(jobs.SPEC, **asked, wait=False)
        until(lambda: self._reserved(name), 30, f"{name} has its Reservation")
        self.done(jobs.SPEC, name=name, state="rejected", wait=False)
        self.done(jobs.SPEC, name=name, state="absent", wait=False)
        for node in self.world.nodes:
            self.arena.cordon(node, False)
        left = [one["metadata"]["name"] for one in (*self.api.items(JOBS), *self._reservations())]
        self.expect(not left, f"Left: {', '.join(left)}")

    def _approved(self) -> None:
        name, asked = self._asked()
        self.done(jobs.SPEC, **asked, **self.PLACE, reservation=f"{name}-place", paused=True, wait=False)
        found = self.done(jobs.SPEC, name=name, state="approved")
        (job,) = found["jobs"]
        self.expect(job["outcome"] in ("moved", "approved"), str(job))
        self.expect(job["events"], "Nothing is known of the job's Events")

    def _asked(self) -> tuple[str, Json]:
        self._count += 1
        pod = next(pod for pod in self.arena.pods(self.app))
        name = f"{self.arena.name}-{self._count}"
        meta = pod["metadata"]
        return name, {"name": name, "pods": [{key: meta[key] for key in ("namespace", "name")}], "ttl": "40s"}

    def _reserved(self, name: str) -> bool:
        found = self.api.get(f"{JOBS}/{name}")
        return bool(found["spec"].get("reservationOptions")) and bool(self._reservations())

    def _reservations(self) -> list[Json]:
        return [one for one in self.api.items(RESERVATIONS) if self.arena.name in str(one["spec"])]

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        try:
            yield
        finally:
            for node in self.world.nodes:
                if self.arena.is_cordoned(node):
                    self.arena.cordon(node, False)
            for job in self.api.items(JOBS):
                name = job["metadata"]["name"]
                if (job.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                    self.api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Failed", "reason": "TestIsOver"}})
                self.api.delete(f"{JOBS}/{name}")
            for one in self._reservations():
                self.api.delete(f"{RESERVATIONS}/{one['metadata']['name']}")
            self.arena.settle()


class Limits(scenes.Scene):
    """The limits of koord-descheduler, as its port tells them; its log may not be read."""

    steps = ("read", "look", "koordinator")
    lacks: ClassVar[tuple[str, ...]] = ("pods/log",)

    def use(self) -> None:
        found = calling.call(plan.SPEC, str(self.account.config), nodes=self.world.full, backend="koordinator")
        known = ("limits_unproven", "no_limits", "no_controller", "several_koordinators")
        said = [one["message"] for one in found["findings"] if one["code"] in known]
        self.expect(found["pods"] and not said, " ".join(said) or found["msg"])


class Limitslog(Limits):
    """The same, as the beginning of its log tells them."""

    lacks = ("pods/portforward",)

    def use(self) -> None:
        """With up to three new pods: now and then the log of one in the lab lacks its beginning."""
        for left in (2, 1, 0):
            koordinator.restart_descheduler(self.lab)
            try:
                super().use()
            except calling.LackingError:
                if not left:
                    raise
            else:
                return


class Limitsmap(Limits):
    """The same, where neither port nor log can be read: they are those of the ConfigMap, which may not be in force."""

    lacks = ("pods/portforward", "pods/log")

    def use(self) -> None:
        found = calling.call(plan.SPEC, str(self.account.config), nodes=self.world.full, backend="koordinator")
        said = {one["code"]: one["message"] for one in found["findings"]}
        self.expect("of ConfigMap" in said.get("limits_unproven", ""), " ".join(said.values()) or found["msg"])


class Several(Limits):
    """A second koord-descheduler, which does not lead."""

    lacks = ()

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        deployments = koordinator.DEPLOYMENT.rpartition("/")[0]
        spec = self.api.get(koordinator.DEPLOYMENT)["spec"]
        labels = {"app": "another"}
        template = shapes.template(self.arena.name, "another", "0s", "0s", None, None)
        template["metadata"]["labels"] = labels
        kept = {key: spec["template"]["spec"][key] for key in ("containers", "volumes")}
        template["spec"] = {**template["spec"], **kept}
        template["spec"]["containers"][0].pop("livenessProbe", None)
        made = {"selector": {"matchLabels": labels}, "template": template}
        self.api.create(deployments, {"metadata": {"name": "another"}, "spec": made})
        try:
            path = f"{deployments}/another"
            until(lambda: (self.api.get(path).get("status") or {}).get("readyReplicas"), 30, "another one is ready")
            yield
        finally:
            self.api.delete(f"{deployments}/another")


class Descheduler(scenes.Scene):
    """``descheduler_config``: rolled out, paused, resumed, and a name that is wrong."""

    steps = ("descheduler", "locks", "runs")
    lacks: ClassVar[tuple[str, ...]] = ("pods/log",)
    proof = "configz"

    def __init__(self, world: scenes.World, folder: Path) -> None:
        super().__init__(world, folder)
        self._chart = str(self.api.get(koordinator.CONFIG)["data"][koordinator.KEY])
        self._seconds = 100

    def use(self) -> None:
        self._seconds += 10
        done = self._called(config=rollouts.slower(self._chart, self._seconds))
        self.expect(done["proof"] == self.proof, f"The proof is {done['proof']}, not {self.proof}: {done['msg']}")
        self._called(state="paused")
        self._called(state="resumed")
        self._misnamed()

    def _misnamed(self) -> None:
        said = calling.call(descheduler.SPEC, str(self.account.config), config=self._chart, deployment="nobody")["msg"]
        self.expect("koord-descheduler" in said, said)

    def _called(self, **arguments: Any) -> Json:
        return self.done(descheduler.SPEC, timeout="60s", running_jobs="ignore", **arguments)

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        with rollouts.as_found(self.lab, self._chart):
            yield
            for name in rollouts.journals(self.lab):
                self.api.delete(f"/api/v1/namespaces/{scenes.OURS}/configmaps/{name}")
            for name in rollouts.locks(self.lab):
                self.api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{scenes.OURS}/leases/{name}")


class Deschedulerlog(Descheduler):
    """The same, where the port cannot be reached: the log is the proof."""

    lacks: ClassVar[tuple[str, ...]] = ("pods/portforward",)
    proof = "log"

    def use(self) -> None:
        """Up to three times: now and then the log of a new pod of the lab lacks its beginning."""
        proofs: list[str] = []
        while self.proof not in proofs and len(proofs) < 3:
            self._seconds += 10
            proofs.append(self._called(config=rollouts.slower(self._chart, self._seconds))["proof"])
        self.expect(self.proof in proofs, f"The proofs are {', '.join(proofs)}, not {self.proof}")


class Deschedulerlease(Deschedulerlog):
    """The same, where neither can be read: that a pod of it leads is the proof."""

    lacks = ("pods/portforward", "pods/log")
    proof = "lease"


class Created(Descheduler):
    """A configuration that is refused, where there was no ConfigMap."""

    def use(self) -> None:
        self.api.delete(koordinator.CONFIG)
        bad = rollouts.refused_class(self._chart)
        result = calling.call(
            descheduler.SPEC, str(self.account.config), config=bad, timeout="8s", running_jobs="ignore"
        )
        self.expect(result.get("outcome") == "rolled_back", result["msg"])
        self.expect(self.api.find(koordinator.CONFIG) is None, result["msg"])

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        base, _slash, name = koordinator.CONFIG.rpartition("/")
        data = {koordinator.KEY: self._chart}
        with super().given_back():
            try:
                yield
            finally:
                if self.api.find(koordinator.CONFIG) is None:
                    self.api.create(base, {"metadata": {"name": name}, "data": data})
                else:
                    self.api.patch(koordinator.CONFIG, {"data": data})
                    clear = {rollouts.DIGEST: None, "test": str(time.time())}
                    self.api.patch(koordinator.DEPLOYMENT, {"spec": {"template": {"metadata": {"annotations": clear}}}})
                    for pod in koordinator.descheduler_pods(self.lab):
                        self.api.delete(f"{koordinator.PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)


class Cron(scenes.Scene):
    """A descheduler of SIG Scheduling that runs as a CronJob."""

    steps = ("descheduler", "locks", "runs")
    BASE = f"/apis/batch/v1/namespaces/{koordinator.NAMESPACE}/cronjobs"
    MAPS = f"/api/v1/namespaces/{koordinator.NAMESPACE}/configmaps"

    def __init__(self, world: scenes.World, folder: Path) -> None:
        super().__init__(world, folder)
        layout = yaml.safe_load((ROOT / "roles/lab/files/deschedulers/sigs.yaml").read_text(encoding="utf-8"))["items"]
        template = next(item for item in layout if item["kind"] == "Deployment")["spec"]["template"]
        template["spec"]["restartPolicy"] = "Never"
        del template["spec"]["serviceAccountName"], template["spec"]["containers"][0]["livenessProbe"]
        self._map = next(item for item in layout if item["kind"] == "ConfigMap")
        self._map["metadata"]["namespace"] = koordinator.NAMESPACE
        self._spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}

    def use(self) -> None:
        place: Json = {"flavor": "sigs", "namespace": koordinator.NAMESPACE}
        policy = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": []}
        self.done(descheduler.SPEC, **place, config=policy)
        self.done(descheduler.SPEC, **place, state="paused")
        self.done(descheduler.SPEC, **place, state="resumed")
        asked: Json = {**place, "deployment": "nobody", "config": policy}
        said = calling.call(descheduler.SPEC, str(self.account.config), **asked)["msg"]
        self.expect("descheduler" in said.replace("koord-descheduler", "").partition("nobody.")[2], said)

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        self.api.create(self.MAPS, self._map)
        self.api.create(self.BASE, {"metadata": {"name": "descheduler"}, "spec": self._spec})
        try:
            yield
        finally:
            self.api.delete(f"{self.BASE}/descheduler")
            self.api.delete(f"{self.MAPS}/{self._map['metadata']['name']}")
            for name in rollouts.journals(self.lab):
                self.api.delete(f"/api/v1/namespaces/{scenes.OURS}/configmaps/{name}")
            for name in rollouts.locks(self.lab):
                self.api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{scenes.OURS}/leases/{name}")


class Preview(scenes.Scene):
    """``descheduler_config`` with ``state: previewed``."""

    steps = ("read", "look", "preview")
    ACCOUNT = "kubeops-node-maintenance-dry-run"

    def __init__(self, world: scenes.World, folder: Path) -> None:
        super().__init__(world, folder)
        self._chart = str(self.api.get(koordinator.CONFIG)["data"][koordinator.KEY])

    def use(self) -> None:
        wanted = rollouts.slower(self._chart, 90)
        done = self.done(descheduler.SPEC, state="previewed", config=wanted, timeout="60s")
        kept = [one["message"] for one in done["timeline"] if one["what"] == "kept"]
        self.expect(not kept, " ".join(kept))
        pods = self.api.items(koordinator.PODS, labelSelector="maintenance.kubeops.io/descheduler-preview")
        self.expect(not pods, f"Left: {len(pods)} pods")

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        accounts = f"/api/v1/namespaces/{koordinator.NAMESPACE}/serviceaccounts"
        binding = f"{rights.RBAC}/clusterrolebindings"
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.ACCOUNT}
        subject = {"kind": "ServiceAccount", "name": self.ACCOUNT, "namespace": koordinator.NAMESPACE}
        rights.made(self.api, accounts, {"metadata": {"name": self.ACCOUNT}})
        rights.made(
            self.api,
            binding,
            {"metadata": {"name": self.ACCOUNT}, "roleRef": reference, "subjects": [subject]},
        )
        try:
            yield
        finally:
            self.api.delete(f"{binding}/{self.ACCOUNT}")
            self.api.delete(f"{accounts}/{self.ACCOUNT}")
            for pod in self.api.items(koordinator.PODS, labelSelector="maintenance.kubeops.io/descheduler-preview"):
                self.api.delete(f"{koordinator.PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
            maps = koordinator.CONFIG.rpartition("/")[0]
            for found in self.api.items(maps, labelSelector="maintenance.kubeops.io/descheduler-preview"):
                self.api.delete(f"{maps}/{found['metadata']['name']}")
