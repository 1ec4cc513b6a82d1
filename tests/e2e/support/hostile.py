# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What somebody might do with a stolen token of an account that may do maintenance.

All of it are dry runs: the API server judges them as it does real ones, and nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from witness.api import MERGE_PATCH, Api, ApiError
from witness.log import Json

from support import released, rights, shapes
from support.arena import Arena
from support.waiting import until

KEY = "maintenance.kubeops.io"
FENCE = f"/apis/{KEY}/v1/namespaces/{rights.HOME}/nodefences/node-fence"
HOLDER = "thief/x"
LOCK = {f"{KEY}/fence": f"node-none={HOLDER}"}
TRIAL = "kubeops-node-maintenance/plan"
UNDER_LOCK = f"kubeops-node-maintenance/{HOLDER}"
"""The field manager of who holds the lock of a pod's node."""
INVENTED = {f"{KEY}/fence": "node-invented=thief/x"}
WAS_OPEN, WAS_CORDONED = '{"prior":{"unschedulable":false}}', '{"prior":{"unschedulable":true}}'
REPLICAS = 6
"""To how many the account of the tests may raise a workload."""
QUARANTINE = {"key": "acme.io/quarantine", "value": "compromised", "effect": "NoSchedule"}
ADMITTED = "acme.io/pool"
"""The key of a taint that the account of the tests may change."""
OURS = {"app.kubernetes.io/managed-by": "kubeops.node_maintenance"}
COST = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}
HOME = f"/api/v1/namespaces/{rights.HOME}"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{rights.HOME}/leases"


@dataclass(frozen=True)
class Action:
    """One request; the field manager of a patch may name a lock."""

    method: str
    path: str
    body: Any = None
    manager: str = ""
    content: str = MERGE_PATCH


def attempt(kubeconfig: Path, action: Action) -> str:
    """What the server says if it refuses; empty if it would do it."""
    content = action.content if action.method == "PATCH" else "application/json"
    query = {"dryRun": "All", **({"fieldManager": action.manager} if action.manager else {})}
    # The options of a deletion are read from its body.
    body = {**(action.body or {}), "dryRun": ["All"]} if action.method == "DELETE" else action.body
    try:
        Api(kubeconfig, rights.AGENT).request(action.method, action.path, body, content_type=content, query=query)
    except ApiError as error:
        return str(error)
    return ""


def _controlled(pod: Json) -> bool:
    return any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ())


class Scene:
    """A node with pods, a workload with a budget, and the same in a namespace that is protected.

    And nodes that an administrator has protected, cordoned, or cordoned before a maintenance that goes on.
    """

    def __init__(self, api: Api, arena: Arena) -> None:
        self.api, self.arena = api, arena
        self.node, self.closed, self.maintained, self.guarded = arena.nodes(4)
        for name in (self.closed, self.maintained):
            arena.cordon(name)
        arena.annotate(self.maintained, {f"{KEY}/record": WAS_CORDONED})
        api.patch(f"/api/v1/nodes/{self.guarded}", {"metadata": {"labels": {f"{KEY}/protected": "true"}}})
        arena.deployment("web", 4, on=self.node, budget={"maxUnavailable": 1}, service=False)
        arena.taint(self.node, {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}, QUARANTINE)
        self.namespace = arena.namespace
        guard = {"selector": {"matchLabels": {"app": "none"}}, "maxUnavailable": 1}
        arena.create("PodDisruptionBudget", {"metadata": {"name": "kubeops-guard-x", "labels": OURS}, "spec": guard})
        self.safe = arena.add_namespace(f"{arena.namespace}-safe", {f"{KEY}/protected": "true"})
        self.protected = f"/api/v1/namespaces/{self.safe}/pods/kept"
        spec = {**shapes.pod_spec(arena.name, None), "nodeName": self.node}
        notes = {shapes.START: "0s", shapes.STOP: "0s"}
        kept = {"metadata": {"name": "kept", "annotations": notes}, "spec": spec}
        api.create(f"/api/v1/namespaces/{self.safe}/pods", kept)
        arena.pod("bare", on=self.node, meta={"labels": {"pod-template-hash": "5d8f"}})
        self.bare = arena.pods("bare")[0]
        self.pod = arena.pods("web")[0]
        self.deployment = api.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/web")
        _pod, *others = arena.pods("web")
        self.loose, self.out = (self._let_go(self._path(pod)) for pod in others[:2])
        self.out = api.patch(self._path(self.out), released.leaving())

    def _let_go(self, pod: str) -> Json:
        self.api.patch(pod, released.letting_go(self.api.get(pod), self.deployment))
        until(lambda: not _controlled(self.api.get(pod)), 10, "its ReplicaSet has let it go")
        found: Json = self.api.get(pod)
        return found

    def _path(self, pod: Json) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"

    @property
    def held(self) -> dict[str, str]:
        """What the map of the fence has to say: of no node, and of that with the pods."""
        return {"node-none": HOLDER, f"node-{self.node}": HOLDER}

    @property
    def pods(self) -> str:
        return self._path(self.pod)

    def actions(self) -> dict[str, Action]:
        """By what each of them does."""
        groups = (self._node(), self._cordons(), self._status(), self._evictions(), self._pods(), self._budgets())
        found: dict[str, Action] = {}
        for group in (*groups, self._scales(), self._records(), self._released()):
            found |= group
        return found

    def harmless(self) -> dict[str, Action]:
        """What maintenance does itself."""
        node, uid = f"/api/v1/nodes/{self.node}", self.pod["metadata"]["uid"]
        taints = self.arena.node(self.node)["spec"]["taints"]
        held = {"key": f"{KEY}/in-progress", "value": "r", "effect": "NoSchedule"}
        pool = {"key": ADMITTED, "effect": "NoSchedule"}
        cordon = {"spec": {"unschedulable": True, "taints": [*taints, held]}}
        mine = self.arena.path("PodDisruptionBudget", namespace=self.namespace)
        return {
            "cordon and taint a node": Action("PATCH", node, {**self._recorded(WAS_OPEN), **cordon}),
            "set a taint that is admitted": Action("PATCH", node, {"spec": {"taints": [*taints, pool]}}),
            "take a node that was cordoned": self._marked(self.closed, WAS_CORDONED),
            "give back a node that was cordoned": self._marked(self.maintained, None),
            "guard a workload": Action("POST", mine, self._guard({"matchLabels": {"app": "web"}})),
            "note a lock in the fence": Action("PATCH", FENCE, {"held": {"node-x": "r/y", "node-none": None}}),
            "evict a pod by its UID under a lock": self._evict(self.pods, LOCK, uid=uid),
            "mark a pod": Action("PATCH", self.pods, COST),
            "let a pod go": self._change(self.pod, released.letting_go(self.pod, self.deployment)),
            "try to let a pod go": self._change(self.pod, released.letting_go(self.pod, self.deployment), TRIAL),
            "give a pod back": self._change(self.loose, released.giving_back(self.loose)),
            "take a pod out of its Services": self._change(self.loose, released.leaving()),
            "give a pod back that is out of them": self._change(self.out, released.giving_back(self.out)),
            "put a pod back into its Services": self._change(self.out, released.coming_back()),
            "mark a pod that was let go": Action("PATCH", self._path(self.loose), COST),
            "delete a pod by its UID": Action("DELETE", self.pods, {"preconditions": {"uid": uid}}),
            "raise replicas": self._scale(REPLICAS),
            "lock a node": Action("POST", LEASES, {"metadata": {"name": "node-x"}, "spec": {"holderIdentity": "r"}}),
        }

    def _node(self) -> dict[str, Action]:
        found = self.arena.node(self.node)
        taints = found["spec"]["taints"]

        def patch(body: Json) -> Action:
            return Action("PATCH", f"/api/v1/nodes/{self.node}", body)

        def tainted(key: str, effect: str = "NoExecute") -> Action:
            return patch({"spec": {"taints": [*taints, {"key": key, "effect": effect}]}})

        owner = {"apiVersion": "v1", "kind": "Node", "name": self.closed, "uid": "1"}
        role = {"node-role.kubernetes.io/control-plane": ""}
        return {
            "make a node a control plane": patch({"metadata": {"labels": role}}),
            "move a node to another zone": patch({"metadata": {"labels": {"topology.kubernetes.io/zone": "x"}}}),
            "remove a label": patch({"metadata": {"labels": {"kubernetes.io/hostname": None}}}),
            "change an annotation of others": patch({"metadata": {"annotations": {"acme.io/role": "db"}}}),
            "keep a node from being deleted": patch({"metadata": {"finalizers": ["acme.io/kept"]}}),
            "give a node an owner": patch({"metadata": {"ownerReferences": [owner]}}),
            "evict all by our taint": tainted(f"{KEY}/in-progress"),
            "evict all by any taint": tainted("acme.io/gone"),
            "evict all of a node that works": tainted("node.kubernetes.io/out-of-service"),
            "pretend that a node is unreachable": tainted("node.kubernetes.io/unreachable", "NoSchedule"),
            "open the control plane to all pods": patch({"spec": {"taints": None}}),
            "open a quarantine": patch({"spec": {"taints": [one for one in taints if one != QUARANTINE]}}),
            "keep all pods off by a taint of others": tainted("acme.io/closed", "NoSchedule"),
            "put a node out of maintenance's reach": patch({"metadata": {"labels": {f"{KEY}/protected": "true"}}}),
        }

    def _recorded(self, record: str | None) -> Json:
        return {"metadata": {"annotations": {f"{KEY}/record": record}}}

    def _marked(self, node: str, record: str | None, *, cordoned: bool = True) -> Action:
        body = {**self._recorded(record), "spec": {"unschedulable": cordoned}}
        return Action("PATCH", f"/api/v1/nodes/{node}", body)

    def _cordons(self) -> dict[str, Action]:
        def bare(node: str, cordoned: bool) -> Action:
            return Action("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned}})

        opened = {"metadata": {"labels": {f"{KEY}/protected": None}}}
        return {
            "cordon a node without a record of it": bare(self.node, True),
            "cordon a node as if it had been before": self._marked(self.node, WAS_CORDONED),
            "cordon a node with a record that says both": self._marked(self.node, WAS_OPEN + WAS_CORDONED),
            "uncordon what an administrator cordoned": bare(self.closed, False),
            "claim an administrator's cordon": self._marked(self.closed, WAS_OPEN),
            "claim it while uncordoning": self._marked(self.closed, WAS_OPEN, cordoned=False),
            "uncordon what was cordoned before": self._marked(self.maintained, None, cordoned=False),
            "change what was before": self._marked(self.maintained, WAS_OPEN),
            "cordon a node that is protected": self._marked(self.guarded, WAS_OPEN),
            "take away a node's protection": Action("PATCH", f"/api/v1/nodes/{self.guarded}", opened),
        }

    def _status(self) -> dict[str, Action]:
        found = self.arena.node(self.node)

        def patch(body: Json) -> Action:
            return Action("PATCH", f"/api/v1/nodes/{self.node}/status", body)

        others = [one for one in found["status"]["conditions"] if one["type"] != "Ready"]
        silent = [*others, {"type": "Ready", "status": "False", "reason": "x", "message": "x"}]
        return {
            "declare a node not ready": patch({"status": {"conditions": silent}}),
            "drop all conditions": patch({"status": {"conditions": None}}),
            "take a node's capacity": patch({"status": {"allocatable": {"cpu": "0"}}}),
            "change a node's address": patch({"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}}),
            "label a node through its status": patch({"metadata": {"labels": {"pool": "mine"}}}),
        }

    def _evict(self, pod: str, notes: Json | None, **options: Any) -> Action:
        meta: Json = {"name": pod.rpartition("/")[2], **({"annotations": notes} if notes else {})}
        uid = options.pop("uid", None)
        body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
        if uid:
            body["deleteOptions"]["preconditions"] = {"uid": uid}
        return Action("POST", f"{pod}/eviction", body)

    def _evictions(self) -> dict[str, Action]:
        uid = self.pod["metadata"]["uid"]
        safe = self.api.get(self.protected)["metadata"]["uid"]
        return {
            "evict whatever has a name": self._evict(self.pods, LOCK),
            "end a pod at once": self._evict(self.pods, LOCK, uid=uid, gracePeriodSeconds=0),
            "evict without a lock": self._evict(self.pods, None, uid=uid),
            "evict what is protected": self._evict(self.protected, LOCK, uid=safe),
            "delete whatever has a name": Action("DELETE", self.pods),
            "delete what is protected": Action("DELETE", self.protected, {"preconditions": {"uid": safe}}),
        }

    def _pods(self) -> dict[str, Action]:
        def patch(body: Json) -> Action:
            return Action("PATCH", self.pods, body)

        image = [{**self.pod["spec"]["containers"][0], "image": "acme.io/thief"}]
        return {
            "take a pod from its service": patch({"metadata": {"labels": {"app": "none"}}}),
            "change a pod's annotation": patch({"metadata": {"annotations": {"acme.io/secret": "x"}}}),
            "keep a pod for ever": patch({"metadata": {"finalizers": ["acme.io/kept"]}}),
            "take a pod from its owner": patch({"metadata": {"ownerReferences": None}}),
            "run another image": patch({"spec": {"containers": image}}),
            "let a pod end in a second": patch({"spec": {"activeDeadlineSeconds": 1}}),
            "rename a pod's siblings": patch({"metadata": {"generateName": "thief-"}}),
            "fill the store": patch({"metadata": {"annotations": {f"{KEY}/maintenance-planned": "x" * 200_000}}}),
            "let a pod tolerate everything": patch(
                {"spec": {"tolerations": [*self.pod["spec"]["tolerations"], {"operator": "Exists"}]}}
            ),
            "mark a pod that is protected": Action("PATCH", self.protected, COST),
        }

    def _released(self) -> dict[str, Action]:
        """Of a pod that its ReplicaSet owns, and of one that it has let go."""
        owned = released.hostile(self.pod, self.deployment)
        found = {f"let a pod go {how}": self._change(self.pod, body) for how, body in owned.items()}
        for what, pod, bodies in (
            ("give a pod", self.loose, released.hostile_undo(self.loose)),
            ("take a pod out of its Services", self.loose, released.hostile_leaving(self.loose)),
            ("give a pod that is out", self.out, released.hostile_out(self.out)),
        ):
            found |= {f"{what} {how}": self._change(pod, body) for how, body in bodies.items()}
        good = released.letting_go(self.pod, self.deployment)
        return found | {
            "let a pod go under no lock": self._change(self.pod, good, ""),
            "give a pod back under no lock": self._change(self.loose, released.giving_back(self.loose), ""),
            "take a pod out of its Services under no lock": self._change(self.loose, released.leaving(), ""),
            "let a pod go that is protected": Action("PATCH", self.protected, good, UNDER_LOCK),
            "let a pod go that no ReplicaSet has": self._change(
                self.bare, released.of_other(self.bare, good, self.pod)
            ),
            "let a pod go by other forms of a patch": self._change(
                self.pod, released.as_json_patch(good), content="application/json-patch+json"
            ),
            "let a pod go and take its owner by a strategic patch": self._change(
                self.pod, released.disowning(good), content="application/strategic-merge-patch+json"
            ),
            "apply a label": self._change(self.pod, released.applied(self.pod), content="application/apply-patch+yaml"),
        }

    def _change(self, pod: Json, body: Any, manager: str = UNDER_LOCK, content: str = MERGE_PATCH) -> Action:
        return Action("PATCH", self._path(pod), body, manager, content)

    def beyond(self) -> dict[str, Action]:
        """What the roles do not allow in the first place: other verbs, and parts of pods that are subresources."""
        meta = {"metadata": {"name": "x"}, "spec": self.pod["spec"]}
        debug = {"name": "thief", "image": "acme.io/thief"}
        return {
            "replace a pod's object": Action("PUT", self.pods, self.pod),
            "debug a pod": Action(
                "PATCH", f"{self.pods}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}
            ),
            "resize a pod": Action("PATCH", f"{self.pods}/resize", {"spec": {"containers": []}}),
            "declare a pod ready": Action("PATCH", f"{self.pods}/status", {"status": {"conditions": []}}),
            "create a pod": Action("POST", self._path(self.pod).rpartition("/")[0], meta),
            "create a pod by applying it": Action(
                "PATCH",
                f"{self._path(self.pod).rpartition('/')[0]}/x",
                {"apiVersion": "v1", "kind": "Pod", **meta},
                UNDER_LOCK,
                "application/apply-patch+yaml",
            ),
            "bind a pod": Action("POST", f"{self.pods}/binding", {"target": {"kind": "Node", "name": self.closed}}),
            "delete all pods": Action("DELETE", self._path(self.pod).rpartition("/")[0]),
            "change a Deployment": Action(
                "PATCH", f"/apis/apps/v1/namespaces/{self.namespace}/deployments/web", {"spec": {"paused": True}}
            ),
        }

    def invented_holder(self) -> Action:
        """As who holds the lock of the pod's node, but does not."""
        good = released.letting_go(self.pod, self.deployment)
        return self._change(self.pod, good, "kubeops-node-maintenance/other/y")

    def invented(self) -> Action:
        """An eviction under a lock that nobody holds, which the fence refuses to everybody."""
        return self._evict(self.pods, INVENTED, uid=self.pod["metadata"]["uid"])

    def _guard(self, selector: Json, **rule: Any) -> Json:
        spec = {"selector": selector, "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", **rule}
        return {"metadata": {"name": "kubeops-guard-z", "labels": OURS}, "spec": spec}

    def _budgets(self) -> dict[str, Action]:
        base = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        others = f"{base}/web"

        def budget(name: str, labels: Json, **rule: Any) -> Action:
            spec = {"selector": {"matchLabels": {"app": "web"}}, **rule}
            return Action("POST", base, {"metadata": {"name": name, "labels": labels}, "spec": spec})

        def anything(operator: str) -> Json:
            return {"matchExpressions": [{"key": "app", "operator": operator}]}

        selector = {"spec": {"selector": {"matchLabels": {"app": "web"}}}}
        return {
            "delete a budget of others": Action("DELETE", others),
            "loosen a budget of others": Action("PATCH", others, {"spec": {"maxUnavailable": "100%"}}),
            "block all evictions by a budget of others": Action("PATCH", others, {"spec": {"maxUnavailable": 0}}),
            "block all evictions by a guard": budget("kubeops-guard-a", OURS, maxUnavailable=0),
            "block all evictions by a floor": budget("kubeops-guard-b", OURS, minAvailable="100%"),
            "make a budget of another name": budget("mine", OURS, maxUnavailable=1),
            "make a guard without our label": budget("kubeops-guard-c", {}, maxUnavailable=1),
            "turn a guard to other pods": Action("PATCH", f"{base}/kubeops-guard-x", selector),
            "guard all pods of a namespace": Action("POST", base, self._guard({})),
            "guard all pods with a label": Action("POST", base, self._guard(anything("Exists"))),
            "guard all pods without a label": Action("POST", base, self._guard(anything("DoesNotExist"))),
            "hold broken pods by a guard": Action(
                "POST", base, self._guard({"matchLabels": {"app": "web"}}, unhealthyPodEvictionPolicy="IfHealthyBudget")
            ),
        }

    def _scale(self, replicas: int) -> Action:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/web/scale"
        return Action("PATCH", path, {"spec": {"replicas": replicas}})

    def _scales(self) -> dict[str, Action]:
        return {
            "scale a workload to nothing": self._scale(0),
            "scale most of a workload away": self._scale(1),
            "fill the cluster": self._scale(400),
            "fill the cluster, twice as many each time": self._scale(8),
        }

    def _records(self) -> dict[str, Action]:
        lease = {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "thief"}}
        root = f"{HOME}/configmaps/kube-root-ca.crt"
        event = {
            "metadata": {"name": "forged", "namespace": self.namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "kubelet",
            "reportingInstance": "x",
            "action": "Killing",
            "reason": "Killing",
            "type": "Normal",
            "regarding": {"kind": "Pod", "name": "web", "namespace": self.namespace},
            "note": "x",
        }
        return {
            "make a lock of another kind": Action("POST", LEASES, lease),
            "store anything": Action("POST", f"{HOME}/configmaps", {"metadata": {"name": "loot"}, "data": {"a": "b"}}),
            "hold a lock that is none of a node": Action("PATCH", FENCE, {"held": {"kube-scheduler": "thief/x"}}),
            "keep the fence for ever": Action("PATCH", FENCE, {"metadata": {"finalizers": ["acme.io/kept"]}}),
            "change the cluster's authority": Action("PATCH", root, {"data": {"ca.crt": "x"}}),
            "delete a configuration": Action("DELETE", root),
            "forge an event": Action("POST", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events", event),
        }
