# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Functions have at most 80 lines, and classes 260, but for those that the architecture
guide gives reasons for.
"""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
REASON = re.compile(r"^``(\w+)`` \(``(?:plugins/)?([\w/]+\.py)``\)\n   \S", re.MULTILINE)
LINES_OF_A_FUNCTION = 80
LINES_OF_A_CLASS = 260


def of_type(*types: type[ast.stmt]) -> Iterator[tuple[str, str, int]]:
    """The file, the name and the number of lines of each such statement in the plugins."""
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        if path.parent.name == "doc_fragments":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, types):
                assert isinstance(node, ast.FunctionDef | ast.ClassDef)
                yield (
                    str(path.relative_to(ROOT / "plugins")),
                    node.name,
                    (node.end_lineno or 0) - node.lineno + 1,
                )


def test_functions_are_short() -> None:
    found = list(of_type(ast.FunctionDef))
    assert len(found) > 1000
    assert not [one for one in found if one[2] > LINES_OF_A_FUNCTION]


def test_classes_are_short_or_have_a_reason() -> None:
    guide = (ROOT / "docs/docsite/rst/guide_architecture.rst").read_text()
    explained = {(name, path.removeprefix("module_utils/")) for name, path in REASON.findall(guide)}
    long = {
        (name, path.removeprefix("module_utils/"))
        for path, name, lines in of_type(ast.ClassDef)
        if lines > LINES_OF_A_CLASS
    }
    assert long == explained
