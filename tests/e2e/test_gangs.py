# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that only work together are interrupted with consent, and once.

PodGroups of Kubernetes are in test_kubernetes_next.py.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import pytest
from support import shapes
from support.arena import Arena, Workload
from support.operators.base import Kind, define, reference
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness import objects as o
from witness.api import ApiError
from witness.log import Json

LWS = "leaderworkerset.sigs.k8s.io"
# LeaderWorkerSet v0.6, docs/reference/labels-annotations-and-environment-variables.md
MARKS: Json = {f"{LWS}/name": "serve", f"{LWS}/group-index": "0", f"{LWS}/group-key": "689ce1b5e1dd2ab64b1ac8"}
JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
MANAGED = "kueue.x-k8s.io/managed"


@pytest.mark.whole
def test_a_gang_over_three_nodes_is_interrupted_once(arena: Arena, play: Player, watching: Watch) -> None:
    here = arena.nodes(3)
    arena.nodes(3)
    spec: Json = {"podManagementPolicy": "Parallel", "template": {"metadata": {"labels": MARKS}}}
    gang = arena.statefulset("serve-0", 3, on=here, spec=spec, start="8s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=here)
    assert not run.ok
    found = run.finding("gang")
    assert found["severity"] == "blocker"
    assert f"serve group 0 (3 pods on {', '.join(here)})" in found["message"]
    assert seen.writes == []
    with watching() as seen:
        run = play("maintain", maintain_nodes=here, maintain_allow_interruption=True)
        assert run.ok, run.text
    seen.all_held(interruptible=[gang])
    assert run.of("maintenance_plan")[0]["waves"] == [here]
    assert sorted(request.name for request in seen.evictions()) == ["serve-0-0", "serve-0-1", "serve-0-2"]
    times = [request.at for request in seen.evictions()]
    assert max(times) - min(times) < 8.0, "before the first new one could serve, as it works as a whole only"
    assert len(seen.new_pods(gang)) == 3


def run_once(arena: Arena, name: str, notes: Json) -> Json:
    """A template of pods that are not restarted."""
    return shapes.template(arena.name, name, "0s", "1s", {"restartPolicy": "Never"}, notes)


def job_set(arena: Arena, name: str, on: Sequence[str]) -> list[Workload]:
    """A JobSet of one Job for each node, as its controller makes them (JobSet v0.8, jobset_controller.go)."""
    define(arena.api, JOB_SET)
    spec: Json = {"replicatedJobs": [{"name": "workers", "replicas": len(on)}]}
    made = {"apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind, "metadata": {"name": name}, "spec": spec}
    owner = reference(arena.api.create(JOB_SET.path(arena.namespace), made))
    jobs = []
    for index, node in enumerate(on):
        called = f"{name}-workers-{index}"
        marks = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/jobset-uid": owner["uid"],
            "jobset.sigs.k8s.io/replicatedjob-name": "workers",
            "jobset.sigs.k8s.io/replicatedjob-replicas": str(len(on)),
            "jobset.sigs.k8s.io/job-index": str(index),
            "jobset.sigs.k8s.io/job-global-index": str(index),
            "jobset.sigs.k8s.io/restart-attempt": "0",
        }
        template = run_once(arena, called, {"lab.kubeops.io/complete": "never"})
        template["metadata"]["labels"] |= marks
        template["metadata"]["annotations"] |= marks
        job = {
            "apiVersion": "batch/v1",
            "metadata": {"name": called, "labels": marks, "annotations": marks, "ownerReferences": [owner]},
            "spec": {"completionMode": "Indexed", "parallelism": 1, "completions": 1, "template": template},
        }
        with arena.placing(node):
            jobs.append(arena.create("Job", job))
    return jobs


def pod_names(job: Workload) -> set[str]:
    return {pod["metadata"]["name"] for pod in job.pods()}


@pytest.mark.whole
def test_a_job_set_is_left_to_finish_or_with_consent_interrupted_once(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here = arena.nodes(3)
    arena.nodes(3)
    jobs = job_set(arena, "train", here)
    arena.settle()
    first = {name for job in jobs for name in pod_names(job)}
    found = play("plan", maintain_nodes=here).finding("gang")
    assert (found["severity"], found["object"]) == ("info", f"JobSet {arena.namespace}/train")
    assert f"train (3 pods on {', '.join(here)})" in found["message"]
    with watching() as seen:
        run = play("maintain", maintain_nodes=here, maintain_allow_interruption=True)
        assert run.ok, run.text
        # The controller of Jobs replaces a pod after ten seconds, which no run waits for.
        until(lambda: all(pod_names(job) - first for job in jobs), 60, "each has a new pod")
    seen.all_held()
    assert run.finding("gang")["severity"] == "warning"
    assert run.of("maintenance_plan")[0]["waves"] == [here]
    assert len(seen.evictions()) == 3
    assert [len(seen.new_pods(job)) for job in jobs] == [1, 1, 1], "each interrupted once"


@contextlib.contextmanager
def kueue(arena: Arena, name: str, on: Sequence[str]) -> Iterator[list[str]]:
    """A group of plain pods, one on each node, that whoever submitted it replaces; gives the replacements' names.

    Kueue v0.12 holds pods of a group by a finalizer (pkg/controller/jobs/pod/constants/constants.go), which it takes
    from one that has ended when there is another in its place (pod_controller.go, FindMatchingWorkloads).
    """
    meta: Json = {
        "labels": {MANAGED: "true", "kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": name},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(len(on)), "lab.kubeops.io/complete": "never"},
        "finalizers": [MANAGED],
    }
    for index, node in enumerate(on):
        arena.pod(f"{name}-{index}", node, {"restartPolicy": "Never"}, meta, stop="1s")
    replaced: list[str] = []
    over = threading.Event()

    def control() -> None:
        while not over.wait(0.1):
            with contextlib.suppress(ApiError):
                for pod in arena.all("Pod"):
                    if not pod["metadata"].get("deletionTimestamp") or not pod["metadata"].get("finalizers"):
                        continue
                    called = f"{o.name(pod)}-again"
                    if called not in replaced:
                        template = run_once(arena, called, meta["annotations"])
                        template["metadata"] |= {"name": called, "finalizers": [MANAGED]}
                        template["metadata"]["labels"] |= meta["labels"]
                        arena.create("Pod", {"apiVersion": "v1", **template})
                        replaced.append(called)
                    if o.finished(pod):
                        arena.patch("Pod", o.name(pod), {"metadata": {"finalizers": None}})

    thread = threading.Thread(target=control)
    thread.start()
    try:
        yield replaced
    finally:
        over.set()
        thread.join()


@pytest.mark.whole
def test_a_group_of_kueue_needs_both_consents_and_is_interrupted_once(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here = arena.nodes(3)
    arena.nodes(3)
    with kueue(arena, "train", here) as replaced:
        with watching() as seen:
            run = play("maintain", maintain_nodes=here, maintain_force=True)
        assert not run.ok
        found = run.finding("gang")
        assert (found["severity"], found["object"]) == ("blocker", f"Pod group {arena.namespace}/train")
        assert seen.writes == []
        with watching() as seen:
            run = play("maintain", maintain_nodes=here, maintain_force=True, maintain_allow_interruption=True)
            assert run.ok, run.text
        seen.all_held()
        assert run.finding("gang")["severity"] == "warning"
        assert run.of("maintenance_plan")[0]["waves"] == [here]
        assert sorted(request.name for request in seen.evictions()) == ["train-0", "train-1", "train-2"]
        assert sorted(replaced) == ["train-0-again", "train-1-again", "train-2-again"]
