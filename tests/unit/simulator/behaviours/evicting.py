# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the eviction API allows, and what budgets say."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.here import Here, Raw, behaviour

TOP, PODS, BUDGETS = kinds.DEPLOYMENTS, kinds.PODS, kinds.BUDGETS
OTHER = "00000000-0000-4000-8000-000000000000"
NEVER = {"lab.kubeops.io/ready": "never"}


def _said(here: Here, name: str, *fields: str) -> list[t.Any]:
    status = here.get(BUDGETS, name).get("status") or {}
    return [
        status.get(field)
        for field in fields or ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    ]


def _until(here: Here, name: str, allowed: int, healthy: int) -> None:
    here.until(
        lambda: _said(here, name, "disruptionsAllowed", "currentHealthy") == [allowed, healthy], f"{name}: {allowed}"
    )


@behaviour
def evict_without_a_budget(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 1)[0]
    told = here.evict(pod)
    here.until(lambda: here.find(PODS, pod["metadata"]["name"]) is None, "gone")
    here.until(lambda: len(here.ready("web")) == 1, "replaced")
    return told


@behaviour
def the_answer_to_an_eviction(here: Here) -> t.Any:
    here.nodes(1)
    meta = here.running(TOP, "web", 1)[0]["metadata"]
    answer = here.send(verbs.evict(here.namespace, meta["name"], meta["uid"]))
    return [answer["kind"], answer["status"], answer.get("code")]


@behaviour
def evict_what_is_missing(here: Here) -> t.Any:
    return here.told(verbs.evict(here.namespace, "gone", OTHER))


@behaviour
def evict_another_one(here: Here) -> t.Any:
    here.nodes(1)
    free = here.running(TOP, "free", 1)[0]["metadata"]
    kept = here.running(TOP, "kept", 1)[0]["metadata"]
    here.budget("kept", minAvailable=0)
    _until(here, "kept", 1, 1)
    return [here.told(verbs.evict(here.namespace, meta["name"], OTHER)) for meta in (free, kept)]


@behaviour
def a_budget_is_spent(here: Here) -> t.Any:
    here.nodes(1)
    pods = here.running(TOP, "web", 2, start="4s")
    here.budget("web", minAvailable=1)
    _until(here, "web", 1, 2)
    told = [here.evict(pod) for pod in pods]
    # The one that goes and the one that comes are seen one after the other: 1, 2 or 3 are expected for a moment.
    status = here.until(lambda: (seen := _said(here, "web"))[0::2] == [1, 2] and seen, "one is gone")
    here.until(lambda: _said(here, "web", "disruptionsAllowed") == [1], "room again")
    return [told, status, _said(here, "web")]


@behaviour
def an_eviction_that_is_allowed_is_counted_at_once(here: Here) -> t.Any:
    here.nodes(1)
    pods = here.running(TOP, "web", 3, start="6s", stop="20s", terminationGracePeriodSeconds=20)
    here.budget("web", minAvailable=2)
    _until(here, "web", 1, 3)
    told = [here.evict(pod)["class"] for pod in pods]
    here.until(lambda: _said(here, "web", "disruptedPods") == [None], "the deletion is seen")
    return [told, _said(here, "web", "desiredHealthy")]


@behaviour
def two_budgets_on_a_pod(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 1)[0]
    here.budget("one", "web", minAvailable=0)
    here.budget("two", "web", minAvailable=0)
    return here.evict(pod)


@behaviour
def a_pod_that_has_not_begun_needs_no_budget(here: Here) -> t.Any:
    here.workload(TOP, "web", 1)
    here.budget("web", maxUnavailable=0)
    pod = here.until(lambda: here.pods("web"), "made")[0]
    return here.evict(pod)


@behaviour
def a_pod_that_ends_needs_no_budget(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 1, stop="20s", terminationGracePeriodSeconds=20)[0]
    here.budget("web", minAvailable=1)
    here.send(here.deletion(PODS, pod["metadata"]["name"]))
    return here.evict(pod)


@behaviour
def a_pod_that_is_not_ready_goes_while_the_budget_is_healthy(here: Here) -> t.Any:
    here.nodes(1)
    here.running(TOP, "web", 2)
    here.pod("broken", meta={"labels": {"app": "web"}, "annotations": NEVER})
    pod = here.until(lambda: [p for p in here.pods("web") if p["metadata"]["name"] == "broken"], "there")[0]
    here.until(lambda: here.get(PODS, "broken")["status"].get("phase") == "Running", "running")
    here.budget("web", minAvailable=2)
    _until(here, "web", 0, 2)
    return here.evict(pod)


@behaviour
def a_pod_that_is_not_ready_stays_while_too_few_are(here: Here) -> t.Any:
    here.nodes(1)
    here.running(TOP, "web", 1)
    here.pod("broken", meta={"labels": {"app": "web"}, "annotations": NEVER})
    here.until(lambda: here.get(PODS, "broken")["status"].get("phase") == "Running", "running")
    here.budget("web", minAvailable=2)
    _until(here, "web", 0, 1)
    first = here.evict(here.get(PODS, "broken"))
    here.patch(BUDGETS, "web", {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
    here.until(lambda: _said(here, "web", "observedGeneration") == [2], "observed")
    return [first, here.evict(here.get(PODS, "broken"))]


@behaviour
def a_budget_whose_pods_have_no_controller(here: Here) -> t.Any:
    here.nodes(1)
    here.pod("web")
    here.until(lambda: here.ready("web"), "ready")
    here.budget("web", maxUnavailable=1)
    here.until(lambda: "conditions" in here.get(BUDGETS, "web")["status"], "told")
    condition = here.get(BUDGETS, "web")["status"]["conditions"][0]
    told = [condition["type"], condition["status"], condition["reason"]]
    return [told, _said(here, "web", "disruptionsAllowed"), here.evict(here.get(PODS, "web"))]


@behaviour
def an_eviction_may_shorten_the_grace(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 1, stop="30s", terminationGracePeriodSeconds=30)[0]
    here.evict(pod, grace_seconds=5)
    return here.get(PODS, pod["metadata"]["name"])["metadata"]["deletionGracePeriodSeconds"]


def _counted(here: Here, name: str) -> bool:
    return _said(here, name, "currentHealthy") == [3]


@behaviour
def how_budgets_count(here: Here) -> t.Any:
    here.nodes(1)
    rules: dict[str, Raw] = {
        "least": {"minAvailable": 1},
        "most": {"maxUnavailable": 1},
        "none": {"maxUnavailable": 0},
        "share": {"minAvailable": "50%"},
        "part": {"maxUnavailable": "30%"},
        "above": {"minAvailable": 5},
    }
    here.running(TOP, "web", 3)
    for name, rule in rules.items():
        here.budget(name, "web", **rule)
        here.until(functools.partial(_counted, here, name), "counted")
    return {name: _said(here, name) for name in rules}


@behaviour
def a_budget_follows_the_count_that_is_wanted(here: Here) -> t.Any:
    here.nodes(1)
    here.running(TOP, "web", 3)
    here.budget("web", maxUnavailable="30%")
    here.until(lambda: _counted(here, "web"), "counted")
    here.patch(TOP, "web", {"spec": {"replicas": 4}}, "scale")
    here.until(lambda: _said(here, "web", "currentHealthy") == [4], "counted again")
    more = _said(here, "web")
    here.patch(TOP, "web", {"spec": {"replicas": 1}}, "scale")
    here.until(lambda: _said(here, "web", "currentHealthy") == [1], "counted once more")
    return [more, _said(here, "web")]


@behaviour
def a_budget_of_nothing(here: Here) -> t.Any:
    here.budget("web", minAvailable=0)
    here.budget("most", "web", maxUnavailable=1)
    here.until(lambda: _said(here, "most", "observedGeneration") == [1], "observed")
    return [_said(here, "web"), _said(here, "most")]
