# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations made from what the descheduler decodes, so that they hold what our schema may lack."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import Schema

from . import cases
from .mutants import GONE, Path, changed
from .types import Types

VALUES: tuple[Any, ...] = (True, 1, -1, 1.5, "x", "", "5m", "10%", [], [None], {}, {"x": None}, None)

ARGS: Path = ("profiles", 0, "pluginConfig", 0, "args")


def decoded(schema: Schema, types: Types) -> Iterator[cases.Case]:
    """At each path that Go decodes, in a right document: a value of every type, and a key that is misspelled."""
    for root, paths in types.items():
        prefix = () if root == schema.kind else ARGS
        args = None if root == schema.kind else cases.right_args(schema, root, 0)
        right = cases.with_plugin(schema, root, args) if args is not None else cases.root_of(schema)
        for path in paths:
            document, place = _reached(right, prefix, path)
            for value in VALUES:
                if cases.askable(place, value):
                    text = cases.text_of(changed(document, place, value))
                    yield cases.Case(f"decoded {root} {path}: {type(value).__name__} {value!r}", text)
            if isinstance(key := place[-1], str) and not path.endswith(("*", "]")):
                moved = changed(document, place, "x")
                for how, name in (("longer", f"{key}s"), ("shorter", key[:-1]), ("in another case", key.swapcase())):
                    text = cases.text_of(changed(changed(moved, (*place[:-1], name), "x"), place, GONE))
                    yield cases.Case(f"decoded {root} {path}: {how}", text)


def _reached(right: Any, prefix: Path, path: str) -> tuple[Any, Path]:
    """A copy of the document in which everything above the path is there, and the path's steps."""
    document = copy.deepcopy(right)
    words = re.findall(r"[^.\[\]]+|\[\]", path)
    steps: list[str | int] = [*prefix]
    at = document
    for step in prefix:
        at = at[step]
    for index, word in enumerate(words):
        step = 0 if word == "[]" else next(iter(at), "x") if word == "*" else word
        steps.append(step)
        if index + 1 < len(words):
            empty: Any = [] if words[index + 1] == "[]" else {}
            if isinstance(at, list):
                at.extend([empty] if not at else [])
            elif type(at.get(step)) is not type(empty):
                at[step] = empty
            at = at[step]
    return document, tuple(steps)
