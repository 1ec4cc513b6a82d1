# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random clusters for the placement forecast, as the Kubernetes API takes them; a seed makes the same one again.

Each cluster is a corner of the lab: its nodes carry the label `forecast`, which all its pods ask for. Names of zones,
apps and claims contain the cluster's own, so that no rule of one reaches into another.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from witness.log import Json

MARK = "forecast"
DRIVER = "forecast.example.com"
GPU = "example.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DELAYED, IMMEDIATE = "forecast-delayed", "forecast-immediate"
CLASSES: list[Json] = [
    {
        "metadata": {"name": DELAYED},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    {"metadata": {"name": IMMEDIATE}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate"},
]
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


@dataclass
class Cluster:
    """What to create, in this order; `fills` are bound to nodes from the start, `probes` come one after the other.

    `resized`: of fills, by namespace and name, the CPUs that a resize wants and why it is pending, if it is. `idle`
    pods are bound by nobody.
    """

    name: str
    namespaces: list[Json] = field(default_factory=list)
    nodes: list[Json] = field(default_factory=list)
    csi_nodes: list[Json] = field(default_factory=list)
    volumes: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    fills: list[Json] = field(default_factory=list)
    budgets: list[Json] = field(default_factory=list)
    resized: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    idle: list[Json] = field(default_factory=list)
    probes: list[Json] = field(default_factory=list)


def cluster(seed: int, most: int = 40) -> Cluster:
    """The cluster of a seed, with 5 to `most` nodes."""
    made = _Maker(seed, most)
    made.ground()
    made.fill()
    made.probe()
    return made.cluster


class _Maker:
    def __init__(self, seed: int, most: int) -> None:
        self.dice = random.Random(seed)
        self.most = most
        self.name = f"fc{seed}"
        self.cluster = Cluster(self.name)
        self.spaces = [f"{self.name}-a", f"{self.name}-b"]
        self.zones = [f"{self.name}-z{i}" for i in range(self.dice.randint(1, 4))]
        self.apps = [f"{self.name}-{app}" for app in ("web", "db", "job")]
        self.count = 0
        # With rules mixed at will some pod nearly always fits nowhere; easy clusters are for "all fit".
        self.easy = self.some(0.4)

    def some(self, chance: float) -> bool:
        return self.dice.random() < chance

    # -- nodes and volumes

    def ground(self) -> None:
        teams = self.dice.sample(["red", "blue", "red"], 2)
        for space, team in zip(self.spaces, teams, strict=True):
            labels = {"team": f"{self.name}-{team}", MARK: self.name}
            self.cluster.namespaces.append({"metadata": {"name": space, "labels": labels}})
        for index in range(self.dice.randint(5, self.most)):
            name = f"{self.name}-n{index}"
            self.cluster.nodes.append(self.node(name))
            if self.some(0.5):
                drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": 1}}]
                self.cluster.csi_nodes.append({"metadata": {"name": name}, "spec": {"drivers": drivers}})

    def node(self, name: str) -> Json:
        labels = {HOSTNAME: name, "kubernetes.io/os": "linux", MARK: self.name}
        if self.some(0.9):
            labels[ZONE] = self.dice.choice(self.zones)
        if self.some(0.6):
            labels["disk"] = self.dice.choice(["ssd", "hdd"])
        if self.some(0.7):
            labels["size"] = self.dice.choice(["2", "8", "16", "large"])
        room = {
            "cpu": self.dice.choice(["2", "4"] if self.easy else ["1", "2", "4", "1500m"]),
            "memory": self.dice.choice(["1Gi", "4Gi", "3000M"]),
            "pods": str(self.dice.choice([2, 3, 5, 110])),
            "ephemeral-storage": "10Gi",
        }
        if self.some(0.2):
            room[GPU] = "1"
        taints = []
        if self.some(0.2):
            taints.append({"key": "dedicated", "value": self.dice.choice(["db", "web"]), "effect": "NoSchedule"})
        if self.some(0.1):
            taints.append({"key": "soft", "value": "", "effect": "PreferNoSchedule"})
        if self.some(0.05):
            taints.append({"key": "gone", "value": "yes", "effect": "NoExecute"})
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": taints, "unschedulable": self.some(0.12)},
            "status": {
                "allocatable": room,
                "capacity": room,
                "addresses": [{"type": "InternalIP", "address": "127.0.9.1"}],
            },
        }

    def volume(self, space: str, *, bound: bool, modes: list[str]) -> str:
        """The name of a new claim, with a volume for it in some place."""
        self.count += 1
        claim = f"{self.name}-v{self.count}"
        size = {"storage": "1Gi"}
        spec: Json = {
            "capacity": size,
            "accessModes": modes,
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": IMMEDIATE if bound else f"{DELAYED}",
            "csi": {"driver": DRIVER, "volumeHandle": claim},
        }
        labels = {MARK: self.name}
        where = self.dice.choice(["zone", "host", "label", "none"])
        if where == "zone":
            spec["nodeAffinity"] = _required(ZONE, [self.dice.choice(self.zones)])
        elif where == "host":
            spec["nodeAffinity"] = _required(HOSTNAME, [self.dice.choice(self.cluster.nodes)["metadata"]["name"]])
        elif where == "label":
            labels[ZONE] = self.dice.choice(self.zones)
        wanted: Json = {
            "accessModes": modes,
            "resources": {"requests": size},
            "storageClassName": spec["storageClassName"],
        }
        if bound:
            spec["claimRef"] = {"namespace": space, "name": claim}
            wanted["volumeName"] = claim
        else:
            wanted["selector"] = {"matchLabels": {MARK: self.name}}
        self.cluster.volumes.append({"metadata": {"name": claim, "labels": labels}, "spec": spec})
        self.cluster.claims.append({"metadata": {"name": claim, "namespace": space}, "spec": wanted})
        return claim

    # -- pods

    def pod(self, kind: str) -> Json:
        self.count += 1
        space, app = self.dice.choice(self.spaces), self.dice.choice(self.apps)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{kind}{self.count}",
                "namespace": space,
                "labels": {"app": app, "tier": self.dice.choice(["a", "b"]), MARK: self.name, "role": kind},
            },
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none", "resources": {"requests": self.requests()}}],
            },
        }

    def requests(self) -> Json:
        found = {"cpu": self.dice.choice(["100m", "250m", "0.5", "1"])}
        if self.some(0.6):
            found["memory"] = self.dice.choice(["64Mi", "500M", "1Gi"])
        return found

    def fill(self) -> None:
        for node in self.cluster.nodes:
            if any(taint["effect"] == "NoExecute" for taint in node["spec"]["taints"]):
                continue
            for _number in range(self.dice.randint(0, min(3, int(node["status"]["allocatable"]["pods"])))):
                pod = self.pod("fill")
                pod["spec"]["nodeName"] = node["metadata"]["name"]
                pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "200m", "memory": "100Mi"}
                pod["spec"]["tolerations"] = [{"operator": "Exists"}]
                if self.some(0.2):
                    self.ports(pod)
                if self.some(0.15):
                    self.anti(pod)
                if self.some(0.2):
                    self.claimed(pod, bound=True)
                self.cluster.fills.append(pod)

    def probe(self) -> None:
        rules = (
            *(self.selected, self.affine, self.named, self.tolerant, self.ports, self.anti, self.near, self.spread),
            *(self.greedy, self.sidecars, self.whole, self.overhead, self.claimed, self.shared, self.missing),
        )
        mild = (self.affine, self.tolerant, self.ports, self.anti, self.spread, self.sidecars, self.claimed)
        for _number in range(6):
            pod = self.pod("probe")
            pod["spec"]["nodeSelector"] = {MARK: self.name}
            chosen = mild if self.easy else rules
            for rule in self.dice.sample(chosen, self.dice.choice([0, 0, 0, 1] if self.easy else [1, 1, 2, 2, 3])):
                rule(pod)
            self.cluster.probes.append(pod)

    def selected(self, pod: Json) -> None:
        pod["spec"]["nodeSelector"]["disk"] = self.dice.choice(["ssd", "hdd", "tape"])

    def expression(self) -> Json:
        operator = self.dice.choice(OPERATORS)
        key = "size" if operator in ("Gt", "Lt") else self.dice.choice(["size", "disk", ZONE])
        known = {"size": ["2", "8"], "disk": ["ssd", "none"], ZONE: self.zones}
        values = [self.dice.choice(["3", "8"])] if operator in ("Gt", "Lt") else self.dice.sample(known[key], 1)
        found: Json = {"key": key, "operator": operator}
        return {**found, "values": values} if operator in ("In", "NotIn", "Gt", "Lt") else found

    def affine(self, pod: Json) -> None:
        terms = [
            {"matchExpressions": [self.expression() for _number in range(self.dice.randint(1, 2))]}
            for _number in range(self.dice.randint(1, 2))
        ]
        rules = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        rules["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.some(0.5):
            preferred = {"weight": 10, "preference": {"matchExpressions": [self.expression()]}}
            rules["preferredDuringSchedulingIgnoredDuringExecution"] = [preferred]

    def named(self, pod: Json) -> None:
        names = [node["metadata"]["name"] for node in self.dice.sample(self.cluster.nodes, 2)]
        operator = self.dice.choice(["In", "In", "NotIn"])
        fields = [{"key": "metadata.name", "operator": operator, "values": [self.dice.choice(names)]}]
        if self.some(0.2):
            fields.append({"key": "metadata.name", "operator": "In", "values": [names[0]]})
        rules = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
        rules["requiredDuringSchedulingIgnoredDuringExecution"] = terms

    def tolerant(self, pod: Json) -> None:
        pod["spec"]["tolerations"] = self.dice.choice(
            [
                [{"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"}],
                [{"key": "dedicated", "operator": "Exists"}],
                [{"operator": "Exists", "effect": "NoSchedule"}],
                [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
                [{"operator": "Exists"}],
            ]
        )

    def ports(self, pod: Json) -> None:
        port: Json = {"containerPort": 80, "hostPort": self.dice.choice([8080, 8081])}
        if self.some(0.3):
            port["hostIP"] = self.dice.choice(["127.0.0.1", "10.0.0.1"])
        if self.some(0.2):
            port["protocol"] = "UDP"
        pod["spec"]["containers"][0]["ports"] = [port]

    def term(self) -> Json:
        found: Json = {
            "topologyKey": self.dice.choice([HOSTNAME, ZONE]),
            "labelSelector": {"matchLabels": {"app": self.dice.choice(self.apps)}},
        }
        if self.some(0.3):
            found["labelSelector"]["matchExpressions"] = [{"key": "tier", "operator": "NotIn", "values": ["b"]}]
        match self.dice.randint(0, 5):
            case 0:
                found["namespaces"] = self.dice.sample(self.spaces, 1)
            case 1:
                found["namespaceSelector"] = {}
            case 2:
                found["namespaceSelector"] = {"matchLabels": {"team": f"{self.name}-red"}}
            case 3:
                found["matchLabelKeys"] = ["role"]
        return found

    def anti(self, pod: Json) -> None:
        rules = pod["spec"].setdefault("affinity", {})
        rules["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [self.term()]}

    def near(self, pod: Json) -> None:
        rules = pod["spec"].setdefault("affinity", {})
        terms = [self.term() for _number in range(self.dice.randint(1, 2))]
        rules["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def spread(self, pod: Json) -> None:
        found = []
        for key in self.dice.sample([HOSTNAME, ZONE], self.dice.randint(1, 2)):
            one: Json = {
                "maxSkew": self.dice.randint(1, 2),
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}},
            }
            if self.some(0.3):
                one["minDomains"] = self.dice.randint(1, 5)
            if self.some(0.3):
                one["nodeTaintsPolicy"] = self.dice.choice(["Honor", "Ignore"])
            if self.some(0.2):
                one["nodeAffinityPolicy"] = self.dice.choice(["Honor", "Ignore"])
            if self.some(0.3):
                one["matchLabelKeys"] = ["tier"]
            found.append(one)
        pod["spec"]["topologySpreadConstraints"] = found

    def greedy(self, pod: Json) -> None:
        requests = pod["spec"]["containers"][0]["resources"].setdefault("requests", {})
        pod["spec"].pop("resources", None)
        requests[self.dice.choice(["cpu", "memory", "ephemeral-storage"])] = self.dice.choice(["1800m", "3Gi", "8"])
        if self.some(0.4):
            requests[GPU] = "1"
            pod["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"}

    def sidecars(self, pod: Json) -> None:
        def one(name: str, cpu: str, **more: str) -> Json:
            return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}}, **more}

        pod["spec"].pop("resources", None)
        sidecar = one("side", self.dice.choice(["300m", "1"]), restartPolicy="Always")
        pod["spec"]["initContainers"] = [sidecar, one("init", self.dice.choice(["200m", "1500m"]))]

    def whole(self, pod: Json) -> None:
        # At least what the containers request together, which another rule may have made a lot.
        pod["spec"]["containers"][0]["resources"] = {}
        pod["spec"].pop("initContainers", None)
        pod["spec"]["resources"] = {"requests": {"cpu": "1900m", "memory": self.dice.choice(["2Gi", "3Gi"])}}

    def overhead(self, pod: Json) -> None:
        pod["spec"]["runtimeClassName"] = "forecast"

    def claimed(self, pod: Json, *, bound: bool | None = None) -> None:
        fixed = self.some(0.6) if bound is None else bound
        claim = self.volume(pod["metadata"]["namespace"], bound=fixed, modes=["ReadWriteOnce"])
        _mount(pod, claim)

    def shared(self, pod: Json) -> None:
        """A ReadWriteOncePod claim, which another pod may have."""
        claim = self.volume(pod["metadata"]["namespace"], bound=True, modes=["ReadWriteOncePod"])
        same = [p for p in self.cluster.fills if p["metadata"]["namespace"] == pod["metadata"]["namespace"]]
        if same and self.some(0.6):
            _mount(self.dice.choice(same), claim)
        _mount(pod, claim)

    def missing(self, pod: Json) -> None:
        if self.some(0.3):
            _mount(pod, "missing")


def _mount(pod: Json, claim: str) -> None:
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": claim}})


def _required(key: str, values: list[str]) -> Json:
    expressions = [{"key": key, "operator": "In", "values": values}]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
