# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler's configuration from its text, read as Go's YAML library reads it.

PyYAML alone would let a key stand twice, and make dates of ``2026-01-01`` and ninety of ``1:30``; in Go both
stay texts.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import rules, schemas

try:
    import yaml

    Loader: t.Any = yaml.SafeLoader
except ImportError:  # PyYAML comes with the kubernetes package, whose absence is told before
    Loader = object

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o?[0-7_]+|0b[01_]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BOOL = re.compile(r"[yYnN]|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_GOES = ("timestamp", "value", "int", "float", "bool")


class _Reader(Loader):
    """Notes keys that are there twice and numbers JSON has no word for, and resolves plain words as go-yaml does."""

    twice: list[tuple[str, int]]
    strange: list[tuple[str, int]]

    def construct_mapping(self, node: t.Any, deep: bool = False) -> t.Any:
        self.flatten_mapping(node)
        seen = set[t.Any]()
        for key_node, _value in node.value:
            if key_node.tag == "tag:yaml.org,2002:null":
                self.strange.append(("null as a key", key_node.start_mark.line + 1))
            if key_node.value in seen:
                self.twice.append((str(key_node.value), key_node.start_mark.line + 1))
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_bool(self, node: t.Any) -> bool:
        return str(self.construct_scalar(node)).lower() in ("y", "yes", "true", "on")

    def construct_yaml_float(self, node: t.Any) -> t.Any:
        word = str(self.construct_scalar(node))
        if _NO_NUMBER.fullmatch(word):
            self.strange.append((word, node.start_mark.line + 1))
        number = super().construct_yaml_float(node)
        return word if number in (math.inf, -math.inf) else number


def _plain_words() -> None:
    """Take from the reader what go-yaml resolves otherwise, or not at all; what is left is null."""
    resolvers: dict[str, list[tuple[str, t.Any]]] = {}
    for first, found in _Reader.yaml_implicit_resolvers.items():
        resolvers[first] = [(tag, words) for tag, words in found if tag.rpartition(":")[2] not in _GOES]
    _Reader.yaml_implicit_resolvers = resolvers
    for tag, words in (("int", _INT), ("float", _FLOAT), ("float", _NO_NUMBER), ("bool", _BOOL)):
        _Reader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{words.pattern})$"), None)
    _Reader.add_constructor("tag:yaml.org,2002:bool", _Reader.construct_yaml_bool)
    _Reader.add_constructor("tag:yaml.org,2002:float", _Reader.construct_yaml_float)


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


def read(text: str, schema: schemas.Schema) -> tuple[t.Any, tuple[rules.Fault, ...]]:
    """The configuration in the text, and what is wrong with the text itself.

    Nothing is in it (``None``) where the text is no YAML. Of several documents the first is read, as in Go.
    """
    reader = _Reader(text)
    reader.twice, reader.strange = [], []
    try:
        config = reader.get_data() if reader.check_data() else None
        more = _more(reader)
    except (yaml.YAMLError, ValueError) as error:
        words = " ".join(str(error).split())
        return None, (rules.Fault("not_yaml", f"The text is not YAML: {words}.", "Mend the text.", ""),)
    finally:
        reader.dispose()
    real: t.Literal["refuses", "drops"] = "refuses" if schema.strict else "drops"
    said = [
        rules.Fault("duplicate_key", f"{key} is there twice, again in line {line}.", "Keep one of them.", "", real)
        for key, line in reader.twice
    ]
    said += [
        rules.Fault("not_yaml", f"{word} in line {line} has no word in JSON.", path="") for word, line in reader.strange
    ]
    if more:
        said.append(rules.Fault("not_yaml", "A second document follows; nobody reads it.", "Remove it.", "", "drops"))
    return config, tuple(said)


def _more(reader: t.Any) -> bool:
    """Whether anything follows the first document, right or wrong."""
    try:
        return bool(reader.check_data())
    except yaml.YAMLError:
        return True
