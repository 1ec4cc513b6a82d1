# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The module ``cluster_copy``: a cluster into a file, and from the file into a lab."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    notes,
    run_read,
    run_rebuild,
    snapshot_files,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """``snapshot`` is rebuilt, or without one the cluster is saved:
    ``write`` puts the content at ``path``.

    ``stop`` and ``timeout`` as ``run_rebuild.rebuild`` takes them.
    """

    path: str
    write: t.Callable[[bytes], None]
    snapshot: snapshot_files.Snapshot | None = None
    hash_key: str = ""
    stop: float
    timeout: float


def copy(ctx: run_context.Context, options: CopyOptions) -> run_context.Result:
    """Save or rebuild; raises as ``run_read.snapshot`` and ``run_rebuild.rebuild`` do."""
    if options.snapshot is None:
        return _save(ctx, options)
    made = run_rebuild.rebuild(ctx, options.snapshot, options.stop, options.timeout)
    found = collections.Counter[str]()
    for raws in made.steps.values():
        found.update(raw["kind"] for raw in raws)
    names = [raw["metadata"]["name"] for raw in options.snapshot.objects.get("nodes") or ()]
    return _result(options.snapshot, dict(found), {name: name for name in names}, made.notes)


def _save(ctx: run_context.Context, options: CopyOptions) -> run_context.Result:
    snapshot, names = run_read.snapshot(ctx, options.hash_key)
    content = snapshot_files.encoded(snapshot, compressed=options.path.endswith(".gz"))
    if not ctx.check:
        try:
            options.write(content)
        except OSError as error:
            why = f"{options.path} cannot be written: {error.strerror or error}."
            raise run_context.CallAborted("not_written", why) from error
    file = objects.Ref("File", options.path)
    ctx.changed(api_changes.Change("create", file, f"Write {options.path}"))
    counts = {kind: len(raws) for kind, raws in snapshot.objects.items() if raws}
    found = {run_read.KINDS[kind].kind: count for kind, count in counts.items()}
    return _result(snapshot, found, names, snapshot.notes)


def _result(
    snapshot: snapshot_files.Snapshot,
    counts: dict[str, int],
    names: dict[str, str],
    gaps: t.Sequence[snapshot_files.Note],
) -> run_context.Result:
    return run_context.Result(
        {
            "names": names,
            "counts": counts,
            "kubernetes": snapshot.kubernetes,
            "taken": snapshot.taken,
            "not_rehearsed": notes.sentences(gaps),
        }
    )
