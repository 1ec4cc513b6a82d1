# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks and roles may do in Jinja: read what tested code worked out, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

HERE = Path(__file__).parents[3]
FILES = sorted(
    path
    for folder in ("playbooks", "roles")
    for path in (HERE / folder).glob("**/*.yml")
    if "files" not in path.parts and "templates" not in path.parts
)
CONDITIONS = ("when", "that", "failed_when", "changed_when", "until")
MOST = 2
# What the playbooks of a maintenance set besides variables of their own: those of Ansible, and options of roles.
ROLES = "announce|preflight|cordon|protect|migrate|verify|taint|uncordon|descheduler|lab"
OF_OTHERS = re.compile(rf"ansible_\w+|({ROLES})_\w+|kubeops_hook")
PRIVATE = ("maintain", "evacuate", "release", "plan", "recover", "fence", "access")


def texts(found: Any, key: str = "") -> Iterator[str]:
    """Every text of a file as a template: a condition is an expression without its braces."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from texts(name)
            yield from texts(value, str(name))
    elif isinstance(found, list):
        for value in found:
            yield from texts(value, key)
    elif isinstance(found, str):
        yield f"{{{{ {found} }}}}" if key in CONDITIONS and "{{" not in found else found


def expressions(text: str) -> Iterator[tuple[str, int]]:
    """Each expression or statement of a template, with the number of its filters."""
    words: list[str] = []
    filters = 0
    for _line, token, value in Environment().lex(text):
        if token in ("variable_begin", "block_begin"):
            words, filters = [], 0
        elif token in ("variable_end", "block_end"):
            yield " ".join(words), filters
        elif token != "whitespace":
            words.append(value)
            filters += token == "operator" and value == "|"


def variables(found: Any) -> Iterator[str]:
    """The names that a file of plays or tasks gives to values: of vars, of facts and of registered results."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key in ("vars", "ansible.builtin.set_fact"):
                yield from value
            elif key == "ansible.builtin.add_host":
                yield from (name for name in value if name not in ("name", "groups"))
            elif key in ("register", "loop_var", "index_var"):
                yield value
            yield from variables(value)
    elif isinstance(found, list):
        for value in found:
            yield from variables(value)


@pytest.mark.parametrize(("text", "filters"), [("{{ a | b }} {{ c | d | e('|') }}", [1, 2]), ("{% if a | b %}", [1])])
def test_filters_are_counted_for_each_expression(text: str, filters: list[int]) -> None:
    assert [count for _words, count in expressions(text)] == filters


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_no_expression_has_more_than_two_filters(path: Path) -> None:
    found = [each for text in texts(yaml.safe_load(path.read_text(encoding="utf-8"))) for each in expressions(text)]
    assert [words for words, filters in found if filters > MOST] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_no_template_is_a_program(path: Path) -> None:
    assert "{%" not in path.read_text(encoding="utf-8")


def test_the_variables_of_the_playbooks_are_private_by_their_names() -> None:
    files = [HERE / "playbooks" / f"{name}.yml" for name in PRIVATE]
    files += [*(HERE / "playbooks/plays").glob("*.yml")]
    files += [path for path in (HERE / "playbooks/tasks").glob("*.yml") if not path.name.startswith("demo_")]
    given = {name for path in files for name in variables(yaml.safe_load(path.read_text(encoding="utf-8")))}
    assert {"_maintain_input", "_maintain_out", "migrate_run"} <= given
    assert [name for name in given if not name.startswith("_maintain_") and not OF_OTHERS.fullmatch(name)] == []


def test_no_name_tells_less_than_whose_it_is() -> None:
    assert [str(path) for path in FILES if re.search(r"\bnm_\w", path.read_text(encoding="utf-8"))] == []


def test_no_moment_is_made_from_a_time_of_utc_without_a_zone() -> None:
    """``now(utc=true)`` has no time zone, so its timestamp is wrong on a controller whose clock is not at UTC."""
    found = [
        words
        for path in FILES
        for text in texts(yaml.safe_load(path.read_text()))
        for words, _where in expressions(text)
    ]
    assert any("now ( ) . timestamp" in words for words in found)
    assert [words for words in found if re.search(r"now \( utc = \w+ \) \. timestamp", words)] == []
