# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values that a field of the schema takes, made from its description."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import (
    LABEL_SELECTOR,
    Field,
    Schema,
)

Raw = dict[str, t.Any]

ADDRESS = "127.0.0.1:PORT"
"""Whoever asks a real descheduler puts a free port there."""

_WORDS = ("alpha", "beta", "gamma")
_DURATIONS = ("45s", "5m", "1h30m", "1.5h", "1500ms")
_PERCENTS = {
    "highThresholds": (60, 90),
    "targetThresholds": (60, 90),
    "prodHighThresholds": (40, 59),
    "prodLowThresholds": (5, 20),
    "lowThresholds": (5, 39),
    "thresholds": (5, 39),
}


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes values for one version of a schema.

    ``turn`` says which of several alternatives is taken (the first word of a list, the first of two keys that
    exclude each other), ``share`` how many of the keys that may be left out are there.
    """

    schema: Schema
    turn: int
    chance: random.Random
    share: float = 1.0

    def value(self, field: Field, name: str = "") -> t.Any:
        """A value that is right; ``name`` is its key."""
        match field.type:
            case "object":
                return self._object(field)
            case "list":
                return self._list(field, name)
            case "map":
                return self._map(field, name)
            case "bool":
                return bool(self.turn % 2)
            case "int":
                return self._between(field, 2, 9)
            case "float":
                return float(self._between(field, *_PERCENTS.get(name, (10, 80))))
            case "string":
                return self._word(field)
            case "duration":
                return _DURATIONS[self.turn % len(_DURATIONS)]
            case "int_or_percent":
                return (3, "25%")[self.turn % 2]
            case "float_or_string":
                return (2.5, "10")[self.turn % 2]
            case "address":
                return ADDRESS
            case "selector_text":
                return "pool=a,tier!=db"
        return {}

    def _between(self, field: Field, low: int, high: int) -> int:
        low = max(low, int(field.minimum) if field.minimum is not None else low)
        return self.chance.randint(low, max(low, high))

    def _word(self, field: Field) -> str:
        words = [word for word in field.enum if word] or _WORDS
        return words[self.turn % len(words)]

    def _object(self, field: Field) -> Raw:
        if field.fields is LABEL_SELECTOR.fields:
            return label_selector(self.turn)
        if field.fields.keys() == {"value", "name"} and field.fields["value"].type == "int":
            return {"value": 1000} if self.turn % 2 == 0 else {"name": "system-cluster-critical"}
        barred = {key for group in field.exclusive for key in group if key != group[self.turn % len(group)]}
        made: Raw = {}
        for key, inner in field.fields.items():
            wanted = (
                inner.required
                or inner.nonempty
                or inner.note.startswith("required")
                or self.chance.random() < self.share
            )
            if wanted and key not in barred and not inner.forbidden and self.schema.knows(inner.since):
                made[key] = self.value(inner, key)
        for low, high in field.le:
            for name, number in made.get(low, {}).items():
                made[low][name] = min(number, made.get(high, {}).get(name, number))
        return made

    def _list(self, field: Field, name: str) -> list[t.Any]:
        item = t.cast("Field", field.item)
        count = max(1, int(field.minimum or 0))
        made = [self.value(item, name) for _unused in range(count)]
        if field.unique and field.unique != "*":
            for index, entry in enumerate(made):
                entry[field.unique] = _WORDS[index % len(_WORDS)]
        return made

    def _map(self, field: Field, name: str) -> Raw:
        item = t.cast("Field", field.item)
        keys = field.keys or (("app",) if item.type == "string" else ("cpu", "memory"))
        return {key: self.value(item, name) for key in keys}


def label_selector(turn: int) -> Raw:
    """A label selector: by labels, by an expression with values, or by one without."""
    operator = ("In", "Exists", "NotIn", "DoesNotExist")[turn % 4]
    expression: Raw = {"key": "example.com/tier", "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = ["web", ""]
    return {"matchLabels": {"pool": "a"}, "matchExpressions": [expression]}
