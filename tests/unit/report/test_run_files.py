# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writing the report: at once, once, and not at all in check mode."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import page as pages
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.run_files import ReportError, write_report
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import Sample


def test_both_files_are_written_and_a_second_time_nothing(tmp_path: pathlib.Path) -> None:
    dest = tmp_path / "some" / "folder"
    first = write_report(Sample(fail_tasks=[1]).results, str(dest), check=False)
    assert first["changed"]
    assert first["failed_nodes"] == ["worker-02"]
    assert first["verdict"] == "never_dark"
    assert first["html"] in first["summary"]
    page, data = pathlib.Path(first["html"]), pathlib.Path(first["json"])
    assert page.parent == data.parent == dest
    assert json.loads(data.read_text())["version"] == 1
    assert [path.stat().st_mode & 0o777 for path in (page, data)] == [0o644, 0o644]
    before = [path.stat().st_mtime_ns for path in (page, data)]
    second = write_report(Sample(fail_tasks=[1]).results, str(dest), check=False)
    assert not second["changed"]
    assert second["diff"] == []
    assert [path.stat().st_mtime_ns for path in (page, data)] == before
    assert sorted(path.name for path in dest.iterdir()) == ["report.html", "report.json"]


def test_another_run_replaces_the_report(tmp_path: pathlib.Path) -> None:
    write_report(Sample(nodes=1).results, str(tmp_path), check=False)
    again = write_report(Sample(nodes=2).results, str(tmp_path), check=False)
    assert again["changed"]
    assert [entry["after_header"] for entry in again["diff"]] == [again["html"], again["json"]]
    assert all(entry["before"] != entry["after"] for entry in again["diff"])
    assert len(json.loads((tmp_path / "report.json").read_text())["nodes"]) == 2


def test_check_mode_writes_nothing_and_says_what_it_would(tmp_path: pathlib.Path) -> None:
    dest = tmp_path / "reports"
    result = write_report(Sample().results[:1], str(dest), check=True)
    assert result["changed"]
    assert [entry["before"] for entry in result["diff"]] == ["absent\n", "absent\n"]
    assert not dest.exists()
    assert result["html"] not in result["summary"]


def test_report_json_has_a_line_for_each_thing(tmp_path: pathlib.Path) -> None:
    write_report(Sample(nodes=2).results, str(tmp_path), check=False)
    lines = (tmp_path / "report.json").read_text().splitlines()
    assert sum('"uid": "uid-' in line for line in lines) == 2 * 16
    assert len([line for line in lines if "node-exporter" in line]) == 2


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: pathlib.Path, inside: bool) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with pytest.raises(ReportError, match=r"taken.*cannot be written.*Give a folder as dest"):
        write_report([], str(taken / "below" if inside else taken), check=False)
    assert taken.read_text() == "a file"


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(ReportError, match=r"report\.html cannot be"):
        write_report([], str(tmp_path), check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_link_is_replaced_and_not_written_through(tmp_path: pathlib.Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    dest = tmp_path / "reports"
    dest.mkdir()
    (dest / "report.html").symlink_to(precious)
    write_report([], str(dest), check=False)
    assert precious.read_text() == "mine"
    assert not (dest / "report.html").is_symlink()


def test_a_page_that_cannot_be_made_leaves_no_data_either(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MISSING", "No module named 'jinja2'")
    with pytest.raises(ReportError, match="Jinja2"):
        write_report([], str(tmp_path), check=False)
    assert list(tmp_path.iterdir()) == []
