# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Errors about option values."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations


class BadOption(ValueError):
    """An option has an unusable value; the message names the option,
    the value and what is expected.
    """

    def __init__(self, option: str, value: t.Any, expected: str) -> None:
        super().__init__(f"{option}: {value!r} cannot be used. Expected: {expected}.")


class BadOptions(BadOption):
    """Several options have unusable values: triples of option, value and what is expected."""

    def __init__(self, faults: t.Iterable[tuple[str, t.Any, str]]) -> None:
        each = [BadOption(*fault) for fault in faults]
        super().__init__("", "", "")
        self.args = (" ".join(map(str, each)),)


# Options that are durations.


def seconds(option: str, value: t.Any) -> float | None:
    """The duration in seconds; ``None`` for ``None`` and the empty string.

    Raises:
        BadOption: the value cannot be parsed.
    """
    try:
        return durations.seconds(value)
    except ValueError:
        raise BadOption(option, value, durations.EXPECTED) from None


# Label selectors.


def label_selector(option: str, text: str) -> str:
    """The label selector, unchanged.

    Raises:
        BadOption: it cannot be parsed.
    """
    try:
        selectors.parse(text)
    except ValueError as error:
        raise BadOption(
            option, text, f"a label selector such as app=web,tier in (a, b) ({error})"
        ) from None
    return text


# Lists of names, given as a list or as a string separated by commas, spaces or newlines.


SEPARATORS = re.compile(r"[\s,]+")


def names(value: t.Any) -> tuple[str, ...]:
    """The names in order, without duplicates.

    Items of a list are split too, because Ansible turns the string ``a b`` into ``["a b"]``. No
    name in Kubernetes contains a comma or white space.
    """
    if value is None:
        return ()
    items: t.Iterable[t.Any] = (value,) if isinstance(value, (str, int)) else value
    parts = [part for item in items for part in SEPARATORS.split(str(item)) if part]
    return tuple(dict.fromkeys(parts))
