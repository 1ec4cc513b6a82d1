# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pods that were let go by their ReplicaSets and are still on nodes that are given back: each is
its ReplicaSet's again, or evicted where that is gone and others are enough.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_listing,
    run_reconcile,
    run_requests,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import released
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_lock_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard_call

REMEDY = "Once others serve, delete it, or run recover -e recover_state=undone."

_DECIDING = ("pods", "deployments", "replica_sets", "slices", "selecting_services")


def found(work: run_guard_call.GuardCall) -> list[objects.Pod]:
    """Those on the call's nodes, with their owners read; needs the pods, without a scope."""
    pods: t.Sequence[objects.Pod] = work.snapshot.pods
    if work.scope:
        pods = run_listing.listed(work.ctx.cluster, "pods", scopes.ALL, labels=names.RELEASED)
    here = [
        pod
        for pod in pods
        if names.RELEASED in pod.labels and pod.node in work.nodes and not pod.deleting
    ]
    if here:
        work.enter({pod.namespace for pod in here})
        work.read("deployments")
    return here


def give_back(work: run_guard_call.GuardCall, pods: t.Iterable[objects.Pod]) -> None:
    """Undo or end each; a failure is that of its own node only."""
    for pod in pods:
        mark = released.mark_of(pod)
        owner = mark.owner(pod.namespace) if mark else pod.ref
        deployment = work.snapshot.workload(owner.uid)
        if mark and (deployment is None or deployment.deleting):
            # The garbage collector ends it.
            continue
        try:
            why = (
                _end(work, pod, mark) if mark else f"its annotation {names.RELEASED} cannot be read"
            )
        except (run_context.CallAborted, errors.ClusterError) as error:
            why = str(error)
        if why:
            text = f"{pod.ref} was let go by its ReplicaSet, and is still there: {why}"
            work.fail([pod.node], outcomes.WorkloadOutcome.NOT_GIVEN_BACK, str(owner), text, REMEDY)
        else:
            count = deployment.replicas if deployment else 0
            work.show(owner, (count, count), None, outcomes.WorkloadOutcome.GIVEN_BACK, (pod.node,))


def _end(work: run_guard_call.GuardCall, pod: objects.Pod, mark: released.Mark) -> str:
    """Give it back or evict it; why neither is possible."""
    record = work.guarded_nodes[pod.node].record
    lock = record.lock if record else ""
    prove_lock = functools.partial(work.prove_locks, (pod.node,))
    regain = functools.partial(work.locks.regain, pod.node)
    snapshot = _around(work, pod)
    if released.may_return(snapshot, mark):
        undoing = run_lock_policy.named(functools.partial(released.undoing, uid=pod.uid), lock)
        run_lock_policy.sent(
            lambda: run_reconcile.reconcile(work.ctx, pod.ref, undoing, prove_lock=prove_lock),
            regain,
        )
        return ""
    if why := released.lacks(snapshot, pod, mark):
        return why
    eviction = api_changes.eviction(pod, lock=lock)
    run_lock_policy.sent(
        lambda: run_requests.submit(work.ctx, eviction, prove_lock=prove_lock), regain
    )
    if not work.ctx.check:
        why = f"its ReplicaSet would not keep it, and others of {mark.owner(pod.namespace)} serve"
        work.ctx.tell(
            phases.What.EVICTED, why, node=pod.node, namespace=pod.namespace, name=pod.name
        )
    return ""


def _around(work: run_guard_call.GuardCall, pod: objects.Pod) -> snapshots.Snapshot:
    """What decides what may become of the pod, as it is now: what the call has read is from
    before its locks.
    """
    part = scopes.Slice(namespaces=(pod.namespace,))
    return snapshots.Snapshot.of(
        {name: run_listing.listed(work.ctx.cluster, name, part) for name in _DECIDING}
    )
