# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which hosts have to be rebooted, and which nodes a run is for because of that."""

from __future__ import annotations

import typing as t
from pathlib import PurePosixPath

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import reboots

NO_SUCH_COMMAND = 127
_SAID = {True: "has to be rebooted", False: "does not have to be rebooted", None: "could not be asked"}


def reboot(answers: replies.Answers, *, host: str) -> dict[str, t.Any]:
    """Whether a host has to be rebooted, as ``required``, and why, as ``message``.

    ``answers`` are the results of looking for files (``files``), of ``needs-restarting`` and of ``uname -r``
    (``running``), and of finding the file ``modules.builtin`` of each kernel (``kernels``); those of checks that
    are not wanted were skipped.
    """
    files = [each["item"] for each in answers["files"].get("results") or () if each.get("stat", {}).get("exists")]
    code = answers["needs_restarting"].get("rc")
    found = reboots.reasons(
        files=files,
        needs_restarting=None if code == NO_SUCH_COMMAND else code,
        running=(answers["running"].get("stdout") or "").strip(),
        installed=[PurePosixPath(each["path"]).parent.name for each in answers["kernels"].get("files") or ()],
    )
    why = " and ".join(found)
    message = f"Host {host} {_SAID[bool(found)]}{f': {why}' if found else ''}."
    return {"required": bool(found), "message": message}


def choice(answers: replies.Answers, *, asked: t.Mapping[str, bool | None]) -> dict[str, list[str]]:
    """The ``nodes`` to maintain, because their hosts have to be rebooted, and ``lines`` about all that were asked.

    ``asked`` says by node whether its host has to be rebooted; ``None`` could not be asked, and its node is not left
    out. Neither is one that an earlier start of the run that is resumed (``listed``) has left out of service. The
    reasons are not repeated here: each host has said its own.
    """
    listed = answers["listed"]
    run = (listed.get("resumable") or {}).get("run")
    traces = [
        trace for trace in listed.get("traces") or () if trace["object"].startswith("Node ") and trace["run"] == run
    ]
    ours = {node for trace in traces for node in trace.get("nodes") or ()} if run else set()
    nodes, lines = [], []
    for node, required in asked.items():
        stays = required is False and node not in ours
        nodes += [] if stays else [node]
        lines.append(f"Host {node} {_SAID[required]}.{' Its node is not taken out of service.' if stays else ''}")
    return {"nodes": nodes, "lines": lines}
