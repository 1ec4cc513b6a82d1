# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Errors about option values."""

from __future__ import annotations

import typing as t


class BadOption(ValueError):
    """An option has an unusable value; the message names the option, the value and what is expected."""

    def __init__(self, option: str, value: t.Any, expected: str) -> None:
        super().__init__(f"{option}: {value!r} cannot be used. Expected: {expected}.")


class BadOptions(BadOption):
    """Several options have unusable values: triples of option, value and what is expected."""

    def __init__(self, faults: t.Iterable[tuple[str, t.Any, str]]) -> None:
        each = [BadOption(*fault) for fault in faults]
        super().__init__("", "", "")
        self.args = (" ".join(map(str, each)),)
