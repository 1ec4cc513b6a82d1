# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Results in two parts: what a playbook decides by, and the details,
in a file until the report is written.

A playbook keeps each result until its end, hands it to each of its next tasks, and a job's log has
it, too. Of 2,000 pods the details are a megabyte, and only the report and the plan on
the screen read them.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t
import uuid

VARIABLE = "_maintain_details_apart"
"""The variable by which the playbooks ask for results in two parts."""
KEY = "details"
"""In a result: the paths of the files with its details, and before them of calls that it goes on
from. Each holds a whole result.
"""
DETAILS = (
    "cluster",
    "pods",
    "budgets",
    "waits",
    "advice",
    "workloads",
    "services",
    "actions",
    "timeline",
    "steps",
)
OF_NODES = ("pods",)

Result = t.Mapping[str, t.Any]


def apart(result: dict[str, t.Any], folder: str) -> dict[str, t.Any]:
    """The result without its details, which are in a new file in the folder;
    with them if that cannot be written. Files that it names already come first.
    """
    brief = {key: value for key, value in result.items() if key not in DETAILS}
    if "nodes" in brief:
        brief["nodes"] = [_brief(entry) for entry in brief["nodes"]]
    path = pathlib.Path(folder) / f"details-{uuid.uuid4().hex}.json"
    try:
        path.write_text(json.dumps(result), encoding="utf-8")
    except OSError:
        return result
    return {**brief, KEY: [*result.get(KEY, ()), str(path)]}


def _brief(entry: Result) -> dict[str, t.Any]:
    """A node's result without its details; of its record only the run."""
    found = {key: value for key, value in entry.items() if key not in OF_NODES}
    if record := found.get("record"):
        found["record"] = {"run": record["run"]}
    return found


def told(result: Result) -> list[Result]:
    """The results of a wave's calls as they are kept for the report: where their details are."""
    paths = [{KEY: [path], "failed": False} for path in result.get(KEY) or ()]
    return [*paths, *([result] if "steps" in result else [])]


def whole(result: t.Any) -> t.Any:
    """The result with its details, which are in the last of its files, as far as they can be read;
    anything else as it is. What the result itself says counts.
    """
    if not isinstance(result, t.Mapping) or not result.get(KEY):
        return result
    found = _read(result[KEY][-1])
    if not found:
        return result
    both = {**found, **{key: value for key, value in result.items() if key != KEY}}
    if "nodes" in result:
        known = {(entry["name"], entry["outcome"]): entry for entry in found.get("nodes") or ()}
        both["nodes"] = [
            {**entry, **known.get((entry["name"], entry["outcome"]), {})}
            for entry in result["nodes"]
        ]
    return both


def _read(path: t.Any) -> dict[str, t.Any]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        read = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return read if isinstance(read, dict) else {}
    return {}
