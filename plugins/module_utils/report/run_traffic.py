# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Files in which load generators write what became of their requests."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, traffic

MAX_BYTES = 16 * 2**20


class TrafficError(RuntimeError):
    """A file cannot be used; the text says why."""


def read(path: str) -> tuple[model.TrafficLine, ...]:
    """What a file says.

    Raises:
        TrafficError: it cannot be read, or does not have the documented shape.
    """
    file = pathlib.Path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise TrafficError(f"cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise TrafficError(f"is larger than {MAX_BYTES // 2**20} MiB")
    try:
        return traffic.lines(json.loads(content))
    except traffic.BadTraffic as error:
        raise TrafficError(f"is no verdict on requests: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TrafficError(f"is no JSON: {error}") from error


def read_all(paths: t.Iterable[str]) -> tuple[list[model.TrafficLine], list[model.Failure]]:
    """What the files say, and those that cannot be used: a report matters more than these."""
    found: list[model.TrafficLine] = []
    faults = []
    for path in paths:
        try:
            found += read(path)
        except TrafficError as error:
            faults.append(model.Failure(path, f"It {error}"))
    return found, faults
