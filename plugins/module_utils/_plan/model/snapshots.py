# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The state of a cluster at one moment, and the questions that join several of its objects: the workload of a pod,
its budgets, its autoscaler.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, parsers, selectors

SERVICE = "kubernetes.io/service-name"
"""The label by which an EndpointSlice names its Service."""


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment. Kinds that no decision needs may be left empty.

    The fields after ``autoscalers`` are raw objects; ``claims`` are PersistentVolumeClaims, ``volumes`` their
    PersistentVolumes, ``slices`` EndpointSlices, ``attachments`` VolumeAttachments; ``device_*`` are ResourceClaims,
    ResourceSlices, DeviceClasses and DeviceTaintRules; ``csi_nodes``, ``storage_classes`` and ``namespaces`` are for
    the placement forecast. ``virtual_machines`` are KubeVirt's VirtualMachineInstances, ``kubevirts`` its own settings.
    """

    nodes: t.Mapping[str, objects.Node] = field(default_factory=dict)
    pods: tuple[objects.Pod, ...] = ()
    budgets: tuple[objects.Budget, ...] = ()
    workloads: tuple[objects.Workload, ...] = ()
    autoscalers: tuple[objects.Autoscaler, ...] = ()
    daemon_sets: tuple[objects.Raw, ...] = ()
    claims: tuple[objects.Raw, ...] = ()
    volumes: tuple[objects.Raw, ...] = ()
    quotas: tuple[objects.Raw, ...] = ()
    limits: tuple[objects.Raw, ...] = ()
    slices: tuple[objects.Raw, ...] = ()
    leases: tuple[objects.Raw, ...] = ()
    attachments: tuple[objects.Raw, ...] = ()
    device_claims: tuple[objects.Raw, ...] = ()
    device_slices: tuple[objects.Raw, ...] = ()
    device_classes: tuple[objects.Raw, ...] = ()
    device_rules: tuple[objects.Raw, ...] = ()
    pod_groups: tuple[objects.Raw, ...] = ()
    eviction_requests: tuple[objects.Raw, ...] = ()
    csi_nodes: tuple[objects.Raw, ...] = ()
    storage_classes: tuple[objects.Raw, ...] = ()
    namespaces: tuple[objects.Raw, ...] = ()
    virtual_machines: tuple[objects.Raw, ...] = ()
    kubevirts: tuple[objects.Raw, ...] = ()

    @classmethod
    def of(cls, found: t.Mapping[str, t.Iterable[t.Any]]) -> Snapshot:
        """From parsed objects by kind, the kinds named as in ``PARSERS``."""
        have = {name: tuple(found.get(name, ())) for name in parsers.PARSERS}
        # The later ones win: a kind with a list of its own is fresher there than among the scales, which are read once.
        scaled = ("scales", "deployments", "replica_sets", "stateful_sets", "rollouts", "clone_sets")
        return cls(
            nodes={node.name: node for node in have["nodes"]},
            workloads=sum((have[name] for name in scaled), ()),
            **{name: found for name, found in have.items() if name != "nodes" and name not in scaled},
        )

    def has_node(self, name: str, uid: str) -> bool:
        """Whether the node exists; the same name with another UID is another node, an empty ``uid`` is unknown."""
        return name in self.nodes and uid in ("", self.nodes[name].uid)

    def pods_on(self, nodes: t.Collection[str]) -> tuple[objects.Pod, ...]:
        """The pods bound to one of the nodes, in the order of the list."""
        return tuple(p for p in self.pods if p.node in nodes)

    def budgets_of(self, pod: objects.Pod) -> tuple[objects.Budget, ...]:
        """Every budget that selects the pod."""
        found = list(self._budgets_by_label.get((pod.namespace, "", ""), ()))
        for key, value in pod.labels.items():
            found += self._budgets_by_label.get((pod.namespace, key, value), ())
        return tuple(b for b in found if b.covers(pod))

    @functools.cached_property
    def _budgets_by_place(self) -> dict[tuple[str, str], objects.Budget]:
        return {(b.namespace, b.name): b for b in self.budgets}

    def budget(self, namespace: str, name: str) -> objects.Budget | None:
        return self._budgets_by_place.get((namespace, name))

    @functools.cached_property
    def _budgets_by_label(self) -> dict[tuple[str, str, str], list[objects.Budget]]:
        """Budgets by namespace and the first label of their selector; empty texts if it has none."""
        found: dict[tuple[str, str, str], list[objects.Budget]] = {}
        for budget in self.budgets:
            exact: objects.Raw = (budget.selector or {}).get("matchLabels") or {}
            key, value = next(iter(exact.items()), ("", ""))
            found.setdefault((budget.namespace, key, value), []).append(budget)
        return found

    @functools.cached_property
    def _pods_by_label(self) -> dict[str, dict[tuple[str, str], list[objects.Pod]]]:
        """For each label key that was asked for: the pods by namespace and value."""
        return {}

    def _labelled(self, namespace: str, key: str, value: str) -> t.Sequence[objects.Pod]:
        index = self._pods_by_label.get(key)
        if index is None:
            index = {}
            for pod in self.pods:
                if key in pod.labels:
                    index.setdefault((pod.namespace, pod.labels[key]), []).append(pod)
            # Not before it is complete: several threads may ask at once.
            self._pods_by_label[key] = index
        return index.get((namespace, value), ())

    def selected(self, namespace: str, selector: objects.Raw | None) -> t.Iterator[objects.Pod]:
        """The namespace's pods that a label selector matches, by an index of its first label."""
        exact: objects.Raw = (selector or {}).get("matchLabels") or {}
        candidates: t.Iterable[objects.Pod] = self.pods
        if exact:
            key, value = next(iter(exact.items()))
            candidates = self._labelled(namespace, key, value)
        return (p for p in candidates if p.namespace == namespace and selectors.matches(selector, p.labels))

    @functools.cached_property
    def _counts_by_budget(self) -> dict[tuple[str, str], tuple[int, int]]:
        """For each budget that was asked for, by namespace and name: how many pods are ready, and how many wanted."""
        return {}

    def ready_of(self, budget: objects.Budget) -> int:
        """How many pods of the budget are ready and stay."""
        return self._counts_of(budget)[0]

    def wanted_of(self, budget: objects.Budget) -> int:
        """How many pods the workloads of the budget's pods want, those among them that are not there yet, too."""
        return self._counts_of(budget)[1]

    def _counts_of(self, budget: objects.Budget) -> tuple[int, int]:
        """Counted once, however many of its pods ask."""
        place = (budget.namespace, budget.name)
        if place not in self._counts_by_budget:
            covered = list(self.selected(budget.namespace, budget.selector))
            workloads = {w.uid: w for pod in covered if (w := self.workload_of(pod))}
            ready = sum(1 for p in covered if p.ready and not p.deleting and not p.finished)
            self._counts_by_budget[place] = ready, sum(w.replicas for w in workloads.values())
        return self._counts_by_budget[place]

    @functools.cached_property
    def _workloads_by_uid(self) -> dict[str, objects.Workload]:
        return {w.uid: w for w in self.workloads}

    @functools.cached_property
    def _pods_by_workload(self) -> dict[str, tuple[objects.Pod, ...]]:
        found: dict[str, list[objects.Pod]] = {}
        for pod in self.pods:
            workload = None if pod.finished else self.workload_of(pod)
            if workload:
                found.setdefault(workload.uid, []).append(pod)
        return {uid: tuple(pods) for uid, pods in found.items()}

    @functools.cached_property
    def _pods_by_uid(self) -> dict[str, objects.Pod]:
        return {pod.uid: pod for pod in self.pods}

    @functools.cached_property
    def _workloads_by_owner(self) -> dict[str, tuple[objects.Workload, ...]]:
        found: dict[str, list[objects.Workload]] = {}
        for workload in self.workloads:
            if workload.owner:
                found.setdefault(workload.owner.uid, []).append(workload)
        return {uid: tuple(owned) for uid, owned in found.items()}

    @functools.cached_property
    def _scalers_by_target(self) -> dict[tuple[str, str, str], objects.Autoscaler]:
        # Of several the first counts.
        return {(a.namespace, a.target_kind, a.target_name): a for a in reversed(self.autoscalers)}

    @functools.cached_property
    def _claims_by_place(self) -> dict[tuple[str, str], objects.Raw]:
        return {(c["metadata"].get("namespace", ""), c["metadata"]["name"]): c for c in self.claims}

    @functools.cached_property
    def _volumes_by_name(self) -> dict[str, objects.Raw]:
        return {volume["metadata"]["name"]: volume for volume in self.volumes}

    def volume(self, name: str) -> objects.Raw | None:
        """The PersistentVolume of this name."""
        return self._volumes_by_name.get(name)

    @functools.cached_property
    def daemon_set_uids(self) -> frozenset[str]:
        """The UIDs of all DaemonSets."""
        return frozenset(found["metadata"]["uid"] for found in self.daemon_sets)

    def pod(self, uid: str) -> objects.Pod | None:
        return self._pods_by_uid.get(uid)

    def claim(self, namespace: str, name: str) -> objects.Raw | None:
        """The PersistentVolumeClaim of this name."""
        return self._claims_by_place.get((namespace, name))

    @functools.cached_property
    def endpoints(self) -> dict[tuple[str, str], set[str]]:
        """The ready endpoints of each Service by namespace and name: UIDs of pods, addresses where there is none."""
        return {service: {one for one, ready in found.items() if ready} for service, found in self.listed.items()}

    @functools.cached_property
    def listed(self) -> dict[tuple[str, str], dict[str, bool]]:
        """All endpoints of each Service in the same way, with whether they are ready."""
        listed: dict[tuple[str, str], dict[str, bool]] = {}
        for piece in self.slices:
            meta = piece["metadata"]
            name = (meta.get("labels") or {}).get(SERVICE)
            if not name:
                continue
            found = listed.setdefault((meta["namespace"], name), {})
            for endpoint in piece.get("endpoints") or ():
                target = endpoint.get("targetRef") or {}
                one = target.get("uid") or ",".join(endpoint.get("addresses") or ())
                ready = (endpoint.get("conditions") or {}).get("ready") is not False
                found[one] = found.get(one, False) or ready
        return listed

    @functools.cached_property
    def _device_claims_by_place(self) -> dict[tuple[str, str], objects.Raw]:
        return {(c["metadata"].get("namespace", ""), c["metadata"]["name"]): c for c in self.device_claims}

    def device_claim(self, namespace: str, name: str) -> objects.Raw | None:
        """The ResourceClaim of this name."""
        return self._device_claims_by_place.get((namespace, name))

    @functools.cached_property
    def devices(self) -> dict[tuple[str, str, str], tuple[objects.Raw, objects.Raw]]:
        """Every device of the newest generation of its pool, by driver, pool and name, with what says its nodes."""
        specs: list[objects.Raw] = [found["spec"] for found in self.device_slices]
        newest: dict[tuple[str, str], int] = {}
        for spec in specs:
            pool = (spec["driver"], spec["pool"]["name"])
            newest[pool] = max(newest.get(pool, 0), spec["pool"].get("generation") or 0)
        return {
            (spec["driver"], spec["pool"]["name"], device["name"]): (
                device,
                device if spec.get("perDeviceNodeSelection") else spec,
            )
            for spec in specs
            if (spec["pool"].get("generation") or 0) == newest[spec["driver"], spec["pool"]["name"]]
            for device in spec.get("devices") or ()
        }

    @functools.cached_property
    def devices_by_node(self) -> dict[str, list[tuple[str, str, str]]]:
        """The devices of each node; those that are not of one node alone are under the empty name."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for place, (_device, where) in self.devices.items():
            found.setdefault(where.get("nodeName") or "", []).append(place)
        return found

    @functools.cached_property
    def devices_taken(self) -> frozenset[tuple[str, str, str]]:
        """The devices that claims have, by driver, pool and name; administrators' access takes none."""
        allocations = ((claim.get("status") or {}).get("allocation") or {} for claim in self.device_claims)
        results = (result for one in allocations for result in (one.get("devices") or {}).get("results") or ())
        return frozenset((r["driver"], r["pool"], r["device"]) for r in results if not r.get("adminAccess"))

    @functools.cached_property
    def _virtual_machines_by_uid(self) -> dict[str, objects.Raw]:
        return {machine["metadata"]["uid"]: machine for machine in self.virtual_machines}

    def virtual_machine(self, uid: str) -> objects.Raw | None:
        """The VirtualMachineInstance with this UID."""
        return self._virtual_machines_by_uid.get(uid)

    def owned_by(self, workload: objects.Workload) -> tuple[objects.Workload, ...]:
        """The workloads that this one controls, such as a Deployment's ReplicaSets."""
        return self._workloads_by_owner.get(workload.uid, ())

    def workload(self, uid: str) -> objects.Workload | None:
        """The workload with this UID; a namesake is another one."""
        return self._workloads_by_uid.get(uid)

    def workload_of(self, pod: objects.Pod) -> objects.Workload | None:
        """The top controller with a replica count; ``None`` for pods without one or with an unknown one."""
        found = self._workloads_by_uid.get(pod.owner.uid) if pod.owner else None
        while found and found.owner and found.owner.uid in self._workloads_by_uid:
            found = self._workloads_by_uid[found.owner.uid]
        return found

    def pods_of(self, workload: objects.Workload) -> tuple[objects.Pod, ...]:
        """The workload's own pods, finished ones left out."""
        return self._pods_by_workload.get(workload.uid, ())

    def autoscaler_of(self, workload: objects.Workload) -> objects.Autoscaler | None:
        return self._scalers_by_target.get((workload.namespace, workload.kind, workload.name))
