# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Writing files for the user."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile

MODE = 0o644
"""Readable for all, as files without secrets are."""


def write(path: pathlib.Path, content: str, mode: int = MODE) -> None:
    """Put a file in place at once, so that nobody opens half of it; raises OSError."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode())
            os.fchmod(file.fileno(), mode)
        pathlib.Path(temporary).replace(path)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                pathlib.Path(temporary).unlink()
        raise
