# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole status of budgets, as kube-controller-manager writes it, also where it cannot compute one.

`read` makes a budget of what was recorded, for tests of what is decided by it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.here import Here, Raw, behaviour

TOP, JOBS, PODS, BUDGETS = kinds.DEPLOYMENTS, kinds.JOBS, kinds.PODS, kinds.BUDGETS


def _budget(raw: Raw) -> Raw:
    """What of a budget is the same in every cluster."""
    status = dict(raw.get("status") or {})
    if "conditions" in status:
        told = [{key: c[key] for key in c if key != "lastTransitionTime"} for c in status["conditions"]]
        status["conditions"] = told
    return {"generation": raw["metadata"]["generation"], "spec": raw["spec"], "status": status}


def read(recorded: Raw, name: str = "b", namespace: str = "shop") -> Raw:
    """The recorded budget as an object."""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": recorded["generation"]}
    return {"metadata": meta, "spec": recorded["spec"], "status": recorded["status"]}


def _laid(here: Here, name: str, app: str = "", **rule: t.Any) -> Raw:
    """A new budget, as its creation was answered."""
    spec = {"selector": {"matchLabels": {"app": app or name}}, **rule}
    return _budget(here.make(BUDGETS, name, spec=spec))


def _told(here: Here, name: str, reason: str, healthy: int = 0) -> Raw:
    """The budget, once its controller has told of this reason and counted so many pods."""

    def told() -> Raw | None:
        found = _budget(here.get(BUDGETS, name))
        reasons = [condition["reason"] for condition in found["status"].get("conditions") or ()]
        return found if reasons == [reason] and found["status"]["currentHealthy"] == healthy else None

    return t.cast("Raw", here.until(told, f"{name}: {reason}, {healthy} healthy"))


def _job(here: Here, name: str, app: str, complete: str = "0s") -> None:
    """A Job whose pod has the labels of another app, as those of a chart often have."""
    template = here.template(app, annotations={"lab.kubeops.io/complete": complete}, restartPolicy="Never")
    here.make(JOBS, name, spec={"template": template})
    here.until(lambda: here.get(JOBS, name)["status"].get("succeeded") == 1, f"{name} is complete")


def _agent(here: Here, app: str) -> None:
    """A DaemonSet of which the pods have the labels of another app and one more."""
    template = here.template(app)
    template["metadata"]["labels"]["part"] = "agent"
    selector = {"matchLabels": {"app": app, "part": "agent"}}
    here.make(kinds.DAEMON_SETS, f"{app}-agent", spec={"selector": selector, "template": template})
    here.until(lambda: len([pod for pod in here.ready(app) if "part" in pod["metadata"]["labels"]]) == 1, "the agent")


@behaviour
def what_is_told_of_a_budget(here: Here) -> t.Any:
    here.nodes(1)
    here.running(TOP, "web", 3)
    here.pod("alone")
    here.until(lambda: here.ready("alone"), "ready")
    seen = {"new": _laid(here, "most", "web", maxUnavailable=1)}
    _laid(here, "share", "web", minAvailable="50%")
    _laid(here, "spent", "web", minAvailable=3)
    _laid(here, "nothing", maxUnavailable=1)
    _laid(here, "alone", maxUnavailable=1)
    return {
        **seen,
        "most": _told(here, "most", "SufficientPods", 3),
        "share": _told(here, "share", "SufficientPods", 3),
        "spent": _told(here, "spent", "InsufficientPods", 3),
        "nothing": _told(here, "nothing", "InsufficientPods"),
        "alone": _told(here, "alone", "InsufficientPods", 1),
    }


@behaviour
def a_budget_without_a_rule(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 3)[0]
    _laid(here, "web")
    return [_told(here, "web", "InsufficientPods", 3), here.evict(pod)]


@behaviour
def a_budget_over_the_pod_of_a_job(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 3)[0]
    _job(here, "report", "web")
    _laid(here, "web", maxUnavailable=1)
    seen = [_told(here, "web", "SyncFailed"), here.evict(pod)]
    _laid(here, "least", "web", minAvailable=2)
    _laid(here, "share", "web", minAvailable="50%")
    return [*seen, _told(here, "least", "SufficientPods", 3), _told(here, "share", "SyncFailed")]


@behaviour
def a_budget_over_the_pod_of_a_daemon_set(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 3)[0]
    _agent(here, "web")
    _laid(here, "web", minAvailable="50%")
    seen = [_told(here, "web", "SyncFailed"), here.evict(pod)]
    _laid(here, "least", "web", minAvailable=2)
    return [*seen, _told(here, "least", "SufficientPods", 4)]


@behaviour
def a_budget_that_is_synced_until_a_job_comes(here: Here) -> t.Any:
    here.nodes(1)
    pod = here.running(TOP, "web", 3)[0]
    _laid(here, "web", maxUnavailable=1)
    _told(here, "web", "SufficientPods", 3)
    _job(here, "report", "web")
    seen = [_told(here, "web", "SyncFailed", 3), here.evict(pod)]
    here.patch(BUDGETS, "web", {"spec": {"maxUnavailable": "50%"}})
    here.sleep(2)
    seen += [_told(here, "web", "SyncFailed", 3), here.evict(pod)]
    done = [pod for pod in here.pods("web") if pod["status"]["phase"] == "Succeeded"]
    here.send(here.deletion(PODS, done[0]["metadata"]["name"]))
    return [*seen, _told(here, "web", "SufficientPods", 3)]


@behaviour
def a_budget_that_leaves_out_the_pod_of_a_job(here: Here) -> t.Any:
    """The label that only the pods of a Deployment have, or of a StatefulSet, whatever they share with others."""
    here.nodes(1)
    here.running(TOP, "web", 3)
    here.running(kinds.STATEFUL_SETS, "db", 2)
    seen = []
    for app, key in (("web", "pod-template-hash"), ("db", "statefulset.kubernetes.io/pod-name")):
        _job(here, f"{app}-report", app)
        selector = {"matchLabels": {"app": app}, "matchExpressions": [{"key": key, "operator": "Exists"}]}
        here.make(BUDGETS, app, spec={"selector": selector, "maxUnavailable": 1})
        seen.append(_told(here, app, "SufficientPods", {"web": 3, "db": 2}[app]))
    return seen
