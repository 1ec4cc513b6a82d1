# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Asks the API server by dry runs whether admission webhooks or policies would refuse a maintenance."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    admission,
    hooks,
    names,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import trials
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, server_fence

UNANSWERED = "failed calling webhook"
"""How the API server says that one did not answer, and that this fails the request."""


def refused(
    ctx: context.Context,
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[pod_plan.PodPlan],
    choices: pod_plan.Choices,
    judges: t.Sequence[admission.Judge],
    rules: t.Iterable[hooks.Rule],
) -> tuple[list[reasons.Finding], t.Mapping[str, str]]:
    """The refusals, and why pods of workloads, by their UIDs, may not be let go.

    What budgets, quotas or missing rights refuse is found elsewhere.
    """
    wanted = trials.trials(snapshot, plans, choices, judges, rules) if judges else []
    some = wanted[: trials.MOST]
    with ctx.clock.pool(act.AT_ONCE, "dry runs") as pool:
        words = pool.map(functools.partial(_refusal, ctx), some)
        told = [(trial, text) for trial, text in zip(some, words, strict=True) if text]
    return [*trials.findings(told), *trials.untried(len(wanted))], trials.unreplaced(told)


def _refusal(ctx: context.Context, trial: trials.Trial) -> str:
    """What a webhook or policy says against the change; empty where none does."""
    change = trial.change
    if change.target.kind == "Pod":
        # Bounds of the account: what is done to a pod names a lock, which a plan does not hold.
        change = replace(change, fence=f"{names.node_lease_name('')}={names.TRIAL}")
    try:
        ctx.cluster.send(verbs.dry(act.request_for(change)), patience=act.NO_PATIENCE)
    except errors.DeniedByWebhook as error:
        bounds = trial.by_others and f".{names.PREFIX}'" in error.message
        return "" if bounds or server_fence.by_the_fence(error) else error.message
    except errors.ServerError as error:
        return error.message if UNANSWERED in error.message else ""
    except errors.ClusterError:
        return ""
    return ""
