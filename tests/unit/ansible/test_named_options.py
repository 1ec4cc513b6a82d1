# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remedies name options: as the playbooks take them and as modules do, in one form, and only options that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import options
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks.inputs import PREFIX, VARIABLES

HERE = Path(__file__).parents[3]
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted((HERE / "plugins/module_utils").rglob("*.py"))
    if path.parent.name not in ("ansible", "playbooks")
    and not path.name.startswith("arguments")
    and path.name != "reasons.py"
}
SPECS = (drain.SPEC.argument_spec, plan.SPEC.argument_spec)
NAMED = sorted(
    {
        keyword.arg
        for tree in TREES.values()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "reasons.options"
        for keyword in call.keywords
        if keyword.arg
    }
)
SHARED = "|".join(name for name in VARIABLES if all(name in spec for spec in SPECS))
BY_HAND = re.compile(rf"(?<![\w.])({SHARED}): (true|false|\[|\w+\b(?=[,.)]|$))|\((modules|in a module)\b")


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the engine that somebody may read, by its place; of texts in parts each constant part."""
    for path, tree in TREES.items():
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield f"{path.relative_to(HERE)}:{node.lineno}", node.value


def test_an_option_is_told_as_playbooks_and_modules_take_it() -> None:
    assert options(force=True) == "-e maintain_force=true (in a module force: true)"
    assert options(fallback="eviction") == "-e maintain_fallback=eviction (in a module fallback: eviction)"
    assert options(fenced=("n1", "n2")) == "-e maintain_fenced=n1,n2 (in a module fenced: [n1, n2])"
    assert options(force=True, delete_emptydir_data=False) == (
        "-e maintain_force=true -e maintain_delete_emptydir_data=false "
        "(in a module force: true and delete_emptydir_data: false)"
    )


def test_remedies_name_options() -> None:
    assert {"force", "allow_interruption", "delete_emptydir_data", "fenced", "method"} <= set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_option_is_one_of_the_playbooks_and_of_the_modules(name: str) -> None:
    assert name in VARIABLES
    assert all(name in spec for spec in SPECS)


def test_no_text_tells_an_option_of_both_by_hand() -> None:
    assert [where for where, text in texts() if BY_HAND.search(text)] == []


def test_every_variable_that_a_text_names_is_one() -> None:
    recover = set(
        re.findall(r"_maintain_variables: \[(.*)\]", (HERE / "playbooks/recover.yml").read_text())[0].split(", ")
    )
    known = {PREFIX + name for name in VARIABLES} | recover
    named = {word for _where, text in texts() for word in re.findall(r"\b(?:maintain|recover)_\w+", text)}
    assert {"maintain_run", "recover_run", "recover_state"} <= named
    assert named <= known
