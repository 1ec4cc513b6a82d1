# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why the tasks of the user cannot run on a host."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies

OMIT = "or omit its node from this run"


def reach(answers: replies.Answers, *, host: str) -> dict[str, str]:
    """``text``: what is missing between the controller and a module that runs on the host, and how to mend it.

    ``answers`` has the result that ``failed``, and what came of it without become: a command without Python
    (``connection``) and a ping with it (``modules``).
    """
    failed, modules = answers["failed"], answers["modules"]
    if answers["connection"].get("unreachable"):
        what = f"is unreachable for your tasks ({_why(failed)}). Correct its address, user or key in the inventory"
    elif "ping" not in modules:
        what = (
            f"answers, but no module of Ansible runs on it ({_why(modules, failed)}). Install Python there, or name it"
        )
        what += " with ansible_python_interpreter in the inventory"
    else:
        what = (
            f"answers, but nobody becomes root there ({_why(failed)}). Allow it to the user, for example with sudo, or"
        )
        what += " give the password as ansible_become_password"
    return {"text": f"Host {host} {what}, {OMIT}."}


def _why(*results: replies.Answer) -> str:
    return next((str(result["msg"]).rstrip(".") for result in results if result.get("msg")), "see the output above")
