# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Writing ``report.html`` and ``report.json`` into a folder."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    run_file_writes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    build,
    page,
    run_traffic,
    text,
)


class ReportError(RuntimeError):
    """The report cannot be written; the text names the file, the cause and the remedy."""


def write_report(
    results: t.Iterable[t.Any], dest: str, *, check: bool, requests: t.Iterable[str] = ()
) -> dict[str, t.Any]:
    """Write the report of a run into the folder ``dest``; with ``check`` nothing is written.

    ``requests`` are files in which load generators say what became of their requests.

    Returns ``changed``, ``diff`` (which files change), ``html`` and ``json`` (absolute paths),
    ``summary`` (text for a terminal), ``verdict`` (a word), ``failed_nodes`` (names).

    Raises:
        ReportError: the folder or a file cannot be created, or Jinja is missing.
    """
    sent, unread = run_traffic.read_all(requests)
    report = build.build_report(results, check=check, sent=sent, unread=unread)
    folder = pathlib.Path(dest).expanduser().absolute()
    html, data = folder / "report.html", folder / "report.json"
    try:
        files = {html: page.render(report), data: _json(text.as_json(report))}
    except page.NoTemplates as error:
        raise ReportError(str(error)) from error
    before = {path: _content(path) for path in files}
    stale = [path for path in files if before[path] != files[path]]
    for path in stale if not check else ():
        try:
            run_file_writes.write(path, files[path])
        except OSError as error:
            raise _refused(path, error) from error
    return {
        "changed": bool(stale),
        "diff": [_diff(path, before[path], files[path]) for path in stale],
        "html": str(html),
        "json": str(data),
        "summary": text.summary_text(report, path="" if check else str(html)),
        "verdict": report.verdict,
        "failed_nodes": [node.name for node in report.nodes if node.outcome == "failed"],
    }


def _json(data: t.Mapping[str, t.Any]) -> str:
    """JSON with a line for each field, node, pod …: small at 3,000 pods, and still fit for grep."""

    def dumped(value: t.Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    fields = []
    for key, value in data.items():
        rows = ",\n  ".join(map(dumped, value)) if isinstance(value, list) else ""
        fields.append(f"{dumped(key)}: " + (f"[\n  {rows}\n ]" if rows else dumped(value)))
    return "{\n " + ",\n ".join(fields) + "\n}\n"


def _diff(path: pathlib.Path, before: str | None, after: str) -> dict[str, str]:
    """A report is too long to be read as a diff: each side is shown by its size and its hash."""
    shown = {"before_header": str(path), "after_header": str(path)}
    shown |= {"before": "absent\n", "after": ""}
    for key, content in (("before", before), ("after", after)):
        if content is not None:
            data = content.encode()
            shown[key] = f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}\n"
    return shown


def _content(path: pathlib.Path) -> str | None:
    """What is in a file now; ``None`` if it does not exist or is not UTF-8."""
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: pathlib.Path, error: OSError) -> ReportError:
    return ReportError(
        f"{path} cannot be written: {error.strerror or error}. Give a folder as dest that "
        "you may write to, or make room on its disk."
    )
