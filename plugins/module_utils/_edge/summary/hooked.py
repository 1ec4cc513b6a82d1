# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of the hooks of a wave so far, in the shape of one more call's result."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies


def hooked(answers: replies.Answers, hook: replies.Answer | None = None, wrong: str = "") -> dict[str, t.Any]:
    """The result ``so_far`` with what the other answers add: nodes that failed, and progress.

    With a ``hook`` these are about its task file alone, which failed if ``wrong`` says why.
    """
    failed = replies.failed(*([answers["so_far"]] if hook else answers.values()))
    if hook and wrong:
        about = f"Pod {hook['namespace']}/{hook['name']}" if hook.get("uid") else f"Node {hook['node']}"
        what = f"{about}: hook {hook['hook']}, rule {hook['rule']} (tasks {hook['tasks']}) failed:"
        message = f"{what} {replies.ended(wrong)} Mend that, then run the same command again."
        failed.append({**replies.failure(hook["node"], message, None), "hook": hook["hook"]})
    timeline = [event for answer in answers.values() for event in answer.get("timeline") or ()]
    return {"nodes": failed, "failed": bool(failed), "timeline": timeline}


def task_files(answers: replies.Answers, hook: str) -> dict[str, t.Any]:
    """``due``: the task files of a hook that are left to run, as listed by the answers for their nodes."""
    found = [each for entry in replies.entries(*answers.values()) for each in entry.get("hooks") or ()]
    files = [each for each in found if each["hook"] == hook and each["action"] == "tasks"]
    return {"due": [each for each in files if each["state"] != "done"]}
