# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Results as lines for people: a plan as a table, a task's output, a failure with its cause."""

from __future__ import annotations

import collections
import enum
import pathlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import text
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import call_results

Answer = t.Mapping[str, t.Any]

ROWS, ROWS_OF_MANY = 20, 5
"""So many nodes have a row each, of more than these the first ``ROWS_OF_MANY``."""
MOVES = ("surge", "replace", "evict", "job", "wait", "refuse", "skip", "finished")
"""Routes, and deletions of objects alone, in the order in which the table names them."""
ROUTES = {"skip": "stay", "refuse": "blocked"}
"""What the table calls them otherwise."""
OUTPUTS = ("stderr", "stdout", "module_stderr", "module_stdout")
"""What a failed task may have said beside its message; modules that died have the latter two."""


def planned(plan: Answer) -> bool:
    """Whether a result of ``maintenance_plan`` has waves to show."""
    return bool(plan.get("waves")) and "pods" in plan


def plan_lines(plan: Answer, first: int = 1) -> list[str]:
    """The waves as a table, from the ``first`` on, and warnings before the first write."""
    routes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for pod in plan["pods"]:
        finished = pod.get("code") == "finished"
        routes[pod["node"]]["finished" if finished else pod["route"]] += 1
    rows = [("wave", "node", "pods", "forecast")]
    ranges = plan.get("wave_ranges") or [(None, None)] * len(plan["waves"])
    for number, (wave, took) in enumerate(zip(plan["waves"], ranges, strict=True), start=first):
        cells = (str(number), text.between(*took))
        for node in wave:
            counts = {ROUTES.get(route, route): routes[node][route] for route in MOVES}
            pods = ", ".join(f"{count} {route}" for route, count in counts.items() if count)
            rows.append((cells[0], node, pods or "none", cells[1]))
            cells = ("", "")
    hidden = len(rows) - 1 - ROWS_OF_MANY if len(rows) > ROWS + 1 else 0
    rows = rows[: len(rows) - hidden]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for wave, node, pods, time in rows:
        line = f"{wave:>{widths[0]}}  {node:<{widths[1]}}  {pods:<{widths[2]}}  {time:>{widths[3]}}"
        lines.append(line.rstrip())
    if hidden > 0:
        lines.append(f"… and {text.count(hidden, 'more node')}")
    return lines + call_results.notes(plan, "warning")


def troubles(answer: Answer) -> list[tuple[str, str]]:
    """What a call says of the nodes that failed: the message alone, and as a line."""
    return [
        (entry["message"], f"{entry['name']}  {entry.get('outcome', 'failed')}: {entry['message']}")
        for entry in call_results.failed(answer)
        if isinstance(entry, t.Mapping) and entry.get("message")
    ]


def message_lines(result: Answer) -> list[str]:
    """The message of a result: of ``debug``, ``fail``, or a failed module."""
    message = result.get("censored", result.get("msg", ""))
    lines = message if isinstance(message, (list, tuple)) else [message]
    return [line for entry in lines for line in str(entry).rstrip().split("\n")]


def output_lines(result: Answer, most: int) -> list[str]:
    """The last lines that a task printed, indented; ``most`` of each stream."""
    lines: list[str] = []
    for stream in ("stdout", "stderr"):
        output = result.get(stream)
        if isinstance(output, str) and output.strip():
            lines += [f"    {line}" for line in _last(output, most)]
    return lines


def _last(output: str, most: int) -> list[str]:
    lines = output.rstrip().split("\n")
    hidden = len(lines) - most
    if hidden <= 0:
        return lines
    return [f"… {text.count(hidden, 'line')} before, see -v", *lines[hidden:]]


def failure_lines(result: Answer, *, action: str, path: str, most: int) -> list[str]:
    """Below its headline: message, module with its code, what it printed, where it stands."""
    facts: list[tuple[str, list[str]]] = [("", message_lines(result))]
    code = result.get("rc")
    facts.append(("module", [action + (f", return code {code}" if code is not None else "")]))
    for name in OUTPUTS:
        output = result.get(name)
        if isinstance(output, str) and output.strip():
            facts.append((name.removeprefix("module_"), _last(output, most)))
    if path:
        facts.append(("task", [path]))
    lines: list[str] = []
    for name, said_lines in facts:
        indent = f"  {name:<7} " if name else "  "
        for line in filter(str.strip, said_lines):
            lines.append(f"{indent}{line}")
            indent = " " * len(indent)
    return lines


# What kind of task a task is, which decides what the screen shows of it.


COLLECTION = "kubeops.node_maintenance"
BUILT_IN = ("ansible.builtin.", "ansible.legacy.")
SILENT = frozenset(
    {
        *("add_host", "gather_facts", "group_by", "include_role", "include_tasks", "import_role"),
        *("import_tasks", "meta", "set_fact", "set_stats", "setup", "validate_argument_spec"),
    }
)
"""Actions of ansible-core that keep books: that they went well is no news."""
FOLDERS = ("playbooks", "roles")
"""Where the collection's own tasks are."""
SAMPLES = ("playbooks/tasks/demo_work.yml",)
"""Files of these folders that stand for the users' own tasks."""


class Kind(enum.Enum):
    """``ENGINE``: a module of ours, ``OURS``: other tasks of ours, ``THEIRS``: the user's."""

    SILENT = "silent"
    ENGINE = "engine"
    OURS = "ours"
    THEIRS = "theirs"


def short(action: str) -> str:
    """The action's name, without the collection if it is one of ansible-core."""
    return next((action.removeprefix(stem) for stem in BUILT_IN if action.startswith(stem)), action)


def own(path: str, home: str) -> bool:
    """Whether ``path``, a file or ``<file>:<line>``, is ours; ``home`` is the collection."""
    file = pathlib.Path(path.rpartition(":")[0] or path).resolve()
    root = pathlib.Path(home).resolve()
    if not path or not file.is_relative_to(root):
        return False
    place = file.relative_to(root)
    return place.parts[0] in FOLDERS and place.as_posix() not in SAMPLES


def kind(action: str, path: str, home: str) -> Kind:
    """The kind of a task by its (resolved) action and the place where it stands."""
    if short(action) in SILENT:
        return Kind.SILENT
    if action.startswith(f"{COLLECTION}."):
        return Kind.ENGINE if own(path, home) else Kind.THEIRS
    return Kind.OURS if own(path, home) else Kind.THEIRS
