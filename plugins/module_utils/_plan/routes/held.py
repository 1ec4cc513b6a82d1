# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the record on a node says about other runs, before anybody tries to take its lock."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_records, objects, reasons


def recorded(node: objects.Node) -> bool:
    """Whether a maintenance has the node, be its record readable or not."""
    try:
        return node_records.record_of(node) is not None
    except node_records.BadRecordError:
        return True


def findings(node: objects.Node, leases: t.Iterable[objects.Raw], *, run: str, now: str) -> list[reasons.Finding]:
    """Whether another run has the node, and whether it seems to be alive.

    The lock itself is judged by watching it, when the node is taken. Here one look has to do, so
    ``renewTime`` counts although somebody else's clock wrote it: a wrong guess only refuses a minute
    too long, or leaves the refusal to the lock.
    """
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        return [_finding("bad_record", "blocker", node, str(error), "Repair or remove the annotation by hand.")]
    if record is None:
        return []
    where = f"run {record.run} of {record.by} (since {record.since}, step {record.step})"
    if run == record.run:
        message = f"Node {node.name} belongs to this run already and is taken up at step {record.step}."
        return [_finding("resumed", "info", node, message)]
    if record.step == "parked":
        message = f"Node {node.name} was left out of service by {where}; nobody works on it."
        return [_finding("parked", "info", node, message, "It is taken up as it is.")]
    if record.step == "out":
        return [
            _finding(
                "out",
                "blocker",
                node,
                f"Node {node.name} is out of service for the tasks of {where}, which may still be running on the host.",
                f"If they are not: run its playbook again with -e maintain_run={record.run}, "
                f"or `ansible-playbook kubeops.node_maintenance.recover -e recover_run={record.run}`.",
            )
        ]
    if alive(_lease_of(record, leases), now):
        return [
            _finding(
                "held",
                "blocker",
                node,
                f"Node {node.name} is held by {where}.",
                "Wait until it ends. If it was killed, its lock runs out within a minute.",
            )
        ]
    return [
        _finding(
            "abandoned",
            "warning",
            node,
            f"Node {node.name} was left behind by {where}; its lock has run out.",
            "It is taken over. To undo what that run did instead: "
            f"`ansible-playbook kubeops.node_maintenance.recover -e recover_run={record.run}`.",
        )
    ]


def alive(lease: objects.Raw | None, now: str) -> bool:
    """Whether a lease was renewed within its duration, by its own clock against ours."""
    spec: objects.Raw = (lease or {}).get("spec") or {}
    renewed, seconds = _time(spec.get("renewTime", "")), spec.get("leaseDurationSeconds") or 0
    today = _time(now)
    if not spec.get("holderIdentity") or renewed is None or today is None:
        return False
    return today - renewed < datetime.timedelta(seconds=seconds)


def _lease_of(record: node_records.Record, leases: t.Iterable[objects.Raw]) -> objects.Raw | None:
    namespace, slash, name = record.lease.partition("/")
    for lease in leases:
        meta = lease["metadata"]
        if slash and (meta.get("namespace"), meta["name"]) == (namespace, name):
            return lease
    return None


def _time(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def _finding(
    code: str, severity: reasons.Severity, node: objects.Node, message: str, remedy: str = ""
) -> reasons.Finding:
    return reasons.Finding(code, message, remedy, severity, f"Node {node.name}", (node.name,))
