# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    model,
    page_chart,
    page_template,
    read,
    text,
    timeline,
)

try:
    import jinja2

    MISSING = ""
except ImportError as error:
    MISSING = str(error)

FILTERS: dict[str, t.Callable[..., t.Any]] = {
    "against": text.against,
    "by_node": page_chart.by_node,
    "clock": text.clock,
    "counted": text.count,
    "duration": text.duration,
    "foreseen": text.foreseen,
    "goes_to": text.goes_to,
    "left": timeline.left,
    "place": text.place,
    "thousands": "{:,}".format,
    "to_move": text.to_move,
    "waves": text.waves,
    "how": text.how,
    "ways": text.ways,
    "worst": page_chart.worst,
}
GLOBALS: dict[str, t.Any] = {
    "Axis": page_chart.Axis,
    "failed_outcomes": read.FAILED_OUTCOMES,
    "headline": text.headline,
    "held_back": text.held_back,
    "pods_axis": page_chart.pods_axis,
    "script": page_template.SCRIPT,
    "script_hash": "sha256-"
    + base64.b64encode(hashlib.sha256(page_template.SCRIPT.encode()).digest()).decode(),
    "style": page_template.STYLE,
    "sent_and_failed": text.sent_and_failed,
    "subline": text.subline,
    "to_look": text.to_look,
    "without": text.without,
    "unwatched": text.unwatched,
    "version": model.VERSION,
    "when": text.when,
}


class NoTemplates(RuntimeError):
    """Jinja is missing where the report is written; ansible-core brings it on every controller."""


def render(report: model.Report) -> str:
    """The page; equal reports give equal pages.

    Raises:
        NoTemplates: Jinja cannot be imported.
    """
    if MISSING:
        raise NoTemplates(
            f"report.html needs Jinja2, which is not there ({MISSING}). ansible-core brings it: "
            "write the report on the controller (connection: local, with ansible_playbook_python)."
        )
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(GLOBALS)
    environment.tests.update(staying=timeline.stays, cleared=timeline.cleared)
    return environment.from_string(page_template.PAGE.lstrip()).render(report=report)
