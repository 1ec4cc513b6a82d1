# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Validation of a whole configuration before a descheduler reads it."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    cross_field_checks,
    koordinator,
    profiles,
    schemas,
    sigs,
    values,
)

VERSIONS: t.Mapping[schemas.Flavor, tuple[str, ...]] = {
    "koordinator": koordinator.VERSIONS,
    "ack": koordinator.VERSIONS,
    "sigs": sigs.VERSIONS,
}
"""The supported versions; the first is the default."""


def schema_of(flavor: schemas.Flavor, version: str = "") -> schemas.Schema:
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


def check(config: t.Any, schema: schemas.Schema) -> tuple[schemas.Fault, ...]:
    """Every error and warning. ``config`` is the parsed YAML: dicts, lists and scalars."""
    if not isinstance(config, dict):
        given = "nothing" if config is None else type(config).__name__
        real: schemas.Real = "starts" if config is None and not schema.strict else "refuses"
        message = f"A {schema.kind} is keys and values, not {given}."
        remedy = (
            "Read a file with lookup('ansible.builtin.file', …)." if isinstance(config, str) else ""
        )
        return (schemas.Fault("wrong_type", message, remedy, real=real),)
    config = _keyed(config)
    root = replace(schema.root, fields={**profiles.TYPE_META, **schema.root.fields})
    found = [*_document(config, schema)]
    found += (
        _refined(fault, config, schema)
        for fault in values.Reader(schema, schema.strict).faults(root, config, "")
    )
    found += profiles.faults(config, schema)
    found += cross_field_checks.faults(config, schema)
    return tuple(dict.fromkeys(_of_flavor(fault, schema) for fault in found))


def _keyed(value: t.Any) -> t.Any:
    """The value with strings as keys, as in JSON."""
    if isinstance(value, dict):
        return {
            k if isinstance(k, str) else json.dumps(k, default=str): _keyed(inner)
            for k, inner in value.items()
        }
    return [_keyed(inner) for inner in value] if isinstance(value, list) else value


_NO_PORT = re.compile(r":(?:0+|[^\d:\]][^:\]]*)$")


def _refined(
    fault: schemas.Fault, config: t.Mapping[str, t.Any], schema: schemas.Schema
) -> schemas.Fault:
    """The fault with what the schema cannot express about the document's own settings.

    Since 1.8.0 the descheduler starts with an address whose port is 0 or not a number; it just does
    not listen. ``ValidateLeaderElectionConfiguration`` skips everything if leaderElect is false.
    """
    if fault.code == "malformed" and fault.path.endswith("BindAddress") and schema.knows("1.8.0"):
        value = config[fault.path]
        if isinstance(value, str) and _NO_PORT.search(value):
            return replace(fault, real="starts")
        return fault
    off = profiles.dict_at(config, "leaderElection").get("leaderElect") is False
    if off and fault.path.startswith("leaderElection.") and not fault.decoding:
        return replace(fault, severity="warning", real="starts")
    return fault


def errors(faults: t.Iterable[schemas.Fault]) -> tuple[schemas.Fault, ...]:
    """The errors among the faults."""
    return tuple(fault for fault in faults if fault.severity == "error")


def _document(config: t.Mapping[str, t.Any], schema: schemas.Schema) -> schemas.Faults:
    flavor = "koordinator or ack" if schema.name == "sigs" else "sigs"
    other = (koordinator if schema.name == "sigs" else sigs).schema().kind
    for key, wanted in (("apiVersion", schema.api_version), ("kind", schema.kind)):
        given = config.get(key)
        if given != wanted:
            message = f"{key} is {values.shown(given)}." if given else f"{key} is missing."
            remedy = f"Write {key}: {wanted}."
            if given == other:
                remedy += f" For a {other} set flavor: {flavor}."
            rule = "wrong_document"
            if isinstance(given, str) and values.similar(given, [wanted]):
                rule = "look_alike"
            yield schemas.Fault(
                rule,
                message,
                remedy,
                key,
                "starts" if not given and not schema.strict else "refuses",
            )


def _of_flavor(fault: schemas.Fault, schema: schemas.Schema) -> schemas.Fault:
    """ACK's documentation calls the policy Soft; ACK's build was not available for a test."""
    if schema.name == "ack" and fault.path.endswith(".evictionPolicy") and fault.word == "Soft":
        remedy = (
            "ACK's documentation says Soft, Koordinator's binary accepts only SoftEviction: "
            "try it on a canary."
        )
        return replace(fault, severity="warning", remedy=remedy)
    return fault


# The version of a descheduler, by its image, and whether the rules that are applied fit it.
#
# koord-descheduler 1.7.0 and 1.8.0 serve no ``/version``, so the image's tag is the only source.
# The minimum versions are those of Koordinator's and ACK's documentation.


KUBERNETES = (1, 18)
"""The oldest Kubernetes on which PodMigrationJobs work."""

OLDEST: t.Mapping[schemas.Flavor, tuple[tuple[int, ...], str]] = {
    "koordinator": ((0, 6, 0), "0.6"),
    "ack": ((1, 2, 0, 2), "v1.2.0-ack.2"),
}
"""The oldest version with PodMigrationJobs, and how its documentation writes it.
The fourth number is ACK's own.
"""

_TAG = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-ack\.(\d+))?(?:[-+].*)?")

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """``applied``: whose rules apply; ``image``: the image's tag without ``v``, empty if none."""

    applied: str
    image: str = ""
    faults: tuple[schemas.Fault, ...] = ()


def numbers(tag: str) -> Numbers:
    """The numbers of a version such as ``v1.7.0`` or ``v1.2.0-ack.2``; empty for something else."""
    found = _TAG.fullmatch(tag)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def judged(flavor: schemas.Flavor, given: str, image: str, kubernetes: str) -> Found:
    """Which rules apply: those of the ``given`` version, else those closest to the image's.

    ``kubernetes`` is the API server's ``gitVersion``, empty if it could not be read.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = numbers(tag)
    chosen = given or _closest(flavor, found)
    faults = (
        *_image_faults(flavor, given, chosen, image, found),
        *_kubernetes_faults(flavor, kubernetes),
    )
    return Found(chosen, tag.removeprefix("v") if found else "", faults)


def _closest(flavor: schemas.Flavor, found: Numbers) -> str:
    """The newest supported version that is not newer; ACK's numbers are its own."""
    known = VERSIONS[flavor]
    if not found or flavor == "ack":
        return known[0]
    older = [version for version in known if numbers(version) <= found]
    return max(older, key=numbers) if older else min(known, key=numbers)


def _image_faults(
    flavor: schemas.Flavor, given: str, chosen: str, image: str, found: Numbers
) -> schemas.Faults:
    if not found:
        return
    oldest, written = OLDEST.get(flavor, ((), ""))
    if found < oldest[: len(found)]:
        message = (
            f"The image is {image}, which is older than {written}, "
            "the first version with PodMigrationJobs."
        )
        fault = schemas.Fault(
            "too_old",
            message,
            "Update it, or set version if its tag says something else.",
            "version",
        )
        yield schemas.warning(fault.code, message, "Update it.", "version") if given else fault
    elif flavor != "ack" and found[:2] != numbers(chosen)[:2]:
        remedy = (
            f"Set version to one of {', '.join(VERSIONS[flavor])}, or omit it." if given else ""
        )
        message = f"The image is {image}, but the rules of {chosen} apply."
        yield schemas.warning(
            "version_mismatch" if given else "unknown_version", message, remedy, "version"
        )


def _kubernetes_faults(flavor: schemas.Flavor, kubernetes: str) -> schemas.Faults:
    found = numbers(kubernetes)
    if flavor != "sigs" and found and found < KUBERNETES:
        message = f"Kubernetes is {kubernetes}; PodMigrationJobs need 1.18 or later."
        yield schemas.Fault("too_old", message, "Update the cluster.", "version")
