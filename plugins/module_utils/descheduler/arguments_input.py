# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintain_descheduler``: what to do with the descheduler around a maintenance."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    arguments,
    arguments_yaml,
    check,
    installation,
    schemas,
    values,
)

OPTIONS = (*(name for name in arguments.SPEC.options if name not in ("state", "run")), "pause")
EXPECTED = (
    "arguments of the role descheduler without their prefix, such as {flavor: "
    "koordinator, config: {…}}"
)


def read(name: str, value: t.Any) -> dict[str, t.Any]:
    """The arguments, given as keys and values or as YAML text from a survey;
    the configuration is valid.

    Raises:
        BadOption: an argument does not exist, or its value or the configuration is invalid.
    """
    if isinstance(value, str):
        value, _faults = arguments_yaml.read(value, check.schema_of("koordinator"))
    given = specs.plain(value)
    if not isinstance(given, dict):
        raise option_values.BadOption(name, value, EXPECTED)
    for key, inner in given.items():
        if key not in OPTIONS:
            right = values.similar(key, OPTIONS)
            raise option_values.BadOption(
                f"{name}.{key}", inner, right or f"one of {', '.join(OPTIONS)}"
            )
        choices = arguments.SPEC.options.get(key, {}).get("choices")
        if choices and inner not in choices:
            raise option_values.BadOption(f"{name}.{key}", inner, f"one of {', '.join(choices)}")
    found = {key: inner for key, inner in given.items() if inner not in (None, "")}
    try:
        found["pause"] = bool(boolean(found.get("pause", False)))
    except TypeError:
        raise option_values.BadOption(f"{name}.pause", found["pause"], "true or false") from None
    if "config" in found:
        _check(f"{name}.config", found)
    elif not found["pause"]:
        raise option_values.BadOption(name, value, f"{EXPECTED}, or {{pause: true}}")
    return found


def _check(name: str, found: t.Mapping[str, t.Any]) -> None:
    flavor = t.cast("schemas.Flavor", found.get("flavor", "koordinator"))
    schema = arguments.schema_of(name, flavor, str(found.get("version", "")))
    key = str(found.get("key") or installation.DEFAULT_LOCATIONS[flavor].key)
    given = arguments.unpacked(name, found["config"], schema, key).config
    given = arguments.overridden(given, found.get("overrides"), schema)
    _config, faults = arguments.checked(given, schema, found.get("validate", "strict"))
    wrong = " ".join(f"{fault.path or 'it'}: {fault.sentence}" for fault in check.errors(faults))
    if wrong:
        raise option_values.BadOption(
            name, "the configuration", f"a valid {schema.kind}. {wrong}".rstrip(".")
        )
