# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A snapshot that is kept up to date: by what changes of the kinds that are followed, and by lists of others."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import indexes, snapshots

Place = tuple[str, str, str]
"""What tells of an object, its namespace and its name."""


class View:
    """What is known of a cluster. Of one thread; the snapshots that it gives are anybody's."""

    def __init__(self) -> None:
        self._followed: dict[str, indexes.Shelf[Place, t.Any]] = {}
        self._listed: dict[str, list[t.Any]] = {}
        self._anew: set[str] = set()
        self._snapshot = snapshots.Snapshot()

    def follow(self, kinds: t.Iterable[str]) -> None:
        """Begin with kinds of which each change will be told; what lists said of them is forgotten."""
        for name in kinds:
            self._followed[name] = indexes.Shelf()
            self._listed.pop(name, None)
            self._anew.add(name)

    def follows(self, name: str) -> bool:
        return name in self._followed

    @property
    def listed(self) -> t.Mapping[str, list[t.Any]]:
        """What lists said last."""
        return self._listed

    def list(self, found: t.Mapping[str, list[t.Any]]) -> None:
        """Take in what lists say of some kinds; of one that is followed, too, these are objects beside."""
        changed = {name: those for name, those in found.items() if those != self._listed.get(name)}
        self._listed.update(changed)
        self._anew.update(changed)

    def after(self, changed: t.Mapping[str, t.Mapping[Place, t.Any]]) -> snapshots.Snapshot:
        """The snapshot when these objects of kinds that are followed have changed, ``None`` where one is gone."""
        anew, self._anew = self._anew, set()
        changes = {name: self._followed[name].take(found) for name, found in changed.items()}
        touched = anew.union(name for name, found in changes.items() if found)
        if touched.intersection(snapshots.SCALED):
            touched.update(snapshots.SCALED)
        if touched:
            known = {name: changes.get(name, []) for name in touched if name not in anew}
            self._snapshot = self._snapshot.after({name: self._all(name) for name in touched}, known)
        return self._snapshot

    def _all(self, name: str) -> t.Sequence[t.Any]:
        listed, shelf = self._listed.get(name, ()), self._followed.get(name)
        if shelf is None:
            return listed
        return (*listed, *shelf.table()) if listed else shelf.table()
