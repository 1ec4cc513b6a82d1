# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Equal parts of parsed objects, kept once.

The pods of a workload have the same labels, tolerations, requests and placement rules, all pods of
a cluster a few dozen of each between them, and a ReplicaSet has the template of its Deployment.
Nothing parsed is ever changed, so equal parts may be one.
"""

from __future__ import annotations

import hashlib
import marshal
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    shapes,
)

Raw = t.Mapping[str, t.Any]
T = t.TypeVar("T")

MOST = 200_000
"""How many parts are remembered at most, for watches that go on for days: then it begins anew."""
SHORT = 32
_BY_CONTAINER = ("containers", "initContainers")


class Interner:
    """Gives for each part the first one that was equal to it, with the same order of keys."""

    def __init__(self) -> None:
        self._known: dict[t.Any, t.Any] = {}

    def part(self, part: T, shape: decoding.Shape = None) -> T:
        """For what JSON can hold, and tuples of it; the first of some equal ones
        has to have the shape.

        Raises:
            UnreadableError: it has another one.
        """
        key = _key(part, shape)
        known: T | None = self._known.get(key)
        return self.same(key, decoding.fitting(part, shape)) if known is None else known

    def same(self, key: t.Hashable, part: T) -> T:
        """The first part that was given for this key, which stands for all equal ones."""
        if len(self._known) >= MOST:
            self._known.clear()
        known: T = self._known.setdefault(key, part)
        return known

    def text(self, text: str) -> str:
        """The first of equal texts, for names that occur in many objects."""
        return self.same(text, text)

    def workload_spec(self, spec: Raw) -> Raw:
        """The spec of a workload: its template is shared whole,
        and by field with templates that differ a little.
        """
        template: Raw | None = spec.get("template")
        if not template:
            return spec
        inner = template.get("spec") or {}
        key = _key(inner, None)
        pieces = self._known.get(key)
        if pieces is None:
            pieces = self.same(key, self._fields(inner))
        meta = self.part(template.get("metadata") or {}, shapes.TEMPLATE["metadata"])
        whole = {**template, "metadata": meta, "spec": pieces}
        return {
            **spec,
            "selector": self.part(spec.get("selector"), shapes.SELECTOR),
            "template": whole,
        }

    def _fields(self, spec: Raw) -> Raw:
        found: dict[str, t.Any] = {}
        for key, value in spec.items():
            if key in _BY_CONTAINER:
                found[key] = self._pieces(value)
            else:
                found[key] = self.part(value, shapes.POD_SPEC.get(key))
        return found

    def _pieces(self, containers: t.Sequence[Raw] | None) -> t.Any:
        return [
            {key: self.part(value, shapes.CONTAINER.get(key)) for key, value in one.items()}
            for one in containers or ()
        ]


def _key(part: t.Any, shape: decoding.Shape) -> bytes:
    key = marshal.dumps((id(shape), part), 2)
    return key if len(key) <= SHORT else hashlib.blake2b(key, digest_size=16).digest()


class NoInterning(Interner):
    """For single objects: everything is left as it is."""

    def part(self, part: T, shape: decoding.Shape = None) -> T:
        return decoding.fitting(part, shape)

    def same(self, key: t.Hashable, part: T) -> T:
        return part

    def text(self, text: str) -> str:
        return text

    def workload_spec(self, spec: Raw) -> Raw:
        return decoding.fitting(spec, shapes.WORKLOAD["spec"])


NO_INTERNING = NoInterning()
