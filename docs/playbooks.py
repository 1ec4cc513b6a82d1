# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a page for each playbook, from pages.yml, the tables of guide_input.rst and the
roles' argument specs.

``python docs/playbooks.py`` writes them;
``tests/unit/ansible/test_site.py`` fails if one is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parents[1]
RST = HERE / "docs/docsite/rst"
US = "kubeops.node_maintenance"
LABEL = f"ansible_collections.{US}.docsite"
HEAD = """..
  Copyright: Contributors to the kubeops.node_maintenance collection
  GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
  SPDX-License-Identifier: GPL-3.0-or-later

  python docs/playbooks.py writes this page.
"""
SECTION = re.compile(r"^(.+)\n-+\n", re.MULTILINE)
ROW = re.compile(
    (
        r"^   \* - ((?:``\w+``(?:, )?)+)\n     - ((?:.*\n(?:       .*\n)*))(?:     - "
        r"((?:.*\n(?:       .*\n)*)))?"
    ),
    re.MULTILINE,
)

Playbook = dict[str, Any]


def playbooks() -> dict[str, Playbook]:
    """The playbooks by their names, in the order of the menu."""
    found: dict[str, Playbook] = yaml.safe_load(
        (HERE / "docs/pages.yml").read_text(encoding="utf-8")
    )
    return found


def rows(guide: str) -> Iterator[tuple[str, str, str]]:
    """Of the tables of variables in a guide: the section, the names,
    and what the last column says.
    """
    parts = SECTION.split((RST / f"{guide}.rst").read_text(encoding="utf-8"))
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        for names, second, third in ROW.findall(text):
            yield title, names, " ".join((third or second).split())


def input_variables() -> Iterator[str]:
    """The names of ``maintain_*`` by the sections of their guide."""
    groups: dict[str, list[str]] = {}
    for title, names, _meaning in rows("guide_input"):
        # A survey's table names them again.
        if names.startswith("``maintain_") and not title.startswith("As an AWX"):
            groups.setdefault(title, []).append(names)
    yield "With types, defaults and meaning:"
    yield f":ref:`{LABEL}.guide_input`.\n"
    for title, group in groups.items():
        yield f"{title}\n   {', '.join(group)}\n"


def table(variables: dict[str, str]) -> Iterator[str]:
    """Variables with their meaning."""
    yield (
        ".. list-table::\n   :header-rows: 1\n   :widths: 36 64\n\n   * - variable\n     - meaning"
    )
    for name, meaning in variables.items():
        yield f"   * - ``{name}``\n     - {meaning}"
    yield ""


def told(name: str, playbook: Playbook) -> Iterator[str]:
    """The page, in pieces of lines."""
    title = f"{name}: {playbook['title']}"
    yield f"{HEAD}\n.. _{LABEL}.playbook_{name}:\n\n{title}\n{'=' * len(title)}\n"
    yield f"{playbook['about']}\n"
    if playbook["commands"]:
        yield ".. code-block:: console\n"
        yield from (f"   $ ansible-playbook {US}.{command}" for command in playbook["commands"])
        yield ""
    yield f"**It writes:** {playbook['writes']}\n"
    if playbook["rights"]:
        roles = ", ".join(f"``{role}``" for role in playbook["rights"].split())
        yield f"**It needs** the :ref:`roles <{LABEL}.guide_rights>` {roles}.\n"
    yield "Variables\n---------\n"
    if playbook.get("input"):
        yield from (
            input_variables()
            if name == "maintain"
            else [f"Those of :ref:`maintain <{LABEL}.playbook_maintain>`.\n"]
        )
    variables = dict(playbook.get("variables", {}))
    if "own" in playbook:
        own = playbook.get("prefix", f"{name}_")
        variables |= {
            names.strip("`"): meaning.replace("``, ``", ", ")
            for _title, names, meaning in rows(playbook["own"])
            if names.startswith(f"``{own}")
        }
    if variables:
        yield from table(variables)
    if "role" in playbook:
        yield f"It takes the options of the role ``{playbook['role']}``:\n"
        yield f"``ansible-doc -t role {US}.{playbook['role']}``\n"
    if playbook["see"]:
        yield "More\n----\n"
        yield from (f"* :ref:`{LABEL}.{guide}`" for guide in playbook["see"])
        yield ""


def page(name: str) -> str:
    """The page of a playbook."""
    return "\n".join(told(name, playbooks()[name])).rstrip("\n") + "\n"


def main() -> None:
    """Write all pages."""
    for name in playbooks():
        (RST / f"playbook_{name}.rst").write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
