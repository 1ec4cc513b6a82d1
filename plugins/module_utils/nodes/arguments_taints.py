# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Taints in kubectl's syntax, or as mappings with ``key``, ``value``, ``effect`` and ``state``."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints


def read(name: str, value: t.Any, state: str = "present") -> list[dict[str, t.Any]]:
    """The taints as mappings, from kubectl's syntax, mappings, or a list of both;
    ``state`` is of those without one.

    Raises:
        BadOptions: taints are invalid; names all of them.
    """
    items: t.Iterable[t.Any] = (value,) if isinstance(value, (str, t.Mapping)) else value
    if isinstance(items, (bool, int, float)):
        raise option_values.BadOption(
            name,
            value,
            "taints such as dedicated=gpu:NoSchedule,old:NoExecute-, or a list of mappings",
        )
    raws: list[dict[str, t.Any]] = []
    for item in items:
        if isinstance(item, t.Mapping):
            raws.append({str(key): each for key, each in item.items() if each not in (None, "")})
        else:
            words = _words(str(item))
            # With ``exact``, a variable that turned out to be empty would remove all taints.
            if not words and not isinstance(value, str):
                raise option_values.BadOption(
                    name, list(items), "taints without an empty one; [] if no taint is meant"
                )
            raws += [_mapping(word, state) for word in words]
    faults = []
    for index, raw in enumerate(raws):
        known = raw.keys() <= {"key", "value", "effect", "state"}
        if not known or raw.get("state") not in (None, "present", "absent"):
            faults.append((f"{name}[{index}]", raw, "only key, value, effect and state"))
    found = node_taints.read(raws, state)[1]
    faults += [(fault.where.replace("taints", name, 1), *fault[1:]) for fault in found]
    if faults:
        raise option_values.BadOptions(
            (where, given, text.replace("taints[", f"{name}[")) for where, given, text in faults
        )
    return raws


def _words(text: str) -> tuple[str, ...]:
    """The taints of a text; a key with a space in it stays whole, and is refused."""
    words: dict[str, None] = {}
    for part in re.split(r"[,\n]", text):
        words |= dict.fromkeys(_between_spaces(part.strip()))
    return tuple(words)


def _between_spaces(part: str) -> t.Sequence[str]:
    words = part.split()
    if ":" not in part or all(":" in word or word.endswith("-") for word in words):
        return words
    return [part]


def _mapping(word: str, state: str) -> dict[str, t.Any]:
    raw = dict(node_taints.parse(word))
    # Without a trailing hyphen, the state of the call decides.
    return raw if state == "present" or raw["state"] == "absent" else {**raw, "state": None}
