# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the table of variables in each role's README from its argument specification.

``python docs/roles.py`` writes; ``tests/unit/ansible/test_options_told_once.py`` fails if a
README is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[1] / "roles"
HEAD = "| variable | default | meaning |\n|---|---|---|\n"
TABLE = re.compile(rf"(?<={re.escape(HEAD)})((?:\|.*\n)+)")


def options(role: str) -> dict[str, dict[str, Any]]:
    """The role's options by their names."""
    found = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    options: dict[str, dict[str, Any]] = found["argument_specs"]["main"]["options"]
    return options


def table(role: str) -> str:
    """The rows of the role's table."""
    rows = (
        (name, _default(option), " ".join(_said(option))) for name, option in options(role).items()
    )
    return "".join(f"| `{name}` | {default} | {said} |\n" for name, default, said in rows)


def _default(option: dict[str, Any]) -> str:
    if option.get("required"):
        return "required"
    default = option.get("default", "")
    if isinstance(default, list):
        return f"`[{', '.join(default)}]`"
    return (
        ""
        if default == ""
        else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    )


def _said(option: dict[str, Any]) -> Iterator[str]:
    said = option["description"]
    for text in [said] if isinstance(said, str) else said:
        yield re.sub(r"\b[CVOM]\(([^)]*)\)", r"`\1`", text)
    if "choices" in option:
        yield f"One of {', '.join(f'`{choice}`' for choice in option['choices'])}."


def readmes() -> list[Path]:
    """The READMEs with such a table."""
    return [
        path
        for path in sorted(ROLES.glob("*/README.md"))
        if HEAD in path.read_text(encoding="utf-8")
    ]


if __name__ == "__main__":
    for readme in readmes():
        before, _rows, after = re.split(TABLE, readme.read_text(encoding="utf-8"))
        readme.write_text(before + table(readme.parent.name) + after, encoding="utf-8")
