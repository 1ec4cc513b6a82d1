# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What load generators wrote, in the report; a file of anybody's may say anything."""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import run_traffic
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.run_files import write_report
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.traffic import FAILURES, LONGEST, lines
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import Sample, at

Json = dict[str, t.Any]

LOST = {"at": at(30), "kind": "refused", "count": 12}
WEB: Json = {
    "service": "shop/web",
    "via": "kube-proxy",
    "kind": "new",
    "sent": 4300,
    "failed": 12,
    "dark": 0.31,
    "slowest": 0.48,
    "failures": [LOST],
}


def verdict(*services: Json, began: str = at(-10), ended: str = at(600)) -> Json:
    return {"began": began, "ended": ended, "services": list(services)}


def written(folder: pathlib.Path, *found: t.Any) -> tuple[Json, Json, str]:
    """What a report of these files returns, its data, and its page."""
    paths = [folder / f"traffic{index}.json" for index in range(len(found))]
    for path, each in zip(paths, found, strict=True):
        path.write_text(each if isinstance(each, str) else json.dumps(each))
    told = write_report(Sample(nodes=1, pods=3).results, str(folder), check=False, requests=map(str, paths))
    page = pathlib.Path(told["html"]).read_text()
    return told, json.loads(pathlib.Path(told["json"]).read_text()), page


def test_failed_requests_stand_beside_the_ready_endpoints(tmp_path: pathlib.Path) -> None:
    kept = {**WEB, "service": "shop/db", "kind": "keep", "sent": 700, "failed": 0, "failures": []}
    told, data, page = written(tmp_path, verdict(kept, WEB))
    assert (told["verdict"], data["failed"]) == ("never_dark", False)
    assert "12 of 5,000 requests failed" in data["headline"]
    assert [(line["service"], line["sent"], line["failed"]) for line in data["traffic"]] == [
        ("shop/web", 4300, 12),
        ("shop/db", 700, 0),
    ]
    (line, _other) = data["traffic"]
    assert (line["unanswered_seconds"], line["slowest_seconds"], line["failures"]) == (0.31, 0.48, [LOST])
    assert (line["started"], line["ended"]) == (at(-10), at(600))
    assert data["traffic_faults"] == []
    for shown in (told["summary"], page):
        assert "shop/web" in shown.partition("To look at")[2]
    assert "Requests per Service" in page


def test_how_requests_failed_is_told_from_the_first_to_the_last(tmp_path: pathlib.Path) -> None:
    failures = [{"at": at(when), "kind": kind, "count": 2} for when, kind in ((30, "reset"), (45, "refused"))]
    *_beside, page = written(tmp_path, verdict({**WEB, "failures": [*failures, {**failures[1], "at": at(90)}]}))
    assert "4 refused, 2 reset, 02:58:33 to 02:59:33 UTC" in page
    *_beside, page = written(tmp_path, verdict(WEB))
    assert "12 refused, at 02:58:33 UTC" in page


def test_the_file_in_the_guide_is_one_that_is_read() -> None:
    guide = pathlib.Path(__file__).parents[3] / "docs" / "docsite" / "rst" / "guide_requests.rst"
    ((_before, text),) = re.findall(r"( +)(\{\n +\"began\".*?\n   \}\n)", guide.read_text(), re.DOTALL)
    (line,) = lines(json.loads(text))
    assert (line.service, line.failed, line.failures[0].count) == ("shop/web", 12, 12)


def test_no_failed_request_is_told_too(tmp_path: pathlib.Path) -> None:
    told, data, _page = written(tmp_path, verdict({"service": "shop/web", "sent": 4300, "failed": 0}))
    assert "0 of 4,300 requests failed" in data["headline"]
    assert "To look at" not in told["summary"]


def test_a_report_without_requests_says_nothing_of_them(tmp_path: pathlib.Path) -> None:
    told, data, page = written(tmp_path)
    assert (data["traffic"], data["traffic_faults"]) == ([], [])
    assert "request" not in data["headline"]
    assert "Requests per Service" not in page
    assert "traffic" not in told["summary"]


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ([], "began"),
        ({"began": at(0), "ended": "today", "services": []}, "ended"),
        ({"began": at(0), "ended": at(1), "services": {}}, "services"),
        (verdict(*[WEB] * 2001), "services"),
        (verdict(WEB, {**WEB, "service": ""}), "services[1].service"),
        (verdict({**WEB, "service": ["shop"]}), "services[0].service"),
        (verdict({**WEB, "sent": "4300"}), "services[0].sent"),
        (verdict({**WEB, "failed": True}), "services[0].failed"),
        (verdict({**WEB, "failed": -1}), "services[0].failed"),
        (verdict({**WEB, "failed": 4301}), "services[0].failed"),
        (verdict({**WEB, "dark": "long"}), "services[0].dark"),
        (verdict({**WEB, "slowest": float("nan")}), "services[0].slowest"),
        (verdict({**WEB, "failures": [1]}), "services[0].failures"),
        (verdict({**WEB, "failures": [{**LOST, "at": 7}]}), "services[0].failures[0].at"),
        (verdict({**WEB, "failures": [LOST, {**LOST, "count": 1.5}]}), "services[0].failures[1].count"),
    ],
)
def test_a_file_of_another_shape_is_named_with_the_place(tmp_path: pathlib.Path, content: t.Any, where: str) -> None:
    told, data, _page = written(tmp_path, verdict(WEB), content)
    (fault,) = data["traffic_faults"]
    assert fault["subject"] == str(tmp_path / "traffic1.json")
    assert where in fault["message"]
    assert fault["subject"] in told["summary"]
    assert [line["service"] for line in data["traffic"]] == ["shop/web"]
    # Found before the first write where it is there by then.
    (error,) = given(tmp_path / "traffic0.json", tmp_path / "traffic1.json")["errors"]
    assert "traffic1.json" in error
    assert where in error


def given(*paths: pathlib.Path) -> Json:
    return inputs.read({"maintain_nodes": ["n1"], "maintain_traffic": [str(path) for path in paths]}, "maintain")


def test_a_file_that_is_written_later_needs_its_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = given(pathlib.Path("later.json"))
    assert (found["errors"], found["traffic"]) == ([], [str(tmp_path / "later.json")])
    (error,) = given(tmp_path / "nowhere" / "later.json")["errors"]
    assert str(tmp_path / "nowhere") in error
    told, faults = run_traffic.read_all(found["traffic"])
    assert (told, [fault.subject for fault in faults]) == ([], found["traffic"])


@pytest.mark.parametrize(("began", "ended"), [(at(-900), at(-2)), (at(90_000), at(90_001))])
def test_requests_of_another_time_are_left_out(tmp_path: pathlib.Path, began: str, ended: str) -> None:
    _told, data, _page = written(tmp_path, verdict(WEB, began=began, ended=ended))
    assert data["traffic"] == []
    assert len(data["traffic_faults"]) == 1
    assert "request" not in data["headline"]


def test_a_text_in_it_is_one_bounded_line_and_no_markup(tmp_path: pathlib.Path) -> None:
    hostile = "shop\n\x1b[2J\u202e<script>alert(1)</script>"
    failures = [{"at": at(index), "kind": hostile, "count": 1} for index in range(FAILURES + 50)]
    found = {**WEB, "service": hostile, "via": "x" * 9999, "kind": hostile, "failed": 250, "failures": failures}
    told, data, page = written(tmp_path, verdict(found))
    (line,) = data["traffic"]
    assert len(line["failures"]) == FAILURES
    assert len(line["via"]) <= LONGEST + 3
    assert all(text.isprintable() for text in (line["service"], line["kind"], line["failures"][0]["kind"]))
    assert "<script>alert" not in page
    assert all(one.isprintable() for one in told["summary"].splitlines())
