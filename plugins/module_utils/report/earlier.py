# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is kept of the waves of a run, so that the report of a start that resumes it
tells of all of them.

They are sums, because a run may have thousands of nodes. Of a node that stays out, its own record
says since when, and how many pods have left it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, text

MOST_DARK = 20
"""Dark spans that are kept, the longest ones."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Of waves: pods that were moved, seconds in which nodes were out,
    and in which Services were watched meanwhile.

    ``dark`` are the spans in which Services were dark, each as namespace, name, start and end (RFC
    3339); ``mark`` names the wave that was added last.
    """

    pods_moved: int = 0
    out_seconds: float = 0.0
    watched_seconds: float = 0.0
    dark: tuple[tuple[str, ...], ...] = ()
    mark: str = ""

    def plus(self, other: Sums) -> Sums:
        """Both; the ``mark`` is that of the other."""
        return Sums(
            self.pods_moved + other.pods_moved,
            round(self.out_seconds + other.out_seconds, 3),
            round(self.watched_seconds + other.watched_seconds, 3),
            (*self.dark, *other.dark)[:MOST_DARK],
            other.mark,
        )


NOTHING = Sums()


def of_wave(report: model.Report, mark: str) -> Sums:
    """What the report of a wave alone adds."""
    out = [node for node in report.nodes if node.spans and node.spans[-1].open]
    moved = report.totals.pods_moved - sum(node.pods_moved or 0 for node in out)
    dark = [(service, span) for service in report.services for span in service.dark]
    longest = sorted(dark, key=lambda one: -one[1].seconds)[:MOST_DARK]
    return Sums(
        pods_moved=moved,
        # Their time goes on, and counts when they are back.
        out_seconds=0.0 if out else report.totals.out_seconds,
        watched_seconds=report.totals.watched_seconds,
        dark=tuple((one.namespace, one.name, *_instants(span)) for one, span in longest),
        mark=mark,
    )


def _instants(span: model.Span) -> tuple[str, str]:
    return t.cast("str", text.rfc3339(span.start)), t.cast("str", text.rfc3339(span.end))
