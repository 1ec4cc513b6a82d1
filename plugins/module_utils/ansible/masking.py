# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What takes secrets out of results, messages and arguments, in the words that Ansible uses for it.

ansible-core's own ``remove_values`` goes with version 2.25; from 2.22 on, where
``ansible.module_utils.secrets`` came, every call of it warns. What replaces it there masks all that
anybody registered, at the output only, so it takes the credentials, too: other plugins' output may
show them. Our own results are masked here, on every version alike.
"""

from __future__ import annotations

import importlib
import typing as t

WHOLE = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
"""Instead of a string that is a secret."""
PART = "********"
"""Instead of a secret within a longer string."""


def masked(value: t.Any, hidden: t.AbstractSet[str]) -> t.Any:
    """A copy of plain data without the ``hidden`` strings, in keys and in values;
    numbers stay as they are.
    """
    if not hidden:
        return value
    # The longer first: one secret may be the beginning of another.
    return _masked(value, sorted(hidden, key=lambda secret: (-len(secret), secret)))


def _masked(value: t.Any, hidden: t.Sequence[str]) -> t.Any:
    if isinstance(value, str):
        return _text(value, hidden)
    if isinstance(value, t.Mapping):
        return {_masked(key, hidden): _masked(inner, hidden) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_masked(inner, hidden) for inner in value]
    return value


def _text(text: str, hidden: t.Sequence[str]) -> str:
    for secret in hidden:
        if text == secret:
            return WHOLE
        text = text.replace(secret, PART)
    return text


def register(hidden: t.AbstractSet[str]) -> None:
    """Let ansible-core 2.22 and later keep these out of all its output;
    earlier versions have no such register.
    """
    try:
        secrets = importlib.import_module("ansible.module_utils.secrets")
    except ImportError:
        return
    secrets.register_secrets(sorted(hidden))
