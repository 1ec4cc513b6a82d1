# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole reports of a few runs, as text and as the body of a page, beside those in the folder `recorded`.

The script of a page is always the same, so they are without it.

`KUBEOPS_RECORD=1` writes them anew: what a change does to a report is then in the diff of the commit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import build, page, page_template, text
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import Sample

RECORDED = Path(__file__).with_name("recorded")
RUNS = {
    "failed": Sample(nodes=3, pods=8, fail_tasks=[1]),
    "dark": Sample(nodes=1, pods=6, dark=True),
    "waves": Sample(nodes=4, pods=3, per_wave=2, out=3600.0),
}
BODY = re.compile(r"<body.*</body>", re.DOTALL)


def same(file: str, shown: str) -> bool:
    path = RECORDED / file
    if os.environ.get("KUBEOPS_RECORD"):
        path.write_text(shown, encoding="utf-8")
    return path.read_text(encoding="utf-8") == shown


@pytest.mark.parametrize("name", RUNS)
def test_a_report_is_what_was_recorded(name: str) -> None:
    report = build.build_report(RUNS[name].results)
    assert same(f"{name}.txt", text.summary_text(report, path="report.html"))
    body = BODY.search(page.render(report))
    assert body
    assert body.group().count(page_template.SCRIPT) == 1
    shown = body.group().replace(page_template.SCRIPT, "")
    assert same(f"{name}.html", shown.replace("><", ">\n<") + "\n")
