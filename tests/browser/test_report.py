# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports as people see them: in both color schemes, on a telephone and on a wide screen, without a network."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.tests.browser import chromium, reports

Written = t.Callable[[str], Path]

SECTIONS = {
    "plan": {"Pods by node"},
    "blocked": {"To look at", "What would unblock it", "Pods by node"},
    "run": {"Nodes over time", "Ready endpoints per Service", "Workloads that were protected", "Pods by node"},
    "failed": {"To look at", "Nodes over time", "What was refused, and why", "Findings of the plan", "Pods by node"},
    "dark": {"To look at", "Ready endpoints per Service", "What was refused, and why", "Given back, and kept"},
}
"""What each of the small reports shows, at least."""
TITLES = "return [...document.querySelectorAll('h2')].map((title) => title.innerText)"
OPEN = "for (const details of document.querySelectorAll(arguments[0])) details.open = true"
VISIBLE = "return [...document.querySelectorAll(arguments[0])].filter((row) => row.checkVisibility()).length"
DRAWN = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.getBoundingClientRect().width).length"

FAULTY = """<!DOCTYPE html><title>Faulty</title><style>
p{width:3000px;color:#888;background:#fff}
td{overflow-wrap:anywhere}td+td{width:100%}
section{width:0;overflow:hidden}
</style>
<p>Wide and pale</p>
<table><tr><td>evicted<td>A long sentence that takes all the room there is, so that none is left for the word beside it,
which is in as many lines as it has letters, although a line is enough for it.</table>
<section><h2>Hidden</h2></section>
<script src="http://127.0.0.1:9/nobody.js"></script>
<script>console.error("broken")</script>
"""


def of(folder: Path) -> dict[str, t.Any]:
    found: dict[str, t.Any] = json.loads((folder / "report.json").read_text())
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1000, 1400])
@pytest.mark.parametrize("name", SECTIONS)
def test_a_report_can_be_read(
    browser: chromium.Browser, written: Written, name: str, width: int, scheme: chromium.Scheme
) -> None:
    browser.open(written(name) / "report.html", width, scheme)
    browser.ask(OPEN, "details")
    assert browser.faults() == {}
    assert set(browser.ask(TITLES)) >= SECTIONS[name]
    assert browser.ask("return innerWidth") == width
    paper = browser.ask("return getComputedStyle(document.body).backgroundColor")
    assert (chromium.contrast(paper, "rgb(255, 255, 255)") < 1.2) == (scheme == "light")


def test_each_kind_of_fault_is_found(browser: chromium.Browser, tmp_path: Path) -> None:
    page = tmp_path / "faulty.html"
    page.write_text(FAULTY)
    browser.open(page, 1000, "light")
    found = browser.faults()
    assert found.pop("wider than the window")
    assert found.pop("words broken") == ["evicted"]
    assert found.pop("hard to read") == ["3.54: 'Wide and pale', rgb(136, 136, 136) on rgb(255, 255, 255)"]
    assert found.pop("sections hidden") == ["Hidden"]
    assert found.pop("loaded") == ["http://127.0.0.1:9/nobody.js"]
    assert any("broken" in line for line in found.pop("console"))
    assert found == {}


def test_the_chart_of_a_run_is_drawn(browser: chromium.Browser, written: Written) -> None:
    browser.open(written("run") / "report.html", 1400, "light")
    report = of(written("run"))
    spans = sum(len(node["spans"]) for node in report["nodes"])
    watches = sum(len(service["watches"]) for service in report["services"])
    assert browser.ask(DRAWN, "[aria-labelledby=nodes] .lane rect") == spans
    assert browser.ask(DRAWN, "[aria-labelledby=services] path.edge") == watches


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
@pytest.mark.parametrize("name", ["plan-300", "run-300"])
def test_a_report_of_300_nodes_opens_whole(
    browser: chromium.Browser, written: Written, name: str, width: int, scheme: chromium.Scheme
) -> None:
    browser.open(written(name) / "report.html", width, scheme)
    browser.ask(OPEN, "details:not(.node), details.node:last-of-type")
    assert browser.faults() == {}
    moving = [pod for pod in of(written(name))["pods"] if pod["route"] != "skip"]
    assert len(moving) == reports.MANY * reports.PODS
    assert browser.ask(VISIBLE, "details.node") == reports.MANY
    # A page has room for 5 pods of each of so many nodes; of these the last is open.
    assert browser.ask("return document.querySelectorAll('tr[data-find]').length") == reports.MANY * 5
    assert browser.ask(VISIBLE, "tr[data-find]") == 5
    assert browser.ask(VISIBLE, "[aria-labelledby=nodes] tbody tr") == (reports.MANY if name == "run-300" else 0)


@pytest.mark.parametrize("name", ["plan-300", "run-300"])
def test_a_node_is_found_among_300(browser: chromium.Browser, written: Written, name: str) -> None:
    browser.open(written(name) / "report.html", 1400, "light")
    browser.driver.find_element("css selector", "input").send_keys("worker-217")
    assert browser.ask(VISIBLE, "details.node") == 1
    assert browser.ask(VISIBLE, "tr[data-find*=worker-217]") == browser.ask(VISIBLE, "tr[data-find]") == 5
