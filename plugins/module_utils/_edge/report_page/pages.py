# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page import view
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page.template import (
    PAGE,
    SCRIPT,
    STYLE,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.model import VERSION, Report

try:
    import jinja2

    MISSING = ""
except ImportError as error:
    MISSING = str(error)


class NoTemplates(RuntimeError):
    """Jinja is missing where the report is written; ansible-core brings it on every controller."""


def render(report: Report) -> str:
    """The page; equal reports give equal pages.

    Raises:
        NoTemplates: Jinja cannot be imported.
    """
    if MISSING:
        raise NoTemplates(
            f"report.html needs Jinja2, which is not there ({MISSING}). ansible-core brings it: write the "
            "report on the controller (connection: local, with ansible_playbook_python)."
        )
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    ).from_string(PAGE.lstrip())
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    constants: dict[str, t.Any] = {"style": STYLE, "script": SCRIPT, "version": VERSION}
    return template.render(**constants, script_hash=f"sha256-{digest}", **view.page(report))
