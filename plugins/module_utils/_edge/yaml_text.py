# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler's configuration from its text, read as Go's YAML library reads it.

PyYAML alone would let a key stand twice, and make dates of ``2026-01-01`` and ninety of ``1:30``; in Go both
stay texts.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.fault import Fault
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.schema import Schema

try:
    import yaml

    Loader: t.Any = yaml.SafeLoader
except ImportError:  # PyYAML comes with the kubernetes package, whose absence is told before
    Loader = object

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o?[0-7_]+|0b[01_]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_STAYS = ("timestamp", "value", "int", "float")


class _Reader(Loader):
    """Notes keys that are there twice, and resolves plain words as go-yaml does."""

    twice: list[tuple[str, int]]

    def construct_mapping(self, node: t.Any, deep: bool = False) -> t.Any:
        seen = set[t.Any]()
        for key_node, _value in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if key_node.value in seen:
                self.twice.append((str(key_node.value), key_node.start_mark.line + 1))
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _plain_words() -> None:
    """Take from the reader what go-yaml does not resolve; what is left are booleans and null."""
    resolvers: dict[str, list[tuple[str, t.Any]]] = {}
    for first, found in _Reader.yaml_implicit_resolvers.items():
        resolvers[first] = [(tag, words) for tag, words in found if tag.rpartition(":")[2] not in _STAYS]
    _Reader.yaml_implicit_resolvers = resolvers
    for tag, words in (("int", _INT), ("float", _FLOAT)):
        _Reader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{words.pattern})$"), None)


if Loader is not object:
    _plain_words()


def write(config: t.Any) -> str:
    """The configuration as a text that reads back as the same; JSON, which is YAML, where the usual style does not."""
    text = str(yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=1000))
    reader = _Reader(text)
    reader.twice = []
    try:
        if reader.get_single_data() == config:
            return text
    finally:
        reader.dispose()
    return json.dumps(config, indent=2) + "\n"


def read(text: str, schema: Schema) -> tuple[t.Any, tuple[Fault, ...]]:
    """The configuration in the text, and what is wrong with the text itself.

    Nothing is in it (``None``) where the text is no YAML or more than one document.
    """
    reader = _Reader(text)
    reader.twice = []
    try:
        config = reader.get_single_data()
    except (yaml.YAMLError, ValueError) as error:
        words = " ".join(str(error).split())
        return None, (Fault("", "not_yaml", f"The text is not one YAML document: {words}.", "Mend the text."),)
    finally:
        reader.dispose()
    real: t.Literal["refuses", "drops"] = "refuses" if schema.strict else "drops"
    return config, tuple(
        Fault("", "duplicate_key", f"{key} is there twice, again in line {line}.", "Keep one of them.", real)
        for key, line in reader.twice
    )
