# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the record on a node says about other runs, before its lock is taken."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    node_records,
)


def recorded(node: objects.Node) -> bool:
    """Whether the node is in maintenance, whether or not its record can be parsed."""
    try:
        return node_records.record_of(node) is not None
    except node_records.BadRecordError:
        return True


def findings(
    node: objects.Node, leases: t.Iterable[objects.Raw], *, run: str, now: str
) -> list[reasons.Finding]:
    """Whether another run has the node, and whether it seems to be alive.

    When the node is taken, the lock is judged by watching it. Here it is read once, so
    ``renewTime`` counts; it and ``now`` are of the API server's clock.
    """
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        return [
            _finding(
                "bad_record",
                "blocker",
                node,
                str(error),
                "Repair or remove the annotation by hand.",
            )
        ]
    if record is None:
        return []
    if run == record.run:
        message = (
            f"Node {node.name} already belongs to this run, which resumes at step {record.step}."
        )
        return [_finding("resumed", "info", node, message)]
    if record.step == "parked":
        message = f"Node {node.name} was left out of service by {record.whose}; nobody works on it."
        return [_finding("parked", "info", node, message, "It is adopted as it is.")]
    recover = f"`{commands.undo(record.run)}`"
    if record.step == "out":
        message = (
            f"Node {node.name} is out of service for the tasks of {record.whose}, "
            "which may still run on the host."
        )
        remedy = node_records.once_over(record.run)
        return [_finding("out", "blocker", node, message, remedy)]
    namespace, _slash, name = record.lease.partition("/")
    leases = tuple(leases)
    if alive(objects.find(leases, namespace, name), now, leases):
        message = f"Node {node.name} is held by {record.whose}."
        remedy = "Wait until that run ends. If it was killed, its lock expires within a minute."
        return [_finding("held", "blocker", node, message, remedy)]
    message = f"Node {node.name} was abandoned by {record.whose}; its lock has expired."
    return [
        _finding(
            "abandoned",
            "warning",
            node,
            message,
            f"It is adopted. To undo that run instead: {recover}.",
        )
    ]


def alive(lease: objects.Raw | None, now: str, leases: t.Iterable[objects.Raw] = ()) -> bool:
    """Whether a lease, or its heartbeat among ``leases``, is not expired;
    others stamp theirs by their own clocks.
    """
    if lease is not None and any(lock_leases.heartbeat_of(lease)):
        lease = lock_leases.Seen.among(lease, leases).heartbeat
    if lease is None or not (lease.get("spec") or {}).get("holderIdentity"):
        return False
    seconds = lock_leases.since_renewal(lease, now)
    return seconds is not None and seconds < lock_leases.duration_of(lease)


def _finding(
    code: str, severity: reasons.Severity, node: objects.Node, message: str, remedy: str = ""
) -> reasons.Finding:
    return reasons.Finding(code, message, remedy, severity, f"Node {node.name}", (node.name,))
