# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is wrong with the words a user gave."""

from __future__ import annotations

import typing as t


class BadOption(ValueError):
    """An option's value cannot be used; the text names the option, the value and what would be right."""

    def __init__(self, option: str, value: t.Any, expected: str) -> None:
        super().__init__(f"{option}: {value!r} cannot be used. Expected: {expected}.")


class BadOptions(BadOption):
    """Several of them, told at once: triples of option, value and what would be right."""

    def __init__(self, faults: t.Iterable[tuple[str, t.Any, str]]) -> None:
        each = [BadOption(*fault) for fault in faults]
        super().__init__("", "", "")
        self.args = (" ".join(map(str, each)),)
