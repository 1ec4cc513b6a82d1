# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler's configuration judged before any descheduler sees it."""

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
"""The versions whose sources were read; the first is the default."""


def schema_of(flavor: Flavor, version: str = "") -> schemas.Schema:
    """The schema of a flavor, of the first of ``VERSIONS`` unless named.

    Raises:
        KeyError: nobody read that version.
    """
    version = version or VERSIONS[flavor][0]
    if version not in VERSIONS[flavor]:
        raise KeyError(version)
    if flavor == "sigs":
        return sigs.schema(version)
    return koordinator.schema(version, ack=flavor == "ack")


def check(config: t.Any, schema: schemas.Schema) -> tuple[rules.Fault, ...]:
    """Everything that is wrong with the configuration, in the order of the document; errors and warnings.

    ``config`` is what was in the YAML: plain dicts, lists, texts, numbers, booleans and ``None``.
    """
    if not isinstance(config, dict):
        message = f"A {schema.kind} is keys and values, not {'nothing' if config is None else type(config).__name__}."
        return (
            rules.Fault("wrong_type", message, "", "", "starts" if config is None and not schema.strict else "refuses"),
        )
    config = _keyed(config)
    root = replace(schema.root, fields={**profiles.document(), **schema.root.fields})
    found = [*_document(config, schema)]
    found += (_asked(fault, config, schema) for fault in values.Reader(schema, schema.strict).faults(root, config, ""))
    found += profiles.faults(config, schema)
    found += traps.faults(config, schema)
    return tuple(dict.fromkeys(_of_flavor(fault, schema) for fault in found))


_NO_PORT = re.compile(r":(?:0+|[^\d:\]][^:\]]*)$")


def _asked(fault: rules.Fault, config: t.Mapping[str, t.Any], schema: schemas.Schema) -> rules.Fault:
    """``ValidateLeaderElectionConfiguration`` looks at nothing while leaderElect is false.

    Since 1.8.0 an address whose port is no number, or 0, only means that nobody listens.
    """
    if fault.code == "malformed" and fault.path.endswith("BindAddress") and schema.knows("1.8.0"):
        value = config[fault.path]
        return replace(fault, real="starts") if isinstance(value, str) and _NO_PORT.search(value) else fault
    election = config.get("leaderElection")
    off = isinstance(election, dict) and election.get("leaderElect") is False
    if off and fault.path.startswith("leaderElection.") and not fault.decoding:
        return replace(fault, severity="warning", real="starts")
    return fault


def _keyed(value: t.Any) -> t.Any:
    """The value with texts for keys, as YAML's keys become JSON's."""
    if isinstance(value, dict):
        return {_key(key): _keyed(inner) for key, inner in value.items()}
    return [_keyed(inner) for inner in value] if isinstance(value, list) else value


def _key(key: t.Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=str)


def errors(faults: t.Iterable[rules.Fault]) -> tuple[rules.Fault, ...]:
    """Those that stop a configuration."""
    return tuple(fault for fault in faults if fault.severity == "error")


def _document(config: t.Mapping[str, t.Any], schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    for key, wanted in (("apiVersion", schema.api_version), ("kind", schema.kind)):
        given = config.get(key)
        if given != wanted:
            message = f"{key} is {given!r}." if given else f"{key} is missing."
            remedy = f"Write {key}: {wanted}."
            other = sigs.schema().kind if schema.name != "sigs" else koordinator.schema().kind
            if given == other:
                remedy += f" A {other} is of flavor {'sigs' if schema.name != 'sigs' else 'koordinator or ack'}."
            rule = "look_alike" if isinstance(given, str) and values.similar(given, [wanted]) else "wrong_document"
            yield rules.Fault(rule, message, remedy, key, "starts" if not given and not schema.strict else "refuses")


def _of_flavor(fault: rules.Fault, schema: schemas.Schema) -> rules.Fault:
    """ACK's page calls the policy Soft; whether its build does nobody could see."""
    if schema.name == "ack" and fault.path.endswith(".evictionPolicy") and "'Soft'" in fault.message:
        remedy = "ACK's page says Soft, Koordinator's own binary knows SoftEviction alone: try it on a canary."
        return replace(fault, severity="warning", remedy=remedy)
    return fault
