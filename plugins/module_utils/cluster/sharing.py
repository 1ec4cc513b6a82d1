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
        key = marshal.dumps(t.cast("t.Any", (id(shape), part)), 2)
        if len(key) > SHORT:
            key = hashlib.blake2b(key, digest_size=16).digest()
        return (
            self.same(key, part)
            if key in self._known
            else self.same(key, decoding.fitting(part, shape))
        )

    def same(self, key: t.Hashable, part: T) -> T:
        """For whatever is equal if this key is."""
        if len(self._known) >= MOST:
            self._known.clear()
        return t.cast("T", self._known.setdefault(key, part))

    def text(self, text: str) -> str:
        """For names that occur in many objects."""
        return self.same(text, text)

    def workload_spec(self, spec: Raw) -> Raw:
        """The spec of a workload: its template is shared whole,
        and by field with templates that differ a little.
        """
        template: Raw | None = spec.get("template")
        if not template:
            return spec
        inner = template.get("spec") or {}
        pieces = {
            key: self._pieces(value)
            if key in _BY_CONTAINER
            else self.part(value, shapes.POD_SPEC.get(key))
            for key, value in inner.items()
        }
        meta = self.part(template.get("metadata") or {}, shapes.TEMPLATE["metadata"])
        whole = {**template, "metadata": meta, "spec": self.part(pieces)}
        return {
            **spec,
            "selector": self.part(spec.get("selector"), shapes.SELECTOR),
            "template": whole,
        }

    def _pieces(self, containers: t.Sequence[Raw] | None) -> t.Any:
        return [
            {key: self.part(value, shapes.CONTAINER.get(key)) for key, value in one.items()}
            for one in containers or ()
        ]


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
