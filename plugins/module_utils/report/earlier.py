# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is kept of the waves of a run, so that the report of a start that resumes it
tells of all of them.

They are sums, because a run may have thousands of nodes. Of a node that stays out, its own record
says since when, and how many pods have left it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, text
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import stored_objects


def of_wave(report: model.Report, mark: str) -> stored_objects.Sums:
    """What the report of a wave alone adds."""
    out = [node for node in report.nodes if node.spans and node.spans[-1].open]
    moved = report.totals.pods_moved - sum(node.pods_moved or 0 for node in out)
    dark: list[tuple[model.ServiceLine, model.Span]] = []
    for service in report.services:
        dark += [(service, span) for span in service.dark]
    longest = sorted(dark, key=lambda one: -one[1].seconds)[: stored_objects.MAX_DARK_SERVICES]
    return stored_objects.Sums(
        pods_moved=moved,
        # Their time goes on, and counts when they are back.
        out_seconds=0.0 if out else report.totals.out_seconds,
        watched_seconds=report.totals.watched_seconds,
        dark=tuple((one.namespace, one.name, *_instants(span)) for one, span in longest),
        mark=mark,
    )


def _instants(span: model.Span) -> tuple[str, str]:
    return t.cast("str", text.rfc3339(span.start)), t.cast("str", text.rfc3339(span.end))
