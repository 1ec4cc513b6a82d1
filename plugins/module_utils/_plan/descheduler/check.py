# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Validation of a whole configuration before a descheduler reads it."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    koordinator,
    profiles,
    rules,
    schemas,
    sigs,
    traps,
    values,
)

Flavor = t.Literal["koordinator", "ack", "sigs"]

VERSIONS: t.Mapping[Flavor, tuple[str, ...]] = {
    "koordinator": koordinator.VERSIONS,
    "ack": koordinator.VERSIONS,
    "sigs": sigs.VERSIONS,
}
"""The supported versions; the first is the default."""


def schema_of(flavor: Flavor, version: str = "") -> schemas.Schema:
    """The schema of a flavor in the given version, by default the first of ``VERSIONS``.

    Raises:
        KeyError: the version is not supported.
    """
    version = version or VERSIONS[flavor][0]
    if version not in VERSIONS[flavor]:
        raise KeyError(version)
    if flavor == "sigs":
        return sigs.schema(version)
    return koordinator.schema(version, ack=flavor == "ack")


def check(config: t.Any, schema: schemas.Schema) -> tuple[rules.Fault, ...]:
    """Every error and warning. ``config`` is the parsed YAML: dicts, lists and scalars."""
    if not isinstance(config, dict):
        given = "nothing" if config is None else type(config).__name__
        real: schemas.Real = "starts" if config is None and not schema.strict else "refuses"
        message = f"A {schema.kind} is keys and values, not {given}."
        remedy = "Read a file with lookup('ansible.builtin.file', …)." if isinstance(config, str) else ""
        return (rules.Fault("wrong_type", message, remedy, real=real),)
    config = _keyed(config)
    root = replace(schema.root, fields={**profiles.TYPE_META, **schema.root.fields})
    found = [*_document(config, schema)]
    found += (
        _refined(fault, config, schema) for fault in values.Reader(schema, schema.strict).faults(root, config, "")
    )
    found += profiles.faults(config, schema)
    found += traps.faults(config, schema)
    return tuple(dict.fromkeys(_of_flavor(fault, schema) for fault in found))


def _keyed(value: t.Any) -> t.Any:
    """The value with strings as keys, as in JSON."""
    if isinstance(value, dict):
        return {k if isinstance(k, str) else json.dumps(k, default=str): _keyed(inner) for k, inner in value.items()}
    return [_keyed(inner) for inner in value] if isinstance(value, list) else value


_NO_PORT = re.compile(r":(?:0+|[^\d:\]][^:\]]*)$")


def _refined(fault: rules.Fault, config: t.Mapping[str, t.Any], schema: schemas.Schema) -> rules.Fault:
    """The fault with what the schema cannot express about the document's own settings.

    Since 1.8.0 the descheduler starts with an address whose port is 0 or not a number; it just does not listen.
    ``ValidateLeaderElectionConfiguration`` skips everything if leaderElect is false.
    """
    if fault.code == "malformed" and fault.path.endswith("BindAddress") and schema.knows("1.8.0"):
        value = config[fault.path]
        return replace(fault, real="starts") if isinstance(value, str) and _NO_PORT.search(value) else fault
    off = profiles.dict_at(config, "leaderElection").get("leaderElect") is False
    if off and fault.path.startswith("leaderElection.") and not fault.decoding:
        return replace(fault, severity="warning", real="starts")
    return fault


def errors(faults: t.Iterable[rules.Fault]) -> tuple[rules.Fault, ...]:
    """The errors among the faults."""
    return tuple(fault for fault in faults if fault.severity == "error")


def _document(config: t.Mapping[str, t.Any], schema: schemas.Schema) -> rules.Faults:
    flavor = "koordinator or ack" if schema.name == "sigs" else "sigs"
    other = (koordinator if schema.name == "sigs" else sigs).schema().kind
    for key, wanted in (("apiVersion", schema.api_version), ("kind", schema.kind)):
        given = config.get(key)
        if given != wanted:
            message = f"{key} is {values.shown(given)}." if given else f"{key} is missing."
            remedy = f"Write {key}: {wanted}." + (f" For a {other} set flavor: {flavor}." if given == other else "")
            rule = "look_alike" if isinstance(given, str) and values.similar(given, [wanted]) else "wrong_document"
            yield rules.Fault(rule, message, remedy, key, "starts" if not given and not schema.strict else "refuses")


def _of_flavor(fault: rules.Fault, schema: schemas.Schema) -> rules.Fault:
    """ACK's documentation calls the policy Soft; ACK's build was not available for a test."""
    if schema.name == "ack" and fault.path.endswith(".evictionPolicy") and "'Soft'" in fault.message:
        remedy = "ACK's documentation says Soft, Koordinator's binary accepts only SoftEviction: try it on a canary."
        return replace(fault, severity="warning", remedy=remedy)
    return fault
