# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why the tasks of the user cannot run on a host."""

from __future__ import annotations

import typing as t
from pathlib import PurePosixPath

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import reboots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import read
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import call_results

OMIT = "or omit its node from this run"


def reach(answers: call_results.Answers, *, host: str) -> dict[str, str]:
    """``text``: what is missing between the controller and a module that runs on the
    host, and how to mend it.

    ``answers`` has the result that ``failed``, and what came of it without become: a command
    without Python (``connection``) and a ping with it (``modules``).
    """
    failed, modules = answers["failed"], answers["modules"]
    if answers["connection"].get("unreachable"):
        what = f"is unreachable for your tasks ({_why(failed)})"
        remedy = "Correct its address, user or key in the inventory"
    elif "ping" not in modules:
        what = f"answers, but no module of Ansible runs on it ({_why(modules, failed)})"
        remedy = "Install Python there, or name it with ansible_python_interpreter in the inventory"
    else:
        what = f"answers, but nobody becomes root there ({_why(failed)})"
        remedy = "Allow it to the user, for example with sudo, or give the password as "
        remedy += "ansible_become_password"
    return {"text": f"Host {host} {what}. {remedy}, {OMIT}."}


def _why(*results: call_results.Answer) -> str:
    said = (str(result["msg"]).rstrip(".") for result in results if result.get("msg"))
    return next(said, "see the output above")


# Why a task of the user failed, in one line for the last message, the report and the announcements.


OUTPUTS = ("stderr", "module_stderr", "stdout", "module_stdout")
"""Where a module's result has what a program said, the most telling first."""
SAID = 500
"""Characters of it: errors come last."""
SHOWN = (None, "", "no", "false", "off", "0", "n", "f")
"""Values of ``no_log`` that hide nothing; a template is not evaluated until ansible-core 2.18."""


def failed_task(
    answers: call_results.Answers, *, host: str, name: str = "", no_log: t.Any = None
) -> dict[str, str]:
    """``text``: which task failed on which host, with its message and the end of
    what its program said.

    ``answers`` has the ``result`` of the task. Of one with ``no_log`` nothing is told.
    """
    task = f"Task {read.text(name)!r}" if name else "A task"
    what = f"{task} failed on host {host}"
    result = answers["result"]
    hidden = (no_log if no_log is None else str(no_log).lower()) not in SHOWN
    if hidden or result.get("_ansible_no_log"):
        return {"text": f"{what}; no_log hides why."}
    return {"text": f"{what}: {_task_message(result)}"}


def _task_message(result: call_results.Answer) -> str:
    """Why a task failed; of a loop why the first of its items did."""
    items = (each for each in result.get("results") or () if isinstance(each, t.Mapping))
    if failed := [each for each in items if each.get("failed")]:
        if failed[0].get("_ansible_no_log"):
            return "no_log hides why."
        result = failed[0]
    line = read.text(result.get("msg")) or "see the output above"
    code = result.get("rc")
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


# Which hosts have to be rebooted, and which nodes a run is for because of that.


NO_SUCH_COMMAND = 127
_SAID = {
    True: "has to be rebooted",
    False: "does not have to be rebooted",
    None: "could not be asked",
}


def reboot(answers: call_results.Answers, *, host: str) -> dict[str, t.Any]:
    """Whether a host has to be rebooted, as ``required``, and why, as ``message``.

    ``answers`` are the results of looking for files (``files``), of ``needs-restarting`` and of
    ``uname -r`` (``running``), and of finding the file ``modules.builtin`` of each kernel
    (``kernels``); those of checks that are not wanted were skipped.
    """
    looks = answers["files"].get("results") or ()
    code = answers["needs_restarting"].get("rc")
    kernels = (PurePosixPath(each["path"]) for each in answers["kernels"].get("files") or ())
    found = reboots.reasons(
        files=[each["item"] for each in looks if each.get("stat", {}).get("exists")],
        needs_restarting=None if code == NO_SUCH_COMMAND else code,
        running=(answers["running"].get("stdout") or "").strip(),
        installed=[path.parent.name for path in kernels],
    )
    why = " and ".join(found)
    message = f"Host {host} {_SAID[bool(found)]}{f': {why}' if found else ''}."
    return {"required": bool(found), "message": message}


def choice(
    answers: call_results.Answers, *, asked: t.Mapping[str, bool | None]
) -> dict[str, list[str]]:
    """The ``nodes`` to maintain, because their hosts have to be rebooted,
    and ``lines`` about all that were asked.

    ``asked`` says by node whether its host has to be rebooted; ``None`` could not be asked, and its
    node is not left out. Neither is one that an earlier start of the run that is resumed
    (``listed``) has left out of service. The reasons are not repeated here:
    each host has said its own.
    """
    listed = answers["listed"]
    run = (listed.get("resumable") or {}).get("run")
    ours = set[str]()
    for trace in listed.get("traces") or ():
        if run and trace["kind"] == "Node" and trace["run"] == run:
            ours.update(trace.get("nodes") or ())
    nodes, lines = [], []
    for node, required in asked.items():
        line = f"Host {node} {_SAID[required]}."
        if required is False and node not in ours:
            line += " Its node is not taken out of service."
        else:
            nodes.append(node)
        lines.append(line)
    return {"nodes": nodes, "lines": lines}


# What came of task files of hooks so far, in the shape of one more call's result.


def hooked(
    answers: call_results.Answers, *, hook: call_results.Answer, wrong: str = ""
) -> dict[str, t.Any]:
    """The result ``so_far`` with what the other answers add, which are about the task file of this
    hook: progress, and its node, which failed if ``wrong`` says why.
    """
    failed = call_results.failed(answers["so_far"])
    if wrong:
        about = f"Node {hook['node']}"
        if hook.get("uid"):
            about = f"Pod {hook['namespace']}/{hook['name']}"
        what = f"{about}: hook {hook['hook']}, rule {hook['rule']} (tasks {hook['tasks']}) failed:"
        message = f"{what} {call_results.ended(wrong)} Mend that, then run the same command again."
        failed.append({**call_results.failure(hook["node"], message, None), "hook": hook["hook"]})
    timeline = [event for answer in answers.values() for event in answer.get("timeline") or ()]
    return {"nodes": failed, "failed": bool(failed), "timeline": timeline}
