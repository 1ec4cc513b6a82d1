# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Objects in the order in which they came, and by what they are asked for;
what changes a little costs a little.

Tables and indexes never change, so that any thread may read them. What follows from one after some
changes shares with it all pieces that are the same: a look at a large cluster costs what has
changed since the one before.
"""

from __future__ import annotations

import collections
import itertools
import typing as t

K = t.TypeVar("K", bound=t.Hashable)
T = t.TypeVar("T")

Change = tuple["T | None", "T | None"]
"""An object before and after; ``None`` where it did not exist, or does not any more."""

PIECE = 64
"""Objects of one piece of a table at most."""
PIECES = 256
"""Pieces of an index with more keys than one piece of a table has objects; that of a few keys is
one piece.
"""


class Items(t.Sequence[T]):
    """Objects in the order in which they came, in pieces."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: t.Iterable[t.Mapping[t.Any, T]] = ()) -> None:
        self._pieces = tuple(pieces)

    def __iter__(self) -> t.Iterator[T]:
        return itertools.chain.from_iterable(piece.values() for piece in self._pieces)

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    # Not as overloads: pycodestyle and the formatter want them written differently.
    def __getitem__(self, at: t.Any) -> t.Any:
        return tuple(self)[at]


class Store(t.Generic[K, T]):
    """Keeps a table up to date: each object at its place in the order,
    also when it changes. Of one thread.
    """

    def __init__(self) -> None:
        self._pieces: list[dict[K, T]] = []
        self._where: dict[K, int] = {}
        self._own: set[int] = set()

    def take(self, changed: t.Mapping[K, T | None]) -> list[Change[T]]:
        """Take objects in by their keys, and out where there is ``None``;
        returns what that changed.
        """
        found: list[Change[T]] = []
        for key, after in changed.items():
            at = self._where.get(key)
            before = None if at is None else self._pieces[at][key]
            if after is not None:
                self._piece(at)[key] = after
                self._where.setdefault(key, len(self._pieces) - 1)
            elif at is not None:
                del self._piece(at)[key], self._where[key]
            if before is not after:
                found.append((before, after))
        return found

    def table(self) -> Items[T]:
        if len(self._pieces) > PIECE and len(self._pieces) * PIECE > 4 * len(self._where):
            self._pack()
        self._own.clear()
        return Items(self._pieces)

    def _piece(self, at: int | None) -> dict[K, T]:
        """A piece that no table has yet, ``None``: one with room at the end."""
        if at is None and (not self._pieces or len(self._pieces[-1]) >= PIECE):
            self._own.add(len(self._pieces))
            self._pieces.append({})
        at = len(self._pieces) - 1 if at is None else at
        if at not in self._own:
            self._own.add(at)
            self._pieces[at] = dict(self._pieces[at])
        return self._pieces[at]

    def _pack(self) -> None:
        """Close the gaps of objects that are gone."""
        known = [item for piece in self._pieces for item in piece.items()]
        self._pieces = [dict(known[at : at + PIECE]) for at in range(0, len(known), PIECE)]
        self._where = {key: at for at, piece in enumerate(self._pieces) for key in piece}


class Index(t.Generic[K, T]):
    """Objects by the keys that each of them has, those of a key in the order in which they came."""

    __slots__ = ("_keys", "_pieces")

    def __init__(
        self, keys: t.Callable[[T], t.Iterable[K]], pieces: t.Sequence[dict[K, tuple[T, ...]]]
    ) -> None:
        self._keys = keys
        self._pieces = pieces

    @classmethod
    def of(cls, keys: t.Callable[[T], t.Iterable[K]], found: t.Iterable[T]) -> Index[K, T]:
        groups: dict[K, list[T]] = {}
        for one in found:
            for key in keys(one):
                groups.setdefault(key, []).append(one)
        return cls(keys, _split({key: tuple(group) for key, group in groups.items()}))

    def get(self, key: K) -> tuple[T, ...]:
        return self._pieces[hash(key) % len(self._pieces)].get(key, ())

    def last(self, key: K) -> T | None:
        """The one that came last of those with this key."""
        found = self.get(key)
        return found[-1] if found else None

    def __iter__(self) -> t.Iterator[K]:
        return itertools.chain.from_iterable(self._pieces)

    def after(self, changes: t.Iterable[Change[T]]) -> Index[K, T]:
        """The index when these objects have changed."""
        of_key: dict[K, list[Change[T]]] = {}
        for before, after in changes:
            old = dict.fromkeys(self._keys(before)) if before is not None else {}
            new = dict.fromkeys(self._keys(after)) if after is not None else {}
            for key in old | new:
                of_key.setdefault(key, []).append(
                    (before if key in old else None, after if key in new else None)
                )
        if not of_key:
            return self
        pieces = list(self._pieces)
        own = set[int]()
        for key, some in of_key.items():
            at = hash(key) % len(pieces)
            if at not in own:
                own.add(at)
                pieces[at] = dict(pieces[at])
            if group := _changed(pieces[at].get(key, ()), some):
                pieces[at][key] = group
            else:
                pieces[at].pop(key, None)
        return Index(self._keys, pieces if len(pieces) > 1 else _split(pieces[0]))

    def differing(self, other: Index[K, T] | None) -> t.Iterator[K]:
        """The keys under which the other index, one before or after some
        changes, has other objects.
        """
        if other is None:
            yield from self
            return
        for mine, theirs in _side_by_side(self._pieces, other._pieces):
            if mine is not theirs:
                for key in mine.keys() | theirs.keys():
                    if mine.get(key) is not theirs.get(key):
                        yield key


Groups = dict[K, tuple[T, ...]]


def _split(groups: Groups[K, T]) -> list[Groups[K, T]]:
    """The pieces of an index with these objects by key."""
    if len(groups) <= PIECE:
        return [groups]
    pieces: list[Groups[K, T]] = [{} for _piece in range(PIECES)]
    for key, group in groups.items():
        pieces[hash(key) % PIECES][key] = group
    return pieces


def _side_by_side(
    mine: t.Sequence[Groups[K, T]], theirs: t.Sequence[Groups[K, T]]
) -> t.Iterable[tuple[t.Mapping[K, tuple[T, ...]], t.Mapping[K, tuple[T, ...]]]]:
    """The pieces of two indexes that have the same keys."""
    if len(mine) == len(theirs):
        return zip(mine, theirs, strict=True)
    return [(collections.ChainMap(*mine), collections.ChainMap(*theirs))]


def _changed(group: tuple[T, ...], changes: t.Iterable[Change[T]]) -> tuple[T, ...]:
    """The group after the changes; what has replaced another object is at its place."""
    fate = {id(before): after for before, after in changes if before is not None}
    kept = [fate.get(id(one), one) for one in group] if fate else [*group]
    new = [after for before, after in changes if before is None and after is not None]
    return tuple(one for one in (*kept, *new) if one is not None)
