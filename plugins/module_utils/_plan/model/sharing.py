# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Equal parts of parsed objects, kept once.

The pods of a workload have the same labels, tolerations, requests and placement rules, all pods of a cluster a few
dozen of each between them, and a ReplicaSet has the template of its Deployment. Nothing parsed is ever changed, so
equal parts may be one.
"""

from __future__ import annotations

import hashlib
import marshal
import typing as t

Raw = t.Mapping[str, t.Any]
T = t.TypeVar("T")

MOST = 200_000
"""How many parts are remembered at most, for watches that go on for days: then it begins anew."""
SHORT = 32
_BY_CONTAINER = ("containers", "initContainers")


class Shared:
    """Gives for each part the first one that was equal to it, with the same order of keys."""

    def __init__(self) -> None:
        self._known: dict[t.Any, t.Any] = {}

    def part(self, part: T) -> T:
        """For what JSON can hold, and tuples of it."""
        key = marshal.dumps(t.cast("t.Any", part), 2)
        if len(key) > SHORT:
            key = hashlib.blake2b(key, digest_size=16).digest()
        return self.same(key, part)

    def same(self, key: t.Hashable, part: T) -> T:
        """For whatever is equal if this key is."""
        if len(self._known) >= MOST:
            self._known.clear()
        return t.cast("T", self._known.setdefault(key, part))

    def text(self, text: str) -> str:
        """For names that occur in many objects."""
        return self.same(text, text)

    def workload_spec(self, spec: Raw) -> Raw:
        """The spec of a workload: its template is shared whole, and by field with templates that differ a little."""
        template: Raw | None = spec.get("template")
        if not template:
            return spec
        inner = template.get("spec") or {}
        pieces = {
            key: self._pieces(value) if key in _BY_CONTAINER else self.part(value) for key, value in inner.items()
        }
        whole = {**template, "metadata": self.part(template.get("metadata") or {}), "spec": self.part(pieces)}
        return {**spec, "selector": self.part(spec.get("selector")), "template": whole}

    def _pieces(self, containers: t.Sequence[Raw] | None) -> t.Any:
        return [{key: self.part(value) for key, value in one.items()} for one in containers or ()]


class Apart(Shared):
    """For single objects: everything is left as it is."""

    def part(self, part: T) -> T:
        return part

    def same(self, key: t.Hashable, part: T) -> T:
        return part

    def text(self, text: str) -> str:
        return text

    def workload_spec(self, spec: Raw) -> Raw:
        return spec


APART = Apart()
