# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The state of a cluster at one moment, and the questions that join several of its objects: the
workload of a pod, its budgets, its autoscaler.
"""

from __future__ import annotations

import collections
import functools
import itertools
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    admission,
    index_keys,
    indexes,
    names,
    objects,
    selectors,
)

SCALED = ("scales", "deployments", "replica_sets", "stateful_sets", "rollouts", "clone_sets")
"""The kinds with a replica count. The later ones win: a list of its own is fresher than scales,
which are read once.
"""


_OF_SERVICES = ("selectors_by_namespace", "services_of_revisions")
"""What is known once of all Services."""


@dataclass(slots=True)
class _Known:
    """Answers that were asked for once, by UID, or by namespace and name. Each index is there once
    it is complete, since several threads may ask at once.
    """

    indexes: dict[str, indexes.Index[t.Any, t.Any]] = field(default_factory=dict)
    counts_by_budget: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    top_of: dict[str, objects.Workload | None] = field(default_factory=dict)
    pods_of: dict[str, tuple[objects.Pod, ...]] = field(default_factory=dict)
    volumes_of: dict[str, t.Sequence[objects.Raw]] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment. Kinds that no decision needs may be left empty.

    The fields after ``autoscalers`` are raw objects; ``claims`` are PersistentVolumeClaims,
    ``volumes`` their PersistentVolumes, ``slices`` EndpointSlices, ``attachments``
    VolumeAttachments; ``device_*`` are ResourceClaims, ResourceSlices, DeviceClasses and
    DeviceTaintRules; ``csi_nodes``, ``storage_classes`` and ``namespaces`` are for the placement
    forecast. ``virtual_machines`` are KubeVirt's VirtualMachineInstances, ``kubevirts`` its own
    settings. ``webhooks`` are those without which no pod is created. ``warnings`` are what the
    newest Events say of objects that a drain waits for, by UID. ``selecting_services`` are
    Services, which are read with NetworkPolicies, ReplicationControllers, Kruise's DaemonSets and
    ``selecting_jobs``, the Jobs that have a selector of their own,
    where a label is taken off a pod.
    """

    nodes: t.Mapping[str, objects.Node] = field(default_factory=dict)
    pods: t.Sequence[objects.Pod] = ()
    budgets: t.Sequence[objects.Budget] = ()
    workloads: t.Sequence[objects.Workload] = ()
    autoscalers: t.Sequence[objects.Autoscaler] = ()
    daemon_sets: t.Sequence[objects.Raw] = ()
    claims: t.Sequence[objects.Raw] = ()
    volumes: t.Sequence[objects.Raw] = ()
    quotas: t.Sequence[objects.Raw] = ()
    limits: t.Sequence[objects.Raw] = ()
    slices: t.Sequence[objects.Raw] = ()
    leases: t.Sequence[objects.Raw] = ()
    attachments: t.Sequence[objects.Raw] = ()
    device_claims: t.Sequence[objects.Raw] = ()
    device_slices: t.Sequence[objects.Raw] = ()
    device_classes: t.Sequence[objects.Raw] = ()
    device_rules: t.Sequence[objects.Raw] = ()
    pod_groups: t.Sequence[objects.Raw] = ()
    eviction_requests: t.Sequence[objects.Raw] = ()
    csi_nodes: t.Sequence[objects.Raw] = ()
    storage_classes: t.Sequence[objects.Raw] = ()
    namespaces: t.Sequence[objects.Raw] = ()
    virtual_machines: t.Sequence[objects.Raw] = ()
    kubevirts: t.Sequence[objects.Raw] = ()
    selecting_services: t.Sequence[objects.Raw] = ()
    network_policies: t.Sequence[objects.Raw] = ()
    replication_controllers: t.Sequence[objects.Raw] = ()
    refused: t.Sequence[str] = ()
    kruise_daemon_sets: t.Sequence[objects.Raw] = ()
    selecting_jobs: t.Sequence[objects.Raw] = ()
    webhooks: t.Sequence[admission.Webhook] = ()
    warnings: t.Sequence[tuple[str, str]] = ()
    _known: _Known = field(default_factory=_Known, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, found: t.Mapping[str, t.Iterable[t.Any]]) -> Snapshot:
        """From parsed objects by kind, the kinds named as in ``PARSERS``."""
        return cls(
            **fields_of(
                {name: tuple(found.get(name, ())) for name in (*index_keys.PARSERS, "refused")}
            )
        )

    def after(
        self,
        found: t.Mapping[str, t.Sequence[t.Any]],
        changes: t.Mapping[str, t.Sequence[indexes.Change[t.Any]]],
    ) -> Snapshot:
        """What it is when some kinds have changed, of which there is now what was ``found``,
        as in ``fields_of``.

        ``changes`` are, by kinds too, what has become of single objects;
        of a kind without any all may be others.
        """
        by_field: dict[str, list[indexes.Change[t.Any]]] = {}
        for name in found.keys() & changes.keys():
            by_field.setdefault(_field_of(name), []).extend(changes[name])
        for name in found.keys() - changes.keys():
            by_field.pop(_field_of(name), None)
        fields = fields_of(
            {
                name: those
                for name, those in found.items()
                if name != "nodes" or name not in by_field
            }
        )
        if "nodes" in by_field:
            fields["nodes"] = _nodes_after(self.nodes, by_field["nodes"])
        return self.with_fields(fields, by_field)

    def with_fields(
        self,
        fields: t.Mapping[str, t.Any],
        changes: t.Mapping[str, t.Sequence[indexes.Change[t.Any]]] | None = None,
    ) -> Snapshot:
        """A copy with other objects in some fields; it looks anew only at these,
        or at what has changed in them.
        """
        new = replace(self, **t.cast("dict[str, t.Any]", fields))
        for name, index in self._known.indexes.copy().items():
            field_ = index_keys.keys(name)[0]
            if field_ not in fields:
                new._known.indexes[name] = index
            elif changes and field_ in changes:
                new._known.indexes[name] = index.after(changes[field_])
        if "selecting_services" not in fields:
            known = vars(self)
            vars(new).update({name: known[name] for name in _OF_SERVICES if name in known})
        return new

    def _by(self, name: str) -> indexes.Index[t.Any, t.Any]:
        found = self._known.indexes.get(name)
        if found is None:
            field_, keys = index_keys.keys(name)
            found = self._known.indexes[name] = indexes.Index.of(keys, getattr(self, field_))
        return found

    def has_node(self, name: str, uid: str) -> bool:
        """Whether the node exists; the same name with another UID is another node,
        an empty ``uid`` is unknown.
        """
        return name in self.nodes and uid in ("", self.nodes[name].uid)

    def pods_on(self, nodes: t.Collection[str]) -> tuple[objects.Pod, ...]:
        """The pods bound to one of the nodes; those of several nodes in the order of the list."""
        if len(nodes) == 1:
            return self._by("pods by node").get(*nodes)
        return tuple(p for p in self.pods if p.node in nodes)

    def budgets_of(self, pod: objects.Pod) -> tuple[objects.Budget, ...]:
        return tuple(
            b
            for b in self._selecting("budgets by label", pod.namespace, pod.labels)
            if b.covers(pod)
        )

    def _selecting(self, index: str, namespace: str, labels: t.Mapping[str, str]) -> list[t.Any]:
        """The objects of an index whose selectors may select pods with these labels."""
        by_label = self._by(index)
        found = list(by_label.get((namespace, "", "")))
        for key, value in labels.items():
            found += by_label.get((namespace, key, value))
        return found

    def adopting(self, namespace: str, labels: t.Mapping[str, str]) -> t.Iterator[objects.Workload]:
        """The ReplicaSets that would take a pod with these labels and without a
        controller for their own.
        """
        for found in self._selecting("replica sets by label", namespace, labels):
            if not found.deleting and selectors.matches(found.selector, labels):
                yield found

    @functools.cached_property
    def selectors_by_namespace(
        self,
    ) -> t.Mapping[str, t.Mapping[index_keys.NamespacedName, t.Mapping[str, str]]]:
        """The selectors of the Services that were read, by their places."""
        found: dict[str, dict[index_keys.NamespacedName, t.Mapping[str, str]]] = {}
        for raw in self.selecting_services:
            namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
            found.setdefault(namespace, {})[namespace, name] = (raw.get("spec") or {}).get(
                "selector"
            ) or {}
        return found

    @functools.cached_property
    def services_of_revisions(
        self,
    ) -> t.Mapping[str, t.Sequence[tuple[index_keys.NamespacedName, t.Mapping[str, str]]]]:
        """Those of them that name the label by which ReplicaSets tell their pods
        from others, by namespace.
        """
        return {
            namespace: found
            for namespace, chosen in self.selectors_by_namespace.items()
            if (found := [one for one in chosen.items() if names.HASH in one[1]])
        }

    def budgets_of_revisions(self, namespace: str) -> tuple[objects.Budget, ...]:
        """The budgets whose selectors name that label."""
        return self._by("budgets of revisions").get(namespace)

    def places_by_revisions(self, workload: objects.Workload) -> bool:
        """Whether its pods must run beside others, or apart, by that label."""
        return bool(self._by("workloads placed by revisions").get(workload.uid))

    @property
    def policies_of_revisions(self) -> tuple[objects.Raw, ...]:
        """The NetworkPolicies that name the label by which ReplicaSets tell
        their pods from others.
        """
        return self._by("policies of revisions").get(names.HASH)

    def policies_reaching(self, namespace: str) -> t.Iterator[objects.Raw]:
        """The NetworkPolicies that may select pods of the namespace, as theirs or as peers."""
        by_namespace = self._by("policies by namespace")
        yield from by_namespace.get(namespace)
        yield from (
            raw for raw in by_namespace.get("") if raw["metadata"]["namespace"] != namespace
        )

    @property
    def places_of_budgets(self) -> indexes.Index[index_keys.NamespacedName, objects.Budget]:
        return self._by("budgets by place")

    def budget(self, namespace: str, name: str) -> objects.Budget | None:
        return self.places_of_budgets.last((namespace, name))

    def selected(self, namespace: str, selector: objects.Raw | None) -> t.Iterator[objects.Pod]:
        """The namespace's pods that a label selector matches, found by its first label."""
        exact: objects.Raw = (selector or {}).get("matchLabels") or {}
        if exact:
            key, value = next(iter(exact.items()))
            candidates = self._by(f"label {key}").get((namespace, value))
        else:
            candidates = self._by("pods by namespace").get(namespace)
        return (p for p in candidates if selectors.matches(selector, p.labels))

    def ready_of(self, budget: objects.Budget) -> int:
        """How many pods of the budget are ready and stay."""
        return self._counts_of(budget)[0]

    def wanted_of(self, budget: objects.Budget) -> int:
        """How many pods the workloads of the budget's pods want,
        those among them that are not there yet, too.
        """
        return self._counts_of(budget)[1]

    def _counts_of(self, budget: objects.Budget) -> tuple[int, int]:
        """Counted once, however many of its pods ask."""
        place = (budget.namespace, budget.name)
        if place not in self._known.counts_by_budget:
            covered = list(self.selected(budget.namespace, budget.selector))
            workloads = {w.uid: w for pod in covered if (w := self.workload_of(pod))}
            ready = sum(1 for p in covered if p.ready and not p.deleting and not p.finished)
            self._known.counts_by_budget[place] = ready, sum(w.replicas for w in workloads.values())
        return self._known.counts_by_budget[place]

    def pod(self, uid: str) -> objects.Pod | None:
        return self._by("pods by uid").last(uid)

    def owned_pods(self, uid: str) -> tuple[objects.Pod, ...]:
        """The pods that name the object with this UID as their controller."""
        return self._by("pods by owner").get(uid)

    def claim(self, namespace: str, name: str) -> objects.Raw | None:
        return self._by("claims by place").last((namespace, name))

    def volume(self, name: str) -> objects.Raw | None:
        return self._by("volumes by place").last(("", name))

    def device_claim(self, namespace: str, name: str) -> objects.Raw | None:
        return self._by("device_claims by place").last((namespace, name))

    def virtual_machine(self, uid: str) -> objects.Raw | None:
        return self._by("virtual_machines by uid").last(uid)

    def daemon_set(self, uid: str) -> objects.Raw | None:
        return self._by("daemon_sets by uid").last(uid)

    @property
    def services(self) -> indexes.Index[index_keys.NamespacedName, objects.Raw]:
        """The EndpointSlices of each Service."""
        return self._by("slices by service")

    def slices_with(self, uid: str) -> tuple[objects.Raw, ...]:
        """The EndpointSlices of Services that list the pod with this UID."""
        return self._by("slices by pod").get(uid)

    def listed(self, service: index_keys.NamespacedName) -> dict[str, bool]:
        """All endpoints of a Service, with whether they are ready: UIDs of pods,
        addresses where there is none.
        """
        found: dict[str, bool] = {}
        for piece in self.services.get(service):
            for endpoint in piece.get("endpoints") or ():
                target = endpoint.get("targetRef") or {}
                one = target.get("uid") or ",".join(endpoint.get("addresses") or ())
                found[one] = found.get(one, False) or index_keys.ready(endpoint)
        return found

    def endpoints(self, service: index_keys.NamespacedName) -> set[str]:
        """The ready endpoints of a Service in the same way."""
        return {one for one, ready in self.listed(service).items() if ready}

    @functools.cached_property
    def devices(self) -> dict[tuple[str, str, str], tuple[objects.Raw, objects.Raw]]:
        """Every device of the newest generation of its pool, by driver, pool and name,
        with what says its nodes.

        The scheduler takes none from a pool of which slices are missing.
        """
        specs: list[objects.Raw] = [found["spec"] for found in self.device_slices]
        newest: dict[tuple[str, str], int] = {}
        slices = collections.Counter[tuple[str, str, int]]()
        for spec in specs:
            driver, name, generation = _pool_of(spec)
            newest[driver, name] = max(newest.get((driver, name), 0), generation)
            slices[driver, name, generation] += 1
        found = {}
        for spec in specs:
            driver, name, generation = _pool_of(spec)
            wanted = spec["pool"].get("resourceSliceCount") or 1
            if generation < newest[driver, name] or slices[driver, name, generation] < wanted:
                continue
            for device in spec.get("devices") or ():
                where = device if spec.get("perDeviceNodeSelection") else spec
                found[driver, name, device["name"]] = device, where
        return found

    @functools.cached_property
    def devices_by_node(self) -> dict[str, list[tuple[str, str, str]]]:
        """The devices of each node; those that are not of one node alone are
        under the empty name.
        """
        found: dict[str, list[tuple[str, str, str]]] = {}
        for place, (_device, where) in self.devices.items():
            found.setdefault(where.get("nodeName") or "", []).append(place)
        return found

    @functools.cached_property
    def devices_taken(self) -> frozenset[tuple[str, str, str]]:
        """The devices that claims have, by driver, pool and name;
        administrators' access takes none.
        """
        taken = set()
        for claim in self.device_claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                if not result.get("adminAccess"):
                    taken.add((result["driver"], result["pool"], result["device"]))
        return frozenset(taken)

    def owned_by(self, workload: objects.Workload) -> tuple[objects.Workload, ...]:
        """The workloads that this one controls, such as a Deployment's ReplicaSets."""
        return self._by("workloads by owner").get(workload.uid)

    def workload(self, uid: str) -> objects.Workload | None:
        """The workload with this UID; a namesake is another one."""
        return self._by("workloads by uid").last(uid)

    def workload_of(self, pod: objects.Pod) -> objects.Workload | None:
        """The top controller with a replica count; ``None`` for pods without one or
        with an unknown one.
        """
        if pod.owner is None:
            return None
        uid = pod.owner.uid
        if uid not in self._known.top_of:
            found = self.workload(uid)
            while found and found.owner and (above := self.workload(found.owner.uid)):
                found = above
            self._known.top_of[uid] = found
        return self._known.top_of[uid]

    def pods_of(self, workload: objects.Workload) -> tuple[objects.Pod, ...]:
        """The pods of which this is the top controller, finished ones left out."""
        found = self._known.pods_of.get(workload.uid)
        if found is None:
            pods = self._pods_below(workload.uid) if self._on_top(workload.uid) else ()
            found = self._known.pods_of[workload.uid] = tuple(
                pod for pod in pods if not pod.finished
            )
        return found

    def volumes_of(self, workload: objects.Workload) -> t.Sequence[objects.Raw]:
        """The volumes of these pods; of those that pods have in common the first."""
        found = self._known.volumes_of.get(workload.uid)
        if found is None:
            mounted = (volume for pod in self.pods_of(workload) for volume in pod.volumes)
            found = list({id(volume): volume for volume in mounted}.values())
            self._known.volumes_of[workload.uid] = found
        return found

    def _on_top(self, uid: str) -> bool:
        known = self.workload(uid)
        return known is not None and (known.owner is None or self.workload(known.owner.uid) is None)

    def _pods_below(self, uid: str) -> t.Iterator[objects.Pod]:
        yield from self.owned_pods(uid)
        for owned in dict.fromkeys(one.uid for one in self._by("workloads by owner").get(uid)):
            yield from self._pods_below(owned)

    def warning_of(self, uid: str) -> str:
        """What the newest Event says of the object, if it was read; empty otherwise."""
        return dict(self.warnings).get(uid, "")

    def unreadable_for(self, pod: objects.Pod) -> list[tuple[objects.Ref, str]]:
        """What cannot be read of what decides how the pod may leave, with the parts that cannot.

        That is the pod, its workload, its claims, and budgets and autoscalers of its namespace:
        they may be its own.
        """
        found: list[t.Any] = [pod]
        workload = self.workload_of(pod)
        if workload:
            found.append(workload)
        found += self._by("unreadable budgets").get(pod.namespace)
        found += self._by("unreadable autoscalers").get(pod.namespace)
        known = [(one.ref, one.unreadable) for one in found if one.unreadable]
        for name in pod.claims:
            claim = self.claim(pod.namespace, name) or {}
            if parts := claim.get("unreadable", ""):
                known.append((objects.Ref("PersistentVolumeClaim", name, pod.namespace), parts))
        return known

    def autoscaler_of(self, workload: objects.Workload) -> objects.Autoscaler | None:
        """The first autoscaler of the workload."""
        target = (workload.namespace, workload.kind, workload.name)
        return next(iter(self._by("autoscalers by target").get(target)), None)


def fields_of(found: t.Mapping[str, t.Sequence[t.Any]]) -> dict[str, t.Any]:
    """The fields of a snapshot with objects of these kinds; of those with a replica count
    all are given or none.
    """
    fields: dict[str, t.Any] = {
        name: those for name, those in found.items() if name not in ("nodes", *SCALED)
    }
    if "nodes" in found:
        fields["nodes"] = {node.name: node for node in found["nodes"]}
    if SCALED[0] in found:
        fields["workloads"] = tuple(itertools.chain.from_iterable(found[name] for name in SCALED))
    return fields


def _pool_of(spec: objects.Raw) -> tuple[str, str, int]:
    """Driver, name and generation of the pool that a ResourceSlice is a part of."""
    return spec["driver"], spec["pool"]["name"], spec["pool"].get("generation") or 0


def _field_of(kind: str) -> str:
    return "workloads" if kind in SCALED else kind


def _nodes_after(
    nodes: t.Mapping[str, objects.Node], changes: t.Iterable[indexes.Change[objects.Node]]
) -> dict[str, objects.Node]:
    after = dict(nodes)
    for old, new in changes:
        if new is not None:
            after[new.name] = new
        elif old is not None:
            after.pop(old.name, None)
    return after
