# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of the documentation is written by commands is as they write it, and every page, playbook and code is there."""

from __future__ import annotations

import importlib.util
import re
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.test_playbooks import REPOSITORY

RST = REPOSITORY / "docs/docsite/rst"
SHOWN = {
    "guide_kernel": ["work/kernel_patch.yml"],
    "guide_kubeadm": ["hooks/etcd_quorum.yml", "work/kubeadm_upgrade.yml"],
}
"""Files that are installed with the collection, by the pages that show them."""


def command(name: str) -> types.ModuleType:
    """The command in docs that writes something."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / f"docs/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PICTURES = command("pictures")
PLAYBOOKS = command("playbooks")
TROUBLESHOOTING = command("troubleshooting")
PLAYED = sorted(path.stem for path in (REPOSITORY / "playbooks").glob("*.yml"))


@pytest.mark.parametrize("name", sorted(PICTURES.PICTURES))
def test_a_picture_is_as_its_command_draws_it(name: str) -> None:
    drawn = PICTURES.PICTURES[name]()
    assert (PICTURES.IMAGES / name).read_text(encoding="utf-8") == drawn, "python docs/pictures.py draws it anew"
    assert "prefers-color-scheme: dark" in drawn
    assert any(f"/{name}" in page.read_text(encoding="utf-8") for page in RST.glob("*.rst"))


def test_every_code_of_the_plan_has_a_remedy_and_no_other() -> None:
    assert TROUBLESHOOTING.remedies().keys() == TROUBLESHOOTING.meanings().keys()


def test_the_list_of_codes_is_as_its_command_writes_it() -> None:
    text = TROUBLESHOOTING.PAGE.read_text(encoding="utf-8").partition(TROUBLESHOOTING.BEGIN)[2]
    assert text == f"\n{TROUBLESHOOTING.codes()}", "python docs/troubleshooting.py writes it anew"


def test_each_playbook_has_a_page() -> None:
    assert sorted(PLAYBOOKS.playbooks()) == PLAYED


@pytest.mark.parametrize("name", PLAYED)
def test_the_page_of_a_playbook_is_as_its_command_writes_it(name: str) -> None:
    text = (RST / f"playbook_{name}.rst").read_text(encoding="utf-8")
    assert text == PLAYBOOKS.page(name), "python docs/playbooks.py writes it anew"


def test_the_page_of_maintain_has_all_variables() -> None:
    page = PLAYBOOKS.page("maintain")
    assert [name for name in inputs.VARIABLES if f"``maintain_{name}``" not in page] == []


OTHERS = {"maintain_summary", "maintain_every", "maintain_automatically"}
"""Named like variables of the playbooks: a filter, an option of the inventory, a variable of the rulebooks."""


@pytest.mark.parametrize("page", sorted([*REPOSITORY.glob("*.md"), *RST.glob("*.rst")]), ids=lambda page: page.name)
def test_a_variable_that_a_page_names_is_there(page: Path) -> None:
    named = set(re.findall(r"\b(maintain_\w+)(?![\w*])", page.read_text(encoding="utf-8")))
    assert named - OTHERS - {f"maintain_{name}" for name in inputs.VARIABLES} == set()


@pytest.mark.parametrize("page", ["guide_managed", "guide_other_tools"])
def test_a_code_that_a_guide_about_others_names_is_there(page: str) -> None:
    text = (RST / f"{page}.rst").read_text(encoding="utf-8")
    codes = re.findall(r"\(``([a-z_]+)``\)|``(?!maintain_|drain_|upgrade_|before_)([a-z]+(?:_[a-z]+)+)``", text)
    named = {one or other for one, other in codes}
    assert named
    assert named - TROUBLESHOOTING.meanings().keys() == set()


def defaults() -> list[tuple[str, str]]:
    """Each variable in the guide that has one default, with it."""
    text = (RST / "guide_input.rst").read_text(encoding="utf-8")
    found = re.findall(r"^   \* - ``maintain_(\w+)``\n     - ((?:.*\n)(?:       .*\n)*)", text, re.MULTILINE)
    named = [(name, " ".join(kind.split()).rpartition("; ")) for name, kind in found]
    return [(name, default.strip("`")) for name, (_kind, mark, default) in named if mark]


def as_written(default: str, unset: Any) -> Any:
    """The default in the guide as the value that is unset."""
    if isinstance(unset, bool):
        return default == "true"
    if isinstance(unset, int):
        return option_values.seconds("", default)
    if isinstance(unset, (list, tuple)):
        return [word.strip() for word in default.split(",")]
    return default


@pytest.mark.parametrize(("name", "default"), defaults())
def test_a_default_in_the_guide_is_that_of_the_playbooks(name: str, default: str) -> None:
    unset = inputs.VARIABLES[name].unset
    if unset in (None, "", (), [], {}):
        # What is done then is said in words, or is the word for doing nothing.
        assert default in ("none", "unset", "never") or " " in default or name in ("settle", "gates"), default
    else:
        assert as_written(default, unset) == (list(unset) if isinstance(unset, (list, tuple)) else unset)


def test_every_page_is_in_the_menu_once() -> None:
    menu = yaml.safe_load((REPOSITORY / "docs/docsite/extra-docs.yml").read_text(encoding="utf-8"))["sections"]
    assert sorted(page for section in menu for page in section["toctree"]) == sorted(
        path.stem for path in RST.glob("*.rst")
    )


@pytest.mark.parametrize(("page", "file"), [(page, file) for page, files in SHOWN.items() for file in files])
def test_a_guide_shows_the_file_that_is_installed(page: str, file: str) -> None:
    content = (REPOSITORY / "playbooks/files" / file).read_text(encoding="utf-8").removeprefix("---\n")
    assert textwrap.indent(content, "   ") in (RST / f"{page}.rst").read_text(encoding="utf-8")


def test_every_test_that_auditors_are_shown_is_there() -> None:
    text = (RST / "guide_security.rst").read_text(encoding="utf-8")
    shown = re.findall(r"``(tests/[\w/]+\.py)::(test_\w+)``", text)
    assert len(shown) == text.count("``tests/") >= 20
    sources = {path: (REPOSITORY / path).read_text(encoding="utf-8") for path, _name in shown}
    assert [(path, name) for path, name in shown if f"def {name}(" not in sources[path]] == []


@pytest.mark.parametrize(
    ("page", "translated"),
    [(REPOSITORY / "README.md", REPOSITORY / "README.zh-CN.md"), (RST / "guide_start.rst", RST / "guide_start_zh.rst")],
)
def test_a_translation_has_the_same_commands(page: Path, translated: Path) -> None:
    kind = r"^ *(?:\$ )?((?:ansible-playbook|ansible-galaxy|kubectl|pip|make) .*)$"
    found = [re.findall(kind, file.read_text(encoding="utf-8"), re.MULTILINE) for file in (page, translated)]
    # Comments are translated.
    said, again = ([command.partition("  #")[0].rstrip() for command in commands] for commands in found)
    assert len(said) >= 6
    assert [command for command in said if command not in again] == []
