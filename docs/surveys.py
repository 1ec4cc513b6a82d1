# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes awx/surveys.yml, the surveys of AWX's job templates, from the variables in
docs/docsite/rst/guide_input.rst.

``python docs/surveys.py`` writes;
``tests/unit/playbooks/test_surveys.py`` fails if the file is out of date.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parents[1]
GUIDE = HERE / "docs/docsite/rst/guide_input.rst"
SURVEYS = HERE / "awx/surveys.yml"
PLAYBOOKS = ("plan", "maintain", "evacuate", "release")
ROW = re.compile(
    r"   \* - ``((?:maintain|recover)_\w+)``\n     - (.+)\n     - (.+(?:\n       .+)*)"
)
ROLE = re.compile(r":ref:`([^<`]*[^<` ])\s*<[^>]*>`")
WHERE = re.compile(r"(?<=\. )Only ``(\w+)``\.|(?<=\. )Not for ``(\w+)``\.")
SECRET = ("maintain_announce_webhook", "maintain_announce_headers")
LONG = ("list", "mapping", "arguments", "a window")
HEAD = """---
# The surveys of the job templates: written by docs/surveys.py from the variables that docs/docsite/rst/guide_input.rst
# explains. An answer that is left empty means: not set.
"""  # noqa: E501


class Indented(yaml.SafeDumper):
    """With the items of lists indented, as everywhere here."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """The dumper's own, but never without an indent."""
        del indentless
        super().increase_indent(flow, indentless=False)


def variables() -> list[tuple[str, str, str]]:
    """Name, type with default, and meaning of each documented variable."""
    text = GUIDE.read_text(encoding="utf-8").partition("As an AWX survey")[0]
    return [(name, kind, " ".join(meaning.split())) for name, kind, meaning in ROW.findall(text)]


def applies(meaning: str, playbook: str) -> bool:
    """Whether the playbook reads the variable, by its meaning."""
    return all(
        playbook != not_for and only in ("", playbook) for only, not_for in WHERE.findall(meaning)
    )


def question(name: str, kind: str, meaning: str) -> dict[str, Any]:
    """A question as AWX's survey_spec has it. Every variable is optional:
    an empty answer means not set.
    """
    types, _semicolon, default = kind.partition(";")
    plain = ROLE.sub(r"\1", meaning).replace("``", "")
    default = default.strip().replace("``", "")
    told = plain if default in ("", "none", "unset") else f"{plain} Default: {default}."
    words = re.findall(r"``(\w+)``", types)
    asked: dict[str, Any] = {"type": "text", "min": 0, "max": 1024}
    if types == "boolean":
        asked = {"type": "multiplechoice", "choices": ["true", "false"]}
    elif words and not types.startswith(LONG):
        asked = {"type": "multiplechoice", "choices": words}
    elif name in SECRET:
        asked = {"type": "password", "min": 0, "max": 4096}
    elif types.startswith(LONG):
        asked = {"type": "textarea", "min": 0, "max": 65536}
    return {
        "question_name": name,
        "question_description": told,
        "variable": name,
        "required": False,
        "default": "",
        **asked,
    }


def surveys() -> dict[str, list[str]]:
    """The variables that the survey of each playbook asks for."""
    found = variables()
    asked = {
        playbook: [
            name
            for name, _kind, meaning in found
            if name.startswith("maintain_") and applies(meaning, playbook)
        ]
        for playbook in PLAYBOOKS
    }
    return {
        **asked,
        "recover": [name for name, _kind, _meaning in found if name.startswith("recover_")],
    }


def text() -> str:
    """The file."""
    questions = {name: question(name, kind, meaning) for name, kind, meaning in variables()}
    whole = {"awx_questions": questions, "awx_asked": surveys()}
    return HEAD + yaml.dump(whole, Dumper=Indented, sort_keys=False, width=118, allow_unicode=True)


if __name__ == "__main__":
    SURVEYS.write_text(text(), encoding="utf-8")
