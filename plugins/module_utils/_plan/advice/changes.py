# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Changes that people can make to a cluster or to a call, each with the command that makes it and its way back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, objects, snapshots


@dataclass(frozen=True, slots=True)
class Change:
    """One change: ``code`` is what is done, to the object of ``kind``, ``namespace`` and ``name`` (empty: to the call).

    ``command`` does it, or is the argument that does. ``back`` takes it back after the maintenance, empty where nothing
    is left.
    """

    code: str
    text: str
    command: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    back: str = ""

    def to_dict(self) -> dict[str, str]:
        """As modules return it."""
        return asdict(self)

    @classmethod
    def of(cls, code: str, ref: objects.Ref, text: str, command: str, back: str) -> Change:
        """To this object."""
        return cls(code, text, command, ref.kind, ref.namespace, ref.name, back)


def delete_budget(budget: objects.Budget, other: objects.Budget) -> Change:
    """Two budgets select the same pods, and the API server then evicts none of them."""
    text = f"Delete {budget.ref}, or narrow its selector: {other.ref} selects the same pods."
    what = f"pdb {budget.name} {_in(budget)}"
    command = f"kubectl get {what} -o yaml > {budget.name}.yaml && kubectl delete {what}"
    return Change.of("delete_budget", budget.ref, text, command, f"kubectl apply -f {budget.name}.yaml")


def relax_budget(snapshot: snapshots.Snapshot, budget: objects.Budget) -> Change:
    """The budget allows one disruption.

    By a maxUnavailable where its pods have a controller with a scale subresource, which its controller requires, else
    by a lower minAvailable.
    """
    selected = list(snapshot.selected(budget.namespace, budget.selector))
    covered = [pod for pod in selected if not pod.finished]
    # Of finished pods the controller has to exist, too. A status that could not be computed says nothing of its pods.
    scaled = bool(covered) and not budget.sync_failed and all(map(snapshot.workload_of, selected))
    expected = len(covered) if budget.sync_failed else budget.expected or len(covered)
    rule = {"maxUnavailable": 1, "minAvailable": None}
    if not scaled:
        rule = {"maxUnavailable": None, "minAvailable": max(0, expected - 1)}
    shown = " and ".join(f"{key}: {'none' if value is None else value}" for key, value in rule.items())
    text = f"Let {budget.ref} allow one disruption ({shown})."
    before = {"maxUnavailable": budget.max_unavailable, "minAvailable": budget.min_available}
    command, back = (
        f"kubectl patch pdb {budget.name} {_in(budget)} --type=merge -p '{_compact(each)}'" for each in (rule, before)
    )
    return Change.of("relax_budget", budget.ref, text, command, back)


def allow_interruption(ref: objects.Ref) -> Change:
    """The consent of the workload's owner, or of the pod's if it has no workload that is known."""
    text = f"Allow that {ref} is interrupted: it is down until its pod serves again."
    annotate = f"kubectl annotate {_resource(ref)} {ref.name} -n {ref.namespace} {names.ALLOW_INTERRUPTION}"
    return Change.of("allow_interruption", ref, text, f"{annotate}=true", f"{annotate}-")


def choose_surge(workload: objects.Workload) -> Change:
    """Its owner chooses that it is surged, where its pods may not be let go."""
    text = f"Surge {workload.ref} instead of replacing its pod first: that changes its replicas for a while."
    before = workload.annotations.get(names.METHOD)
    annotate = f"kubectl annotate --overwrite {_resource(workload.ref)} {workload.name} {_in(workload)} {names.METHOD}"
    back = f"{annotate}={before}" if before else f"{annotate}-"
    return Change.of("choose_method", workload.ref, text, f"{annotate}=surge", back)


def add_replica(snapshot: snapshots.Snapshot, workload: objects.Workload) -> Change | None:
    """One more replica; ``None`` where it would be another member, or somebody else sets the count."""
    scaler, wanted = snapshot.autoscaler_of(workload), workload.replicas + 1
    if workload.owner or workload.kind == "StatefulSet" or (scaler and (scaler.owner or scaler.maximum < wanted)):
        return None
    text = f"Give {workload.ref} {wanted} replicas, if there is room for one more pod."
    scale = f"kubectl scale {_resource(workload.ref)} {workload.name} {_in(workload)} --replicas="
    command, back = f"{scale}{wanted}", f"{scale}{workload.replicas}"
    if scaler:
        text = f"Raise the minimum of {scaler.ref} to {wanted}, if there is room for one more pod."
        patch = f"kubectl patch hpa {scaler.name} {_in(scaler)} --type=merge -p"
        command, back = (f"{patch} '{_compact({'minReplicas': number})}'" for number in (wanted, scaler.minimum))
    return Change.of("add_replica", workload.ref, text, command, back)


def uncordon(node: objects.Node) -> Change:
    """A node that somebody else keeps out of service takes pods again."""
    text = f"Uncordon {node.ref}, if nobody needs it out of service any more."
    return Change.of("uncordon", node.ref, text, f"kubectl uncordon {node.name}", f"kubectl cordon {node.name}")


def set_option(name: str, value: bool | int | str, text: str) -> Change:
    """An option of the plan, ``maintain_<name>`` in the playbooks."""
    shown = str(value).lower() if isinstance(value, bool) else value
    return Change("set_option", text, f"-e maintain_{name}={shown}", name=name)


def _compact(spec: objects.Raw) -> str:
    return json.dumps({"spec": spec}, separators=(",", ":"))


def _in(thing: objects.Object) -> str:
    return f"-n {thing.namespace}"


def _resource(ref: objects.Ref) -> str:
    """The kind as kubectl takes it, with its group where another one may have the same kind."""
    group = ref.api_version.partition("/")[0] if "/" in ref.api_version else ""
    return ref.kind.lower() if group in ("", "apps") else f"{ref.kind.lower()}.{group}"
