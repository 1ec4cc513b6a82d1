# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PodMigrationJobs as the API server has them, and as somebody would make them by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from witness.api import Api
from witness.log import Json

from support.arena import Arena, Workload
from support.lab import Lab
from support.plays import Player, Run
from support.waiting import until

GROUP = "/apis/scheduling.koordinator.sh/v1alpha1"
JOBS = f"{GROUP}/podmigrationjobs"
RESERVATIONS = f"{GROUP}/reservations"
PASSED = "descheduler.koordinator.sh/passed-arbitration"
REQUESTS = {"requests": {"cpu": "200m", "memory": "400Mi"}}
KOORD: Json = {
    "schedulerName": "koord-scheduler",
    "containers": [{"name": "main", "image": "registry.invalid/app:1", "resources": REQUESTS}],
}
"""A pod that can take a Reservation: by its scheduler, and because there is something to reserve."""
RESERVED: Json = {**KOORD, "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "10m"}}}]}
"""A small pod for which a place can be reserved: a Reservation of nothing is never taken."""


class Jobs:
    """The jobs and Reservations of a lab. Those that were made by hand are deleted by `clear`."""

    def __init__(self, api: Api, arena: Arena) -> None:
        self.api, self.arena = api, arena
        self._known = {one["metadata"]["name"] for one in api.items(JOBS)}

    def deployment(self, name: str, replicas: int = 2, pod: Json | None = None, **more: Any) -> Workload:
        return self.arena.deployment(name, replicas, pod={**KOORD, **(pod or {})}, service=False, **more)

    def statefulset(self, name: str, replicas: int = 2, **more: Any) -> Workload:
        return self.arena.statefulset(name, replicas, pod=KOORD, service=False, **more)

    def named(self, workload: Workload, index: int = 0, uid: bool = False) -> Json:
        """A pod of the workload as the module takes it."""
        meta = workload.pods()[index]["metadata"]
        return {key: meta[key] for key in ("namespace", "name", *(("uid",) if uid else ()))}

    def pod(self, name: str) -> Json:
        """The arena's pod that has this name now, as the module takes it."""
        meta = self.arena.api.get(f"/api/v1/namespaces/{self.arena.name}/pods/{name}")["metadata"]
        return {key: meta[key] for key in ("namespace", "name", "uid")}

    def by_hand(
        self, name: str, pod: Json, annotations: Json | None = None, labels: Json | None = None, **spec: Any
    ) -> str:
        """A job as the documents make it; the name gets the arena's before it."""
        name = f"{self.arena.name}-{name}"
        reference = {key: pod[key] for key in ("namespace", "name")}
        spec = {"mode": "ReservationFirst", "ttl": "60s", "podRef": reference, **spec}
        made = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
        meta = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
        self.api.create(JOBS, {**made, "metadata": meta, "spec": spec})
        return name

    def reservation(self, name: str, owner: Json, on: str = "", **spec: Any) -> str:
        """A Reservation for successors of `owner`'s pods (an entry of `owners`); pinned to a node with `on`."""
        name = f"{self.arena.name}-{name}"
        pod = dict(KOORD)
        pod["nodeSelector"] = {"kubernetes.io/hostname": on} if on else {"lab.kubeops.io/arena": self.arena.name}
        spec = {"owners": [owner], "ttl": "5m", "allocateOnce": True, "template": {"spec": pod}, **spec}
        made = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation"}
        self.api.create(RESERVATIONS, {**made, "metadata": {"name": name}, "spec": spec})
        return name

    def find(self, name: str) -> Json:
        return self.api.get(f"{JOBS}/{name}")

    def phase(self, name: str) -> str:
        return str((self.find(name).get("status") or {}).get("phase") or "")

    def ended(self, name: str, within: float = 30.0) -> Json:
        """The status of the job, once it is final."""
        until(lambda: self.phase(name) in ("Succeeded", "Failed"), within, f"{name} has ended", every=0.2)
        status: Json = self.find(name)["status"]
        return status

    def passed(self, name: str) -> bool:
        return (self.find(name)["metadata"].get("annotations") or {}).get(PASSED) == "true"

    def until_passed(self, name: str) -> None:
        until(lambda: self.passed(name), 15, f"{name} has passed arbitration", every=0.2)

    def of_pods(self, workload: Workload) -> list[Json]:
        """All jobs for pods whose names begin like the workload's."""
        mine = []
        for job in self.api.items(JOBS):
            pod = job["spec"]["podRef"]
            if pod["namespace"] == self.arena.name and pod["name"].startswith(f"{workload.name}-"):
                mine.append(job)
        return mine

    def reserved(self) -> list[str]:
        """Names of the Reservations that still hold a place or wait for one."""
        found = self.api.items(RESERVATIONS)
        return [
            one["metadata"]["name"]
            for one in found
            if (one.get("status") or {}).get("phase", "Pending") in ("Pending", "Available")
            and self.arena.name in str(one["spec"])
        ]

    def clear(self) -> None:
        """Reject what has not ended, so that the arbitrator forgets it, and delete all that is new."""
        for job in self.api.items(JOBS):
            name = job["metadata"]["name"]
            if name in self._known:
                continue
            phase = (job.get("status") or {}).get("phase") or ""
            if phase not in ("Succeeded", "Failed"):
                self.api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Failed", "reason": "TestIsOver"}})
            self.api.delete(f"{JOBS}/{name}")
        for one in self.api.items(RESERVATIONS):
            self.api.delete(f"{RESERVATIONS}/{one['metadata']['name']}")


def left_behind(arena: Arena) -> list[str]:
    """Jobs and Reservations that have to do with the arena."""
    found = [*arena.api.items(JOBS), *arena.api.items(RESERVATIONS)]
    return [one["metadata"]["name"] for one in found if arena.name in str(one["spec"])]


def job_of(run: Run, pod: Json | None = None) -> Json:
    """What the module said of a pod, or of the only one."""
    jobs = run.answer.get("jobs")
    assert jobs, run.text
    found = [job for job in jobs if pod is None or job["pod"]["name"] == pod["name"]]
    assert len(found) == 1, run.text
    only: Json = found[0]
    return only


def move(play: Player, *pods: Json, **more: Any) -> Run:
    """One call of the module for these pods."""
    return play.module("pod_migration_job", pods=list(pods), **more)


@contextlib.contextmanager
def holding(jobs: Jobs, workload: Workload) -> Iterator[str]:
    """A paused job that has passed, so that no other pod of the (small) workload may migrate."""
    name = jobs.by_hand(f"hold-{workload.name}", jobs.named(workload), paused=True, ttl="10m")
    jobs.until_passed(name)
    yield name
    release(jobs, name)


def release(jobs: Jobs, name: str) -> None:
    jobs.api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Failed", "reason": "TestIsOver"}})


def descheduler_log(lab: Lab) -> str:
    """What koord-descheduler has logged since its last start."""
    return lab.run_kubectl("-n", "koordinator-system", "logs", "-l", "koord-app=koord-descheduler", "--tail=-1").stdout


def is_tried(lab: Lab, name: str) -> bool:
    """Whether the arbitrator tries in vain to write a job."""
    lines = descheduler_log(lab).splitlines()
    return any("failed to update job" in line and f'job="{name}"' in line for line in lines)
