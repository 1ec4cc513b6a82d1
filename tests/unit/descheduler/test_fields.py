# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation's table of fields and of the tests that show them: no empty cell, no test that is not there."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest
import yaml
from support.verdicts import koord_traps

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "docsite" / "rst" / "descheduler_fields.rst"
CELL = re.compile(r"^   (\*| ) - ?(.*)$")


def rows() -> list[list[str]]:
    """The rows of every table, without their heads."""
    found: list[list[str]] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if cell := CELL.match(line):
            if cell[1] == "*":
                found.append([])
            found[-1].append(cell[2].strip())
    return [row for row in found if row[0] != "field"]


def test_no_cell_is_empty() -> None:
    assert len(rows()) > 50
    assert [row for row in rows() if len(row) != 3 or not all(row)] == []


@pytest.mark.parametrize("named", sorted({row[2] for row in rows()}))
def test_the_test_is_there(named: str) -> None:
    file, test = named.strip("`").split("::")
    tree = ast.parse((ROOT / "tests" / "e2e" / file).read_text(encoding="utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _keys(value: object) -> set[str]:
    """Every key of a document, apart from those that people choose."""
    if isinstance(value, list):
        return set(itertools.chain.from_iterable(map(_keys, value)))
    if not isinstance(value, dict):
        return set()
    free = {"matchLabels", "labelSelector", "nodeSelector"}
    return {*value, *itertools.chain.from_iterable(_keys(each) for key, each in value.items() if key not in free)}


def test_every_key_of_the_documents_examples_has_a_row() -> None:
    words = set(re.findall(r"\w+", " ".join(row[0] for row in rows())))
    examples = [yaml.safe_load(text) for name, text in koord_traps.TEXTS.items() if "example" in name]
    assert len(examples) == 3
    assert _keys(examples) - words == {"profiles", "plugins", "pluginConfig"} - words
