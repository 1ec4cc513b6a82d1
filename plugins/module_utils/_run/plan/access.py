# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_access``: installs the fence in the API server, and says whether it is there."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    outcomes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import access, fence_manifests
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing

SERVED_WITHIN = 30.0
"""Seconds within which a kind that was just defined has to be served."""
LOOK_EVERY = 0.2

DONE = {
    "create": outcomes.AccessOutcome.CREATED,
    "patch": outcomes.AccessOutcome.CHANGED,
    "delete": outcomes.AccessOutcome.DELETED,
}
"""The outcome of an object after a change of this verb."""

State = t.Literal["present", "absent"]
Standing = t.Literal["present", "incomplete", "absent", "unknown"]


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Options of the module."""

    state: State = "present"


def install(ctx: context.Context, options: AccessOptions) -> context.Result:
    """Create, correct or delete the objects of the fence.

    Raises:
        StopRun: this API server has no such policies, or our namespace is missing and may not be created.
        ClusterError: the server refused, or could not be reached.
    """
    served = _served(ctx, fence_manifests.ADMISSION, "ValidatingAdmissionPolicy")
    wanted = fence_manifests.FENCE if served else ()
    if options.state == "present" and not served:
        raise context.StopRun(
            "no_admission_policies",
            "This API server has no ValidatingAdmissionPolicy in version v1, so it cannot hold the fence.",
            "Kubernetes 1.30 and newer have it. Everything else works without it.",
            "ValidatingAdmissionPolicy",
        )
    present = options.state == "present"
    decide, order = (access.present, wanted) if present else (access.absent, wanted[::-1])
    return context.Result({"objects": [_settled(ctx, obj, decide, options.state) for obj in order], "findings": []})


def standing(ctx: context.Context) -> Standing:
    """Whether the fence is there; ``unknown`` if these credentials may not read it.

    Raises:
        ClusterError: the API server cannot be reached.
    """
    try:
        found = [(obj, writing.read(ctx, access.ref_of(obj))) for obj in fence_manifests.FENCE]
    except errors.Forbidden:
        return "unknown"
    if all(raw is None for _obj, raw in found):
        return "absent"
    as_wanted = all(raw is not None and access.present(obj, raw) is None for obj, raw in found)
    return "present" if as_wanted else "incomplete"


def _settled(
    ctx: context.Context,
    wanted: objects.Raw,
    decide: t.Callable[[objects.Raw, objects.Raw | None], api_changes.Change | None],
    state: State,
) -> dict[str, t.Any]:
    """Bring one object to its state, and show it as the result has it."""
    target = access.ref_of(wanted)
    change = writing.write(ctx, target, lambda found: decide(wanted, found)).change
    if change and change.verb == "create" and target.kind == "CustomResourceDefinition":
        _await_served(ctx, names.FENCE_API, "NodeFence")
    outcome = DONE[change.verb] if change else outcomes.AccessOutcome(f"already_{state}")
    return {"kind": target.kind, "namespace": target.namespace, "name": target.name, "outcome": outcome.value}


def _await_served(ctx: context.Context, group_version: str, kind: str) -> None:
    """Until then, creating an object of the kind fails as if its namespace did not exist."""
    until = ctx.clock.now() + SERVED_WITHIN
    while not ctx.check and ctx.clock.now() < until and not _served(ctx, group_version, kind):
        ctx.clock.sleep(LOOK_EVERY)


def _served(ctx: context.Context, group_version: str, kind: str) -> bool:
    try:
        answer = ctx.cluster.send(verbs.api_resources(group_version), patience=act.PATIENCE)
    except errors.NotFound:
        return False
    return any(entry.get("kind") == kind for entry in answer.get("resources") or ())
