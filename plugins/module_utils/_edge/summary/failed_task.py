# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why a task of the user failed, in one line for the last message, the report and the announcements."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report import read

OUTPUTS = ("stderr", "module_stderr", "stdout", "module_stdout")
"""Where a module's result has what a program said, the most telling first."""
SAID = 500
"""Characters of it: errors come last."""
SHOWN = (None, "", "no", "false", "off", "0", "n", "f")
"""Values of ``no_log`` that hide nothing; until ansible-core 2.18 it may be a template that was not evaluated yet."""


def failed_task(answers: replies.Answers, *, host: str, name: str = "", no_log: t.Any = None) -> dict[str, str]:
    """``text``: which task failed on which host, with its message and the end of what its program said.

    ``answers`` has the ``result`` of the task. Of one with ``no_log`` nothing is told.
    """
    task = f"Task {read.text(name)!r}" if name else "A task"
    what = f"{task} failed on host {host}"
    result = answers["result"]
    if (no_log if no_log is None else str(no_log).lower()) not in SHOWN or result.get("_ansible_no_log"):
        return {"text": f"{what}; no_log hides why."}
    return {"text": f"{what}: {_why(result)}"}


def _why(result: replies.Answer) -> str:
    """Of a loop: why the first of its items failed."""
    failed = [each for each in result.get("results") or () if isinstance(each, t.Mapping) and each.get("failed")]
    if failed:
        if failed[0].get("_ansible_no_log"):
            return "no_log hides why."
        result = failed[0]
    line, code = read.text(result.get("msg")) or "see the output above", result.get("rc")
    if isinstance(code, int):
        line = f"{line.removesuffix('.')} (rc {code})"
    said = next(filter(None, (read.text(_end(result.get(key))) for key in OUTPUTS)), "")
    return line if not said or said in line else f"{line.removesuffix('.')}: {said}"


def _end(output: t.Any) -> str:
    """The end of an output, from the beginning of a line if there is one."""
    text = str(output or "").strip()
    if len(text) <= SAID:
        return text
    cut = text[-SAID:]
    return f"… {cut.partition(chr(10))[2] or cut}"
