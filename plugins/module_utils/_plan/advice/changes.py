# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Changes that people can make to a cluster or to a call, each as what it would make of a snapshot.

The order in which several are made does not matter. What a controller then does is assumed to be done: a budget's
status is that of its new rule, a new pod runs.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    names,
    objects,
    pod_plan,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import forecast
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import planning

HOSTNAME = "kubernetes.io/hostname"
OF_THE_MOMENT = ("node.kubernetes.io/", f"{names.PREFIX}/")
"""Beginnings of keys of taints that a new node does not have: set by controllers and by maintenances."""
SHOWN = ("cpu", "memory", "pods")


@dataclass(frozen=True, slots=True)
class Situation:
    """A cluster, and what is planned there."""

    snapshot: snapshots.Snapshot
    wanted: planning.Wanted


Made: t.TypeAlias = "t.Callable[[Situation], Situation]"


@dataclass(frozen=True, slots=True)
class Change:
    """One change: ``code`` is what is done, to the object of ``kind``, ``namespace`` and ``name`` (empty: to the call).

    ``command`` does it, or is the argument that does; empty where there is no such line. ``back`` takes it back after
    the maintenance, empty where nothing is left. ``number`` tells equal changes apart, which are made one after the
    other.
    """

    code: str
    text: str
    command: str
    made: Made
    kind: str = ""
    namespace: str = ""
    name: str = ""
    number: int = 1
    back: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Equal for changes that do the same."""
        return (self.code, self.kind, self.namespace, self.name, self.number)

    def to_dict(self) -> dict[str, str]:
        """As modules return it."""
        return {key: getattr(self, key) for key in ("code", "kind", "namespace", "name", "text", "command", "back")}

    @classmethod
    def of(cls, code: str, ref: objects.Ref, text: str, command: str, made: Made, back: str = "") -> Change:
        """To this object."""
        return cls(code, text, command, made, ref.kind, ref.namespace, ref.name, back=back)


# -- budgets -----------------------------------------------------------------------------------------------------


def delete_budget(budget: objects.Budget, other: objects.Budget) -> Change:
    """Two budgets select the same pods, and the API server then evicts none of them."""

    def made(now: Situation) -> Situation:
        rest = tuple(one for one in now.snapshot.budgets if one.uid != budget.uid)
        return replace(now, snapshot=replace(now.snapshot, budgets=rest))

    text = f"Delete {budget.ref}, or narrow its selector: {other.ref} selects the same pods."
    what = f"pdb {budget.name} {_in(budget)}"
    command = f"kubectl get {what} -o yaml > {budget.name}.yaml && kubectl delete {what}"
    return Change.of("delete_budget", budget.ref, text, command, made, f"kubectl apply -f {budget.name}.yaml")


def relax_budget(snapshot: snapshots.Snapshot, budget: objects.Budget) -> Change:
    """The budget allows one disruption.

    By a maxUnavailable where its pods have a controller with a scale subresource, which its controller requires, else
    by a lower minAvailable.
    """
    selected = list(snapshot.selected(budget.namespace, budget.selector))
    covered = [pod for pod in selected if not pod.finished]
    expected, healthy = budget.expected or len(covered), budget.healthy
    if budget.sync_failed:
        expected, healthy = len(covered), snapshot.ready_of(budget)
    # Of finished pods the controller has to exist, too.
    scaled = bool(covered) and not budget.sync_failed and all(map(snapshot.workload_of, selected))
    rule: dict[str, int | None] = {"maxUnavailable": 1, "minAvailable": None}
    if not scaled:
        rule = {"maxUnavailable": None, "minAvailable": max(0, expected - 1)}

    def made(now: Situation) -> Situation:
        def relaxed(one: objects.Budget) -> objects.Budget:
            if one.uid != budget.uid:
                return one
            ruled = replace(one, max_unavailable=rule.get("maxUnavailable"), min_available=rule.get("minAvailable"))
            return _with_status(replace(ruled, sync_failed=""), healthy, expected)

        return replace(now, snapshot=replace(now.snapshot, budgets=tuple(map(relaxed, now.snapshot.budgets))))

    shown = " and ".join(f"{key}: {'none' if value is None else value}" for key, value in rule.items())
    patch = json.dumps({"spec": rule}, separators=(",", ":"))
    text = f"Let {budget.ref} allow one disruption ({shown})."
    patching = f"kubectl patch pdb {budget.name} {_in(budget)} --type=merge -p"
    before = {"maxUnavailable": budget.max_unavailable, "minAvailable": budget.min_available}
    back = json.dumps({"spec": before}, separators=(",", ":"))
    return Change.of("relax_budget", budget.ref, text, f"{patching} '{patch}'", made, f"{patching} '{back}'")


def _with_status(budget: objects.Budget, healthy: int, expected: int) -> objects.Budget:
    """As the disruption controller would see the budget with so many pods; it rounds percentages up."""
    if budget.max_unavailable is not None:
        desired = max(0, expected - (decoding.share(budget.max_unavailable, expected) or 0))
    else:
        desired = decoding.share(budget.min_available or 0, expected) or 0
    allowed = 0 if budget.sync_failed or budget.unruled else max(0, healthy - desired)
    return replace(budget, healthy=healthy, expected=expected, desired=desired, allowed=allowed)


# -- workloads and pods ------------------------------------------------------------------------------------------


def allow_interruption(snapshot: snapshots.Snapshot, plan: pod_plan.PodPlan) -> Change:
    """The consent of the workload's owner, or of the pod's if it has no workload that is known."""
    workload = snapshot.workload_of(plan.pod)
    ref = workload.ref if workload else plan.pod.ref

    def made(now: Situation) -> Situation:
        agreed = {names.ALLOW_INTERRUPTION: "true"}
        seen = now.snapshot
        if workload is None:
            pods = tuple(
                replace(one, annotations={**one.annotations, **agreed}) if one.uid == ref.uid else one
                for one in seen.pods
            )
            return replace(now, snapshot=replace(seen, pods=pods))
        workloads = tuple(
            replace(one, annotations={**one.annotations, **agreed}) if one.uid == ref.uid else one
            for one in seen.workloads
        )
        return replace(now, snapshot=replace(seen, workloads=workloads))

    text = f"Allow that {ref} is interrupted: it is down until its pod serves again."
    annotate = f"kubectl annotate {_resource(ref)} {ref.name} -n {ref.namespace} {names.ALLOW_INTERRUPTION}"
    return Change.of("allow_interruption", ref, text, f"{annotate}=true", made, f"{annotate}-")


def add_replica(now: Situation, plan: pod_plan.PodPlan) -> Change | None:
    """One more replica, on a node that stays; ``None`` where it fits on none, or somebody else sets the count."""
    workload = now.snapshot.workload_of(plan.pod)
    if workload is None or workload.owner or workload.kind == "StatefulSet":
        return None
    scaler = now.snapshot.autoscaler_of(workload)
    wanted = workload.replicas + 1
    if scaler and (scaler.owner or scaler.maximum < wanted):
        return None
    sequence = forecast.Sequence(now.snapshot, with_volumes=now.wanted.with_volumes)
    sequence.out(now.wanted.nodes)
    found = sequence.move(replace(plan, route="swap"))
    if not found.fits or found.victims or found.target is None:
        return None
    name = f"{workload.name}-more-{wanted}"
    pod = replace(plan.pod, name=name, uid=f"advice-{workload.uid}-{wanted}", node=found.target, ready=True)

    def made(now: Situation) -> Situation:
        seen = now.snapshot
        ours = {workload.uid, *(one.uid for one in seen.owned_by(workload) if one.replicas)}
        workloads = tuple(_with_one_more(one) if one.uid in ours else one for one in seen.workloads)
        budgets = tuple(
            _with_status(one, one.healthy + 1, one.expected + 1) if one.covers(pod) else one for one in seen.budgets
        )
        scalers = tuple(
            replace(one, minimum=max(one.minimum, wanted)) if scaler and one.uid == scaler.uid else one
            for one in seen.autoscalers
        )
        more = replace(seen, workloads=workloads, budgets=budgets, autoscalers=scalers, pods=(*seen.pods, pod))
        return replace(now, snapshot=more)

    text = f"Give {workload.ref} {wanted} replicas: there is room for one more on {found.target}."
    scale = f"kubectl scale {_resource(workload.ref)} {workload.name} {_in(workload)} --replicas="
    command, back = f"{scale}{wanted}", f"{scale}{workload.replicas}"
    if scaler:
        text = f"Raise the minimum of {scaler.ref} to {wanted}: there is room for one more pod on {found.target}."
        command, back = (
            f"kubectl patch hpa {scaler.name} {_in(scaler)} --type=merge -p "
            f"'{json.dumps({'spec': {'minReplicas': number}}, separators=(',', ':'))}'"
            for number in (wanted, scaler.minimum)
        )
    return replace(Change.of("add_replica", workload.ref, text, command, made, back), number=wanted)


def _with_one_more(workload: objects.Workload) -> objects.Workload:
    counts = {key: getattr(workload, key) + 1 for key in ("replicas", "ready", "available", "current")}
    return replace(workload, **counts)


# -- nodes -------------------------------------------------------------------------------------------------------


Shape: t.TypeAlias = "tuple[t.Mapping[str, str], t.Mapping[str, str], tuple[objects.Raw, ...]]"


def shape(node: objects.Node) -> Shape:
    """What another node of the same kind has in common with it: room, labels, taints."""
    labels = {key: value for key, value in node.labels.items() if key != HOSTNAME}
    taints = tuple(taint for taint in node.taints if not taint.get("key", "").startswith(OF_THE_MOMENT))
    return node.allocatable, labels, taints


def add_node(now: Situation, like: objects.Node) -> Change:
    """One more node of the same shape: room, labels and taints, and the pods that every such node has."""
    number = 1
    while _name_of(like, number) in now.snapshot.nodes:
        number += 1
    name = _name_of(like, number)
    _room, labels, taints = shape(like)
    node = replace(
        like,
        name=name,
        uid=f"advice-{name}",
        labels={**labels, HOSTNAME: name},
        annotations={},
        taints=taints,
        unschedulable=False,
        conditions={"Ready": "True"},
        lifecycle=(),
    )

    def made(now: Situation) -> Situation:
        seen = now.snapshot
        pods = tuple(
            replace(pod, name=f"{pod.name}-{number}", uid=f"{pod.uid}-{number}", node=name)
            for pod in seen.pods_on([like.name])
            if pod.mirror or (pod.owner and pod.owner.kind == "DaemonSet")
        )
        drivers = tuple(
            {**raw, "metadata": {**raw["metadata"], "name": name}}
            for raw in seen.csi_nodes
            if raw["metadata"]["name"] == like.name
        )
        more = replace(
            seen,
            nodes={**seen.nodes, name: node},
            pods=(*seen.pods, *pods),
            csi_nodes=(*seen.csi_nodes, *drivers),
        )
        return replace(now, snapshot=more)

    change = Change.of("add_node", like.ref, nodes_like(like, 1), "", made)
    return replace(change, number=number)


def nodes_like(node: objects.Node, number: int) -> str:
    """That so many nodes are added, in words."""
    room = ", ".join(f"{key} {node.allocatable[key]}" for key in SHOWN if key in node.allocatable)
    shape = f" ({room})" if room else ""
    return f"Add {'a node' if number == 1 else f'{number} nodes'} like {node.name}{shape}, with its labels and taints."


def _name_of(like: objects.Node, number: int) -> str:
    return f"{like.name}-more-{number}"


def uncordon(node: objects.Node) -> Change:
    """A node that somebody else keeps out of service takes pods again."""

    def made(now: Situation) -> Situation:
        taints = tuple(taint for taint in node.taints if taint.get("key") != names.UNSCHEDULABLE_TAINT)
        back = replace(node, unschedulable=False, taints=taints)
        return replace(now, snapshot=replace(now.snapshot, nodes={**now.snapshot.nodes, node.name: back}))

    text = f"Uncordon {node.ref}, if nobody needs it out of service any more."
    return Change.of("uncordon", node.ref, text, f"kubectl uncordon {node.name}", made, f"kubectl cordon {node.name}")


# -- the call ----------------------------------------------------------------------------------------------------


def set_option(name: str, value: bool | str, text: str) -> Change:
    """An option of the plan, ``maintain_<name>`` in the playbooks."""

    def made(now: Situation) -> Situation:
        changed: dict[str, t.Any] = {name: value}
        return replace(now, wanted=replace(now.wanted, choices=replace(now.wanted.choices, **changed)))

    shown = str(value).lower() if isinstance(value, bool) else value
    return Change("set_option", text, f"-e maintain_{name}={shown}", made, name=name)


def one_at_a_time() -> Change:
    """Waves of one node."""

    def made(now: Situation) -> Situation:
        return replace(now, wanted=replace(now.wanted, max_parallel=1))

    text = "Take out one node at a time."
    return Change("set_option", text, "-e maintain_serial=1", made, name="serial")


def leave_out(now: Situation, nodes: t.Collection[str]) -> Change | None:
    """The nodes take no part; ``None`` if no other would be left."""
    rest = tuple(name for name in now.wanted.nodes if name not in nodes)
    out = tuple(name for name in now.wanted.nodes if name in nodes)
    if not rest or not out:
        return None

    def made(now: Situation) -> Situation:
        left = tuple(name for name in now.wanted.nodes if name not in nodes)
        return replace(now, wanted=replace(now.wanted, nodes=left))

    text = f"Leave {', '.join(out)} out of this maintenance; -e maintain_on_blocked=skip does so by itself."
    return Change("leave_out", text, f"-e maintain_nodes={','.join(rest)}", made, kind="Node", name=",".join(out))


def _in(thing: objects.Object) -> str:
    return f"-n {thing.namespace}"


def _resource(ref: objects.Ref) -> str:
    """The kind as kubectl takes it, with its group where another one may have the same kind."""
    group = ref.api_version.partition("/")[0] if "/" in ref.api_version else ""
    return ref.kind.lower() if group in ("", "apps") else f"{ref.kind.lower()}.{group}"
