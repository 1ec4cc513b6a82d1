# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What controllers do with workloads and nodes."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.here import Here, Raw, behaviour

TOP, SETS, PODS, NODES = kinds.DEPLOYMENTS, kinds.STATEFUL_SETS, kinds.PODS, kinds.NODES
COST = "controller.kubernetes.io/pod-deletion-cost"
NEVER = "lab.kubeops.io/ready"


def _names(pods: list[Raw]) -> list[str]:
    return [str(pod["metadata"]["name"]) for pod in pods]


def _alive(here: Here, app: str) -> list[str]:
    return _names([pod for pod in here.pods(app) if "deletionTimestamp" not in pod["metadata"]])


def _condition(raw: Raw, what: str) -> Raw:
    return next((c for c in (raw.get("status") or {}).get("conditions") or () if c["type"] == what), {})


def _taints(here: Here, node: str) -> list[list[str]]:
    return sorted([x["key"], x["effect"]] for x in here.get(NODES, node)["spec"].get("taints") or ())


@behaviour
def the_status_of_a_deployment(here: Here) -> t.Any:
    here.nodes(1)
    here.running(TOP, "web", 2)
    fields = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    wanted = [1, 2, 2, 2, 2]
    return here.until(lambda: [here.get(TOP, "web")["status"].get(f) for f in fields] == wanted, "told")


@behaviour
def a_pod_that_was_deleted_is_replaced(here: Here) -> t.Any:
    here.nodes(1)
    pods = here.running(TOP, "web", 2)
    here.send(here.deletion(PODS, pods[0]["metadata"]["name"]))
    here.until(lambda: len(here.ready("web")) == 2 and pods[0]["metadata"]["name"] not in _alive(here, "web"), "two")
    owner = here.ready("web")[0]["metadata"]["ownerReferences"][0]
    return [owner["kind"], owner["controller"], owner["blockOwnerDeletion"]]


def _left(here: Here, count: int) -> bool:
    return len(_alive(here, "web")) == count


@behaviour
def the_lowest_deletion_cost_goes_first(here: Here) -> t.Any:
    here.nodes(2)
    names = _names(here.running(TOP, "web", 4))
    for name, cost in zip(names, (5, -10, 0, -3), strict=True):
        here.patch(PODS, name, {"metadata": {"annotations": {COST: str(cost)}}})
    seen = []
    for count in (3, 2, 1):
        here.patch(TOP, "web", {"spec": {"replicas": count}}, "scale")
        here.until(functools.partial(_left, here, count), f"{count} left")
        seen.append([names.index(name) for name in _alive(here, "web")])
    return seen


@behaviour
def who_is_not_ready_goes_before_the_lowest_cost(here: Here) -> t.Any:
    here.nodes(1)
    ready = here.running(TOP, "web", 2)
    here.patch(PODS, _names(ready)[0], {"metadata": {"annotations": {COST: "-100"}}})
    template = {"template": {"metadata": {"annotations": {"lab.kubeops.io/start": "120s"}}}}
    here.patch(kinds.REPLICA_SETS, here.items(kinds.REPLICA_SETS)[0]["metadata"]["name"], {"spec": template})
    here.patch(TOP, "web", {"spec": {"replicas": 3, "paused": True}})
    here.until(lambda: len(_alive(here, "web")) == 3, "three")
    here.until(lambda: all(pod["spec"].get("nodeName") for pod in here.pods("web")), "placed")
    here.patch(TOP, "web", {"spec": {"replicas": 2}}, "scale")
    here.until(lambda: len(_alive(here, "web")) == 2, "two")
    return _alive(here, "web") == _names(ready)


@behaviour
def who_has_no_node_goes_first(here: Here) -> t.Any:
    here.nodes(1)
    ready = here.running(TOP, "web", 1)
    here.patch(PODS, _names(ready)[0], {"metadata": {"annotations": {COST: "-100"}}})
    here.patch(NODES, ready[0]["spec"]["nodeName"], {"spec": {"unschedulable": True}})
    here.until(lambda: _taints(here, ready[0]["spec"]["nodeName"]), "tainted")
    here.patch(TOP, "web", {"spec": {"replicas": 2}}, "scale")
    here.until(
        lambda: any(_condition(pod, "PodScheduled").get("status") == "False" for pod in here.pods("web")), "stuck"
    )
    here.patch(TOP, "web", {"spec": {"replicas": 1}}, "scale")
    here.until(lambda: len(_alive(here, "web")) == 1, "one")
    return _alive(here, "web") == _names(ready)


@behaviour
def a_stateful_set_goes_up_and_down_one_by_one(here: Here) -> t.Any:
    here.nodes(1)
    here.workload(SETS, "db", 3, start="2s")
    here.until(lambda: _alive(here, "db") == ["db-0"], "the first")
    here.until(lambda: _alive(here, "db") == ["db-0", "db-1"], "the second")
    first = [pod["metadata"]["name"] for pod in here.ready("db")]
    here.until(lambda: len(here.ready("db")) == 3, "all")
    here.patch(SETS, "db", {"spec": {"replicas": 1}}, "scale")
    here.until(lambda: len(here.pods("db")) == 1, "down")
    return [first, _names(here.pods("db"))]


@behaviour
def a_stateful_set_gives_the_same_name_again_only_when_it_is_free(here: Here) -> t.Any:
    here.nodes(1)
    before = here.running(SETS, "db", 2, stop="3s", terminationGracePeriodSeconds=10)
    here.send(here.deletion(PODS, "db-0"))
    here.sleep(1)
    still = here.get(PODS, "db-0")["metadata"]["uid"] == before[0]["metadata"]["uid"]
    here.until(lambda: len(here.ready("db")) == 2, "back")
    return [still, here.get(PODS, "db-0")["metadata"]["uid"] == before[0]["metadata"]["uid"]]


@behaviour
def a_stateful_set_waits_for_who_is_not_ready(here: Here) -> t.Any:
    here.nodes(1)
    here.workload(SETS, "db", 2, annotations={NEVER: "never"})
    here.until(lambda: here.pods("db") and here.pods("db")[0]["status"].get("phase") == "Running", "begun")
    here.sleep(2)
    return _names(here.pods("db"))


@behaviour
def the_unschedulable_taint_follows_the_cordon(here: Here) -> t.Any:
    node = here.nodes(1)[0]
    here.patch(NODES, node, {"spec": {"unschedulable": True}})
    here.until(lambda: _taints(here, node), "tainted")
    seen = _taints(here, node)
    here.patch(NODES, node, {"spec": {"unschedulable": None}})
    here.until(lambda: not _taints(here, node), "free")
    return [seen, here.get(NODES, node)["spec"].get("unschedulable")]


@behaviour
def a_daemon_set_comes_back_to_a_cordoned_node_and_not_to_a_tainted_one(here: Here) -> t.Any:
    cordoned, tainted = here.nodes(2)
    pods = here.running(kinds.DAEMON_SETS, "agent", 2)
    here.patch(NODES, cordoned, {"spec": {"unschedulable": True}})
    here.patch(NODES, tainted, {"spec": {"taints": [{"key": "example.com/x", "effect": "NoSchedule"}]}})
    here.until(lambda: _taints(here, cordoned) and _taints(here, tainted), "as wanted")
    here.sleep(2)
    kept = _names(pods) == _names(here.pods("agent"))
    for name in _names(pods):
        here.send(here.deletion(PODS, name, grace_seconds=0))
    here.until(lambda: len(here.ready("agent")) == 1, "one is back")
    here.sleep(2)
    return [kept, [pod["spec"]["nodeName"] == cordoned for pod in here.pods("agent")]]


@behaviour
def a_taint_without_execution_ends_nothing_and_one_with_it_does(here: Here) -> t.Any:
    node = here.nodes(1)[0]
    tolerated = {"key": "example.com/x", "operator": "Exists"}
    here.pod("plain")
    here.pod("patient", tolerations=[tolerated])
    here.pod("short", tolerations=[{**tolerated, "effect": "NoExecute", "tolerationSeconds": 10}])
    here.until(lambda: len([p for p in here.pods() if p["status"].get("phase") == "Running"]) == 3, "running")
    here.patch(NODES, node, {"spec": {"taints": [{"key": "example.com/x", "effect": "NoSchedule"}]}})
    here.sleep(3)
    seen = [_names(here.pods())]
    here.patch(NODES, node, {"spec": {"taints": [{"key": "example.com/x", "effect": "NoExecute"}]}})
    here.until(lambda: here.find(PODS, "plain") is None, "the plain one is gone")
    seen.append(_names(here.pods()))
    here.until(lambda: here.find(PODS, "short") is None, "the short one is gone")
    return [*seen, _names(here.pods())]


@behaviour
def a_pod_that_fits_nowhere_says_so(here: Here) -> t.Any:
    here.pod("nowhere")
    here.until(lambda: _condition(here.get(PODS, "nowhere"), "PodScheduled"), "told")
    raw = here.get(PODS, "nowhere")
    told = _condition(raw, "PodScheduled")
    waits = [raw["status"]["phase"], told["status"], told["reason"], "nodeName" in raw["spec"]]
    here.nodes(1)
    here.until(lambda: here.ready("nowhere"), "placed")
    return [waits, _condition(here.get(PODS, "nowhere"), "PodScheduled")["status"]]


@behaviour
def pods_that_shun_each_other_wait_for_a_node_of_their_own(here: Here) -> t.Any:
    first, second = here.nodes(2)
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    shun = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = here.running(TOP, "web", 2, affinity=shun)
    apart = sorted(pod["spec"]["nodeName"] for pod in pods) == sorted((first, second))
    here.patch(NODES, first, {"spec": {"unschedulable": True}})
    here.until(lambda: _taints(here, first), "tainted")
    leaving = next(pod for pod in pods if pod["spec"]["nodeName"] == first)
    here.send(here.deletion(PODS, leaving["metadata"]["name"], grace_seconds=0))

    def waiting() -> t.Any:
        found = [_condition(pod, "PodScheduled") for pod in here.pods("web") if "nodeName" not in pod["spec"]]
        return [told for told in found if told]

    told = here.until(waiting, "one has no place")
    here.sleep(2)
    ready = len(here.ready("web"))
    here.patch(NODES, first, {"spec": {"unschedulable": None}})
    here.until(lambda: len(here.ready("web")) == 2, "both run again")
    return [apart, [one["reason"] for one in told], ready]


@behaviour
def a_full_or_cordoned_node_takes_no_pod_and_a_free_one_does(here: Here) -> t.Any:
    first, second = here.nodes(2)
    here.patch(NODES, first, {"spec": {"unschedulable": True}})
    here.until(lambda: _taints(here, first), "tainted")
    pods = here.running(TOP, "web", 3)
    return [pod["spec"]["nodeName"] == second for pod in pods]


@behaviour
def endpoints_of_a_pod_that_ends(here: Here) -> t.Any:
    here.nodes(1)
    here.make(kinds.SERVICES, "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
    pod = here.running(TOP, "web", 1, stop="8s", terminationGracePeriodSeconds=20)[0]

    def endpoint() -> Raw:
        found = [e for s in here.items(kinds.ENDPOINT_SLICES) for e in s.get("endpoints") or ()]
        return next((e for e in found if e["targetRef"]["uid"] == pod["metadata"]["uid"]), {})

    before = here.until(lambda: endpoint().get("conditions"), "an endpoint")
    slice_ = here.items(kinds.ENDPOINT_SLICES)[0]["metadata"]["labels"]["kubernetes.io/service-name"]
    here.send(here.deletion(PODS, pod["metadata"]["name"]))
    here.until(lambda: endpoint().get("conditions", {}).get("terminating"), "terminating")
    during = endpoint()["conditions"]
    here.until(lambda: not endpoint(), "gone")
    return [slice_, before, during]


@behaviour
def endpoints_of_a_pod_that_is_not_ready(here: Here) -> t.Any:
    here.nodes(1)
    here.make(kinds.SERVICES, "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
    here.workload(TOP, "web", 1, annotations={NEVER: "never"})

    def conditions() -> list[Raw]:
        return [e["conditions"] for s in here.items(kinds.ENDPOINT_SLICES) for e in s.get("endpoints") or ()]

    return here.until(conditions, "an endpoint")


@behaviour
def ready_is_not_yet_available(here: Here) -> t.Any:
    here.nodes(1)
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": here.template("web"), "minReadySeconds": 5}
    here.make(TOP, "web", spec={**spec, "replicas": 1})
    here.until(lambda: here.get(TOP, "web").get("status", {}).get("readyReplicas") == 1, "ready")
    early = here.get(TOP, "web")["status"].get("availableReplicas") or 0
    here.until(lambda: here.get(TOP, "web")["status"].get("availableReplicas") == 1, "available")
    return early


@behaviour
def an_autoscaler_raises_to_its_least_again_and_again(here: Here) -> t.Any:
    here.nodes(1)
    here.running(TOP, "web", 1)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    here.make(kinds.HPAS, "web", spec={"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3})

    def count() -> int:
        return int(here.get(TOP, "web")["spec"]["replicas"])

    here.until(lambda: count() == 2, "raised")
    here.patch(TOP, "web", {"spec": {"replicas": 1}}, "scale")
    here.until(lambda: count() == 2, "raised again")
    here.patch(TOP, "web", {"spec": {"replicas": 5}}, "scale")
    here.until(lambda: count() == 3, "lowered to its most")
    return True


@behaviour
def a_job_runs_to_its_end(here: Here) -> t.Any:
    here.nodes(1)
    template = here.template("job", annotations={"lab.kubeops.io/complete": "1s"}, restartPolicy="Never")
    here.make(kinds.JOBS, "job", spec={"template": template})
    here.until(lambda: _condition(here.get(kinds.JOBS, "job"), "Complete"), "complete")
    status = here.get(kinds.JOBS, "job")["status"]
    return [status["succeeded"], [pod["status"]["phase"] for pod in here.pods("job")]]


@behaviour
def a_paused_deployment_is_still_scaled(here: Here) -> t.Any:
    here.nodes(1)
    here.running(TOP, "web", 1)
    here.patch(TOP, "web", {"spec": {"paused": True}})
    here.patch(TOP, "web", {"spec": {"replicas": 2}}, "scale")
    here.until(lambda: len(here.ready("web")) == 2, "scaled")
    return len(here.items(kinds.REPLICA_SETS))


@behaviour
def a_changed_template_is_rolled_out(here: Here) -> t.Any:
    here.nodes(1)
    old = _names(here.running(TOP, "web", 2))
    here.patch(TOP, "web", {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})
    here.until(lambda: len(here.ready("web")) == 2 and not set(old) & set(_names(here.pods("web"))), "rolled out")
    return sorted(s["spec"]["replicas"] for s in here.items(kinds.REPLICA_SETS))


@behaviour
def every_pod_bears_a_lost_node_for_five_minutes(here: Here) -> t.Any:
    mine = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    made = [
        here.pod("plain"),
        here.pod("own", tolerations=[mine]),
        here.pod("all", tolerations=[{"operator": "Exists"}]),
    ]
    return [pod["spec"]["tolerations"] for pod in made]
