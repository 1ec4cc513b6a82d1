# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of progress from a task to the screen, and whether anybody wants them there."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs

VARIABLE = "kubeops_progress"
ENVIRONMENT = "KUBEOPS_PROGRESS"
FOR_MACHINES = frozenset({"json", "jsonl", "junit", "ndjson", "null", "tree"})
"""Stdout callbacks, without collection, whose output programs read, or that print nothing."""


class Line(str):
    """A line of progress: text for whatever prints it, with its event for the
    callback ``maintenance``.

    Ansible's ``Display`` pickles what a worker prints, and so the event reaches the main
    process with the text.
    """

    event: dict[str, str]

    @classmethod
    def of(cls, event: specs.Event) -> Line:
        """The line of an event; its keys are the fields of the event."""
        line = cls(specs.line(event))
        line.event = dataclasses.asdict(event)
        return line


def wanted(asked: t.Any, environ: t.Mapping[str, str], callback: str) -> bool:
    """Whether to print progress: as the variable ``kubeops_progress`` says (``asked``),
    or else the environment.

    By default wherever the stdout callback prints for people:
    our lines between its own would make JSON invalid.
    """
    for answer in (asked, environ.get(ENVIRONMENT)):
        if answer not in (None, ""):
            return bool(boolean(answer, strict=False))
    return callback.rpartition(".")[2] not in FOR_MACHINES
