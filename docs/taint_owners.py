# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the table of controllers whose taints ``exact`` leaves into the guide to taints.

``python docs/taint_owners.py`` writes, where the collection can be imported;
``tests/unit/cluster/test_taint_owners.py`` fails if the guide is out of date.
"""

from __future__ import annotations

from pathlib import Path

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints

GUIDE = Path(__file__).resolve().parent / "docsite/rst/guide_taints.rst"
HEAD = (
    "  .. list-table::\n     :header-rows: 1\n     :widths: 60 40\n\n"
    "     * - keys\n       - owner\n"
)


def table() -> str:
    """The rows, one for each owner."""
    rows = (
        (", ".join(f"``{key}``" for key in owner.keys), owner.name) for owner in node_taints.OWNERS
    )
    return "".join(f"     * - {keys}\n       - {name}\n" for keys, name in rows)


def written(guide: str) -> str:
    """The guide with the table as it should be."""
    before, rest = guide.split(HEAD)
    return before + HEAD + table() + "\n" + rest.split("\n\n", 1)[1]


if __name__ == "__main__":
    GUIDE.write_text(written(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
