# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The input of ``maintain`` on the copy: what was given, without all that would reach the world outside."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.rehearsal import notes, snapshot_files

PREFIX = "maintain_"
LEFT_OUT = frozenset(
    {
        *("run", "tasks", "tasks_timeout", "reboot", "reboot_checks", "reboot_files", "report_dir", "traffic"),
        *("before_node", "before_pod", "after_pod", "after_node", "fence_tasks", "fenced"),
        *("until", "window", "descheduler", "fallback", "job_wait", "backend"),
    }
)
"""Variables that are not used: hooks and announcements reach other systems, windows and runs belong to the real run,
and Koordinator does not act on the copy. Those of announcements and of Koordinator's controller are left out, too."""
QUIET = frozenset(
    {"report_dir", "traffic", "tasks", "tasks_timeout", "reboot", "reboot_checks", "reboot_files", "job_wait"}
)
"""Those of which nothing is said: the simulated work stands for them, or nothing depends on them."""
GROUPS = ("announce_", "koordinator_")


def _left_out(name: str) -> bool:
    return name in LEFT_OUT or name.startswith(GROUPS)


def of_copy(
    given: t.Mapping[str, t.Any],
    read: t.Mapping[str, t.Any],
    names: t.Mapping[str, str],
    *,
    report_dir: str,
    tasks: str,
) -> tuple[dict[str, t.Any], list[snapshot_files.Note]]:
    """The variables for the run on the copy, and what is not rehearsed of those that were given.

    ``given`` are the variables as the user gave them, by their full names, ``read`` is the input that was made of them.
    ``names`` are the names of nodes in the snapshot by their real ones. ``tasks`` is the file that simulates the work.
    """
    gaps: list[snapshot_files.Note] = []
    made: dict[str, t.Any] = {}
    for full, value in sorted(given.items()):
        name = full.removeprefix(PREFIX)
        if value in (None, "", [], {}, ()):
            continue
        if not _left_out(name):
            made[full] = value
        elif name not in QUIET:
            gaps.append(notes.note("variable", full))
    # The report of the copy looks like that of a run, and has to say what it is.
    reason = made.get("maintain_reason")
    made["maintain_reason"] = f"rehearsal: {reason}" if reason else "rehearsal"
    if read["nodes"]:
        made["maintain_nodes"] = [names.get(name, name) for name in read["nodes"]]
    if read["tasks"] or read["reboot"]:
        made |= {"maintain_tasks": tasks, "maintain_gates": list(read["gates"])}
        gaps.append(notes.note("tasks"))
    return {**made, "maintain_report_dir": report_dir}, gaps


def wrong(read: t.Mapping[str, t.Any], names: t.Mapping[str, str]) -> list[str]:
    """What of an input cannot be rehearsed, as sentences."""
    found = []
    if read["asks_hosts"]:
        found.append(
            "A rehearsal contacts no host, so it cannot ask which have to be rebooted. Name nodes or a selector."
        )
    if read["node_selector"] and any(real != name for real, name in names.items()):
        found.append(
            "maintain_node_selector selects nothing where labels are hashed. Name the nodes with maintain_nodes."
        )
    unknown = [name for name in read["nodes"] if name not in names and name not in names.values()]
    if unknown and not read["asks_hosts"]:
        found.append(f"The snapshot has no node {', '.join(unknown)}.")
    return found
