# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The file with a snapshot of a cluster: one JSON document, gzipped or not,
that says whether it is whole.

``objects`` has by kind what ``slim`` keeps of the cluster's objects, ``notes`` what it could not
keep, ``kubernetes`` the version of the API server, ``taken`` when it was read (RFC 3339),
``hashed`` whether names were replaced. ``sha256`` is that of ``objects`` and ``notes``,
written with sorted keys.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import typing as t
import zlib
from dataclasses import dataclass

FORMAT = "kubeops.node_maintenance/snapshot"
VERSION = 1
GZIP = b"\x1f\x8b"

Objects = dict[str, list[dict[str, t.Any]]]
Note = dict[str, str]
"""Something that is not rehearsed: ``code`` (see ``notes``), ``object``, ``detail``."""


class BadSnapshot(ValueError):
    """The file is no snapshot that this version can use; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster as it was read."""

    kubernetes: str
    taken: str
    hashed: bool
    objects: Objects
    notes: list[Note]


def encoded(snapshot: Snapshot, *, compressed: bool) -> bytes:
    """The file's content; the same snapshot always gives the same bytes."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "kubernetes": snapshot.kubernetes,
        "taken": snapshot.taken,
        "hashed": snapshot.hashed,
        "sha256": _sum(snapshot.objects, snapshot.notes),
        "notes": snapshot.notes,
        "objects": snapshot.objects,
    }
    content = (json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n").encode()
    return gzip.compress(content, mtime=0) if compressed else content


def decoded(content: bytes) -> Snapshot:
    """The snapshot in a file.

    Raises:
        BadSnapshot: it is truncated, damaged, of another version, or something else.
    """
    try:
        document = json.loads(gzip.decompress(content) if content[:2] == GZIP else content)
    except (OSError, EOFError, zlib.error, ValueError):
        raise BadSnapshot(
            "It is truncated or damaged, or no snapshot at all. Save the snapshot again."
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadSnapshot(
            "It is JSON, but no snapshot of a cluster. Give a file that cluster_copy has saved."
        )
    if document.get("version") != VERSION:
        raise BadSnapshot(
            f"It is of version {document.get('version')}, and this release of the collection "
            f"reads version {VERSION}. Save the snapshot again with this release, or rehearse "
            "with the one that saved it."
        )
    found: t.Any = document.get("objects")
    notes: t.Any = document.get("notes")
    if document.get("sha256") != _sum(found, notes) or not _is_whole(found, notes):
        raise BadSnapshot(
            "Its checksum does not fit its content: it was damaged or edited. "
            "Save the snapshot again."
        )
    known = {key: str(document.get(key) or "") for key in ("kubernetes", "taken")}
    return Snapshot(**known, hashed=bool(document.get("hashed")), objects=found, notes=notes)


def _sum(found: t.Any, notes: t.Any) -> str:
    return hashlib.sha256(
        json.dumps([found, notes], sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def _is_whole(found: t.Any, notes: t.Any) -> bool:
    if not isinstance(found, dict) or not isinstance(notes, list):
        return False
    for raws in found.values():
        if not isinstance(raws, list):
            return False
        for raw in raws:
            if not isinstance(raw, dict) or not (raw.get("metadata") or {}).get("name"):
                return False
    return True
