# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What kind of task a task is, which decides what the screen shows of it."""

from __future__ import annotations

import enum
import pathlib

COLLECTION = "kubeops.node_maintenance"
BUILT_IN = ("ansible.builtin.", "ansible.legacy.")
SILENT = frozenset({
    *("add_host", "gather_facts", "group_by", "include_role", "include_tasks", "import_role", "import_tasks"),
    *("meta", "set_fact", "set_stats", "setup", "validate_argument_spec"),
})  # fmt: skip
"""Actions of ansible-core that keep books: that they went well is no news, whoever wrote the task."""
FOLDERS = ("playbooks", "roles")
"""Where the collection's own tasks are."""
SAMPLES = ("playbooks/tasks/demo_work.yml",)
"""Files of these folders that stand for the users' own tasks."""


class Kind(enum.Enum):
    """``ENGINE`` calls a module of ours, ``OURS`` is another task of our playbooks and roles, ``THEIRS`` a user's."""

    SILENT = "silent"
    ENGINE = "engine"
    OURS = "ours"
    THEIRS = "theirs"


def short(action: str) -> str:
    """The action's name, without the collection if it is one of ansible-core."""
    return next((action.removeprefix(stem) for stem in BUILT_IN if action.startswith(stem)), action)


def own(path: str, home: str) -> bool:
    """Whether ``path``, a file or ``<file>:<line>``, is one of our playbooks or roles; ``home`` is the collection."""
    file, root = pathlib.Path(path.rpartition(":")[0] or path).resolve(), pathlib.Path(home).resolve()
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
