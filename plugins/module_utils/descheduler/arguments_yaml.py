# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler's configuration from YAML text, parsed as Go's YAML library parses it.

PyYAML alone would accept duplicate keys, and turn ``2026-01-01`` into a date and ``1:30`` into 90;
in Go both are strings.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    check,
    conversion,
    schemas,
)

try:
    import yaml

    Loader: t.Any = yaml.SafeLoader
except ImportError:  # PyYAML comes with the kubernetes package, whose absence is reported first
    Loader = object

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o?[0-7_]+|0b[01_]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BOOL = re.compile(
    r"[yYnN]|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF"
)
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_REPLACED = ("timestamp", "value", "int", "float", "bool")


class _Reader(Loader):
    """Records duplicate keys and values unknown to JSON; resolves plain scalars as go-yaml does."""

    duplicates: list[tuple[str, int]]
    unrepresentable: list[tuple[str, int]]

    def construct_mapping(self, node: t.Any, deep: bool = False) -> t.Any:
        self.flatten_mapping(node)
        seen = set[t.Any]()
        for key_node, _value in node.value:
            if key_node.tag == "tag:yaml.org,2002:null":
                self.unrepresentable.append(("null as a key", key_node.start_mark.line + 1))
            if key_node.value in seen:
                self.duplicates.append((str(key_node.value), key_node.start_mark.line + 1))
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_bool(self, node: t.Any) -> bool:
        return str(self.construct_scalar(node)).lower() in ("y", "yes", "true", "on")

    def construct_yaml_float(self, node: t.Any) -> t.Any:
        word = str(self.construct_scalar(node))
        if _NO_NUMBER.fullmatch(word):
            self.unrepresentable.append((word, node.start_mark.line + 1))
        number = super().construct_yaml_float(node)
        return word if number in (math.inf, -math.inf) else number


def _resolve_like_go() -> None:
    """Replace the resolvers that differ from go-yaml's; of PyYAML's own, null and merge remain."""
    resolvers: dict[str, list[tuple[str, t.Any]]] = {}
    for first, found in _Reader.yaml_implicit_resolvers.items():
        resolvers[first] = [
            (tag, words) for tag, words in found if tag.rpartition(":")[2] not in _REPLACED
        ]
    _Reader.yaml_implicit_resolvers = resolvers
    for tag, words in (("int", _INT), ("float", _FLOAT), ("float", _NO_NUMBER), ("bool", _BOOL)):
        _Reader.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{words.pattern})$"), None
        )
    _Reader.add_constructor("tag:yaml.org,2002:bool", _Reader.construct_yaml_bool)
    _Reader.add_constructor("tag:yaml.org,2002:float", _Reader.construct_yaml_float)


if Loader is not object:
    _resolve_like_go()


def write(config: t.Any) -> str:
    """The configuration as YAML that parses to the same value; as JSON if block style does not."""
    text = str(yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=1000))
    reader = _Reader(text)
    reader.duplicates = []
    try:
        if reader.get_single_data() == config:
            return text
    finally:
        reader.dispose()
    return json.dumps(config, indent=2) + "\n"


def read(text: str, schema: schemas.Schema) -> tuple[t.Any, tuple[schemas.Fault, ...]]:
    """The configuration in the text, and the faults of the text itself.

    The configuration is ``None`` if the text is not YAML. Only the first
    document is read, as in Go.
    """
    reader = _Reader(text)
    reader.duplicates = []
    reader.unrepresentable = []
    try:
        config = reader.get_data() if reader.check_data() else None
        more = _more(reader)
    except (yaml.YAMLError, ValueError) as error:
        words = " ".join(str(error).split())
        return None, (
            schemas.Fault(
                "not_yaml", f"The text is not valid YAML: {words}.", "Correct the text.", ""
            ),
        )
    finally:
        reader.dispose()
    real: t.Literal["refuses", "drops"] = "refuses" if schema.strict else "drops"
    faults = []
    for key, line in reader.duplicates:
        message = f"{key} is a duplicate key, again in line {line}."
        faults.append(schemas.Fault("duplicate_key", message, "Remove one of them.", "", real))
    for word, line in reader.unrepresentable:
        message = f"{word} in line {line} cannot be represented in JSON."
        faults.append(schemas.Fault("not_yaml", message, path=""))
    if more:
        faults.append(
            schemas.Fault(
                "not_yaml",
                "A second document follows, which is never read.",
                "Remove it.",
                "",
                "drops",
            )
        )
    return config, tuple(faults)


def _more(reader: t.Any) -> bool:
    """Whether anything follows the first document, valid or not."""
    try:
        return bool(reader.check_data())
    except yaml.YAMLError:
        return True


def to_koordinator(policy: t.Any, version: str = "1.7.0", interval: str = "") -> dict[str, t.Any]:
    """``config`` and ``left_out[{path, value, reason}]``; the policy is YAML text or a mapping.

    Raises:
        ValueError: the policy has errors, or the version is not supported.
    """
    known = check.VERSIONS["koordinator"]
    if version not in known:
        raise ValueError(f"version {version} is not supported; use one of {', '.join(known)}")
    if isinstance(policy, str):
        policy, faults = read(policy, check.schema_of("sigs"))
        if wrong := check.errors(faults):
            raise ValueError(
                f"the policy has errors: {'; '.join(fault.message for fault in wrong)}"
            )
    found = conversion.convert(policy, version, interval)
    left_out = [
        {"path": left.path, "value": left.value, "reason": left.reason} for left in found.left_out
    ]
    return {"config": found.config, "left_out": left_out}
