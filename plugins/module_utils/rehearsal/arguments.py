# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``cluster_copy``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    run_copy,
    snapshot_files,
)


def _prepared(params: specs.Params) -> specs.Params:
    state = params.pop("state")
    path = Path(params["path"] or "snapshot.json.gz").expanduser().absolute()
    snapshot = None
    if state == "rebuilt":
        try:
            snapshot = snapshot_files.decoded(path.read_bytes())
        except OSError as error:
            expected = f"a file to read ({error.strerror or error})"
            raise option_values.BadOption("path", str(path), expected) from error
        except snapshot_files.BadSnapshot as error:
            expected = f"a snapshot. {str(error).rstrip('.')}"
            raise option_values.BadOption("path", str(path), expected) from error
    return {
        **params,
        "path": str(path),
        "snapshot": snapshot,
        "write": lambda content: _write(path, content),
    }


def _write(path: Path, content: bytes) -> None:
    """Put the file in place at once, for its owner only; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(temporary).replace(path)


SPEC = specs.ClusterModuleSpec(
    name="cluster_copy",
    options={
        "state": {"type": "str", "choices": ["saved", "rebuilt"], "default": "saved"},
        "path": {"type": "path", "required": True},
        "hash_key": {"type": "str", "no_log": True},
        "stop": {"type": "str", "default": "1s"},
        "timeout": {"type": "str", "default": "10m"},
    },
    durations=("stop", "timeout"),
    prepare=_prepared,
    engine=specs.engine(run_copy.copy, run_copy.CopyOptions),
)
