# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes what ``maintenance_access`` installs as files for ``kubectl apply -f``,
and the roles into the guide.

``python docs/rights.py`` writes;
``tests/unit/access/test_rights.py`` fails if a file is out of date.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import (  # noqa: E402
    accounts,
    policies,
    roles,
)

FILES = ROOT / "playbooks/files"
GUIDE = ROOT / "docs/docsite/rst/guide_rights.rst"
MARK = ".. code-block:: text\n\n   apiVersion: v1\n   kind: List\n"
WIDTH = 120
HEAD = """\
# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

{about}
---
"""
ABOUT = {
    "rights.yml": """\
All that the collection may have to be allowed, in small roles, for `kubectl apply -f`. Nothing is granted by it:
which account gets which role is said by bindings. The annotation bind-in says where a role belongs: * is a
ClusterRoleBinding, a namespace is a RoleBinding in it. The guide "Rights" of the documentation says who needs which.
""",
    "operator.yml": """\
The ServiceAccount operator, with the roles of rights.yml that maintain, evacuate, release and recover need, for
`kubectl apply -f`.""",
    "policies.yml": """\
Admission policies that keep the ServiceAccount operator to what this collection does, for `kubectl apply -f`
(Kubernetes 1.30 and newer).""",
    "fence.yml": """\
The fence in the API server, which refuses evictions and changes of pods from a run that lost its lock, for
`kubectl apply -f` (Kubernetes 1.30 and newer). The first time, apply it twice: the kind NodeFence is not there at
once.""",
}


def objects() -> dict[str, list[Mapping[str, Any]]]:
    """The objects of each file."""
    operator = accounts.Account()
    return {
        "rights.yml": [accounts.NAMESPACE, *(role.manifest for role in roles.ROLES)],
        "operator.yml": [*operator.service_accounts(), *operator.bindings()],
        "policies.yml": policies.bounding(operator),
        "fence.yml": list(policies.FENCE),
    }


def files() -> dict[Path, str]:
    """Each file and what belongs in it, the guide among them."""
    made = {FILES / name: _file(name, found) for name, found in objects().items()}
    shown = textwrap.indent(_listed(objects()["rights.yml"]), "   ")
    return {
        **made,
        GUIDE: GUIDE.read_text(encoding="utf-8").partition(MARK)[0]
        + ".. code-block:: text\n\n"
        + shown,
    }


def _file(name: str, found: Iterable[Mapping[str, Any]]) -> str:
    about = textwrap.indent(ABOUT[name].rstrip(), "# ")
    return HEAD.format(about=about) + _listed(found)


def _listed(found: Iterable[Mapping[str, Any]]) -> str:
    return "apiVersion: v1\nkind: List\nitems:\n" + "".join(
        f"{line}\n" for line in _items(list(found), 2)
    )


def _items(values: list[Any], indent: int) -> Iterator[str]:
    for value in values:
        if isinstance(value, Mapping) and not _fits(value, indent + 2):
            lines = list(_lines(value, indent + 2))
            yield " " * indent + "- " + lines[0].lstrip()
            yield from lines[1:]
        else:
            yield (
                " " * indent
                + "- "
                + (_flow(value) if not isinstance(value, str) else _long(value, indent + 2))
            )


def _lines(value: Mapping[str, Any], indent: int) -> Iterator[str]:
    """A mapping in block style; whatever fits on a line is in flow style."""
    pad = " " * indent
    for key, inner in value.items():
        if isinstance(inner, str):
            yield f"{pad}{key}: {_long(inner, indent)}"
        elif isinstance(inner, (Mapping, list)) and not (
            _fits(inner, indent + len(key) + 2) and key not in BLOCK
        ):
            yield f"{pad}{key}:"
            yield from (
                _items(inner, indent + 2) if isinstance(inner, list) else _lines(inner, indent + 2)
            )
        else:
            yield f"{pad}{key}: {_flow(inner)}"


BLOCK = ("metadata", "rules", "items", "spec")
"""Keys whose value is never on one line."""


def _fits(value: Any, indent: int) -> bool:
    return indent + len(_flow(value)) <= WIDTH - 2


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else str(value).lower()


def _scalar(text: str) -> str:
    plain = (
        text
        and text not in ("*", "true", "false", "null")
        and not set(text) & set("{}[],&*#?|<>=!%@\"'`")
    )
    return (
        text
        if plain and ": " not in text and not text[0].isspace() and not text.isdigit()
        else "'" + text.replace("'", "''") + "'"
    )


def _long(text: str, indent: int) -> str:
    """A string; one that is too long for its line is folded at its spaces."""
    short = _scalar(text)
    if indent + 12 + len(short) <= WIDTH:
        return short
    pad = " " * (indent + 2)
    return ">-\n" + textwrap.fill(
        text,
        WIDTH,
        initial_indent=pad,
        subsequent_indent=pad,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content, encoding="utf-8")
