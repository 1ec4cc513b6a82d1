# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Go types that the real deschedulers decode a configuration into, told by programs built from the same modules.

The programs are components of their own in the lab's cache, so that the lab's are not built again for them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import lab_binaries
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import profiles, schemas
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import typed
from support.lab import CACHE, ROOT

COMPONENTS = ROOT / "roles" / "lab" / "files" / "components"
SOURCES = Path(__file__).parent / "go"
WHEEL: str = yaml.safe_load((ROOT / "roles" / "lab" / "defaults" / "main.yml").read_text("utf-8"))["lab_go_wheel"]

MODULES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("koordinator", "1.7.0"): ("koordinator", "koordinator.go"),
    ("koordinator", "1.8.0"): ("koordinator-next", "koordinator.go"),
    ("sigs", "0.36.0"): ("descheduler", "sigs.go"),
}
"""The lab's component with a flavor's version of the modules, and what lists the types of that flavor."""

Types = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Of the document and of each plugin's arguments the paths: ``go`` is the type, ``type`` what it is decoded from."""


JOB = "PodMigrationJobSpec"


def real(flavor: str, version: str) -> Types:
    """What the descheduler of this version decodes of its configuration."""
    return {root: paths for root, paths in everything(flavor, version).items() if root != JOB}


@functools.cache
def everything(flavor: str, version: str) -> Types:
    """What the descheduler of this version decodes: its configuration, and Koordinator's a PodMigrationJob too."""
    name, roots = MODULES[flavor, version]
    sources = [SOURCES / "main.go", SOURCES / roots]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    component = {"version": digest, "ldflags": "-s -w", "binaries": {"types": {"from": "types"}}}
    with tempfile.TemporaryDirectory() as made:
        module = Path(made) / f"{name}-types"
        (module / "types").mkdir(parents=True)
        for source in sources:
            (module / "types" / source.name).write_bytes(source.read_bytes())
        given = (COMPONENTS / name / "go.mod").read_text(encoding="utf-8")
        untooled = re.sub(r"^tool (\(.*?^\)|.*?$)", "", given, flags=re.MULTILINE | re.DOTALL)
        (module / "go.mod").write_text(f"{untooled}\ntool lab/{name}/types\n", encoding="utf-8")
        (module / "go.sum").write_bytes((COMPONENTS / name / "go.sum").read_bytes())
        go, _why = lab_binaries.toolchain([module.name], Path(made), CACHE, WHEEL)
        go = go or lab_binaries.install_toolchain({"cache": str(CACHE), "wheel": WHEEL})["go"]
        wanted = {"component": {module.name: component}, "source": made, "cache": str(CACHE), "go": go}
        folder = lab_binaries.build(wanted)["path"]
    told = subprocess.run([f"{folder}/types"], capture_output=True, check=True).stdout
    return cast("Types", json.loads(told))


_DECODED: Mapping[schemas.Type, tuple[str, ...]] = {
    "bool": ("bool",),
    "float": ("float32", "float64"),
    "string": ("string",),
    "address": ("string",),
    "selector_text": ("string",),
    "duration": ("v1.Duration",),
    "int_or_percent": ("intstr.IntOrString",),
    "float_or_string": ("config.Float64OrString",),
    "args": ("runtime.RawExtension",),
    "object": ("object",),
    "list": ("list",),
    "map": ("map",),
}

_WHOLE: Mapping[tuple[float, float], tuple[str, ...]] = {
    schemas.INT32: ("int32",),
    schemas.INT64: ("int64", "int"),
    schemas.UINT32: ("uint32",),
    schemas.UINT64: ("uint",),
}


def fits(field: schemas.Field, decoded: str) -> bool:
    """Whether the schema's type of a value is the one that Go decodes it from."""
    if field.type == "int" and field.width:
        return decoded in _WHOLE[field.width]
    wide = {"float32"} if field.width == schemas.FLOAT32 else {"float64"}
    return decoded in _DECODED[field.type] and (field.type != "float" or decoded in wide)


def known(schema: schemas.Schema) -> dict[str, dict[str, schemas.Field]]:
    """The schema's fields by document or plugin and path."""
    roots = {schema.kind: schema.root}
    roots |= {name: plugin.args for name, plugin in schema.plugins.items() if schema.knows(plugin.since)}
    return {
        name: dict(_flat(replace(root, fields={**profiles.TYPE_META, **root.fields}), "", schema))
        for name, root in roots.items()
    }


def _flat(field: schemas.Field, path: str, schema: schemas.Schema) -> Iterator[tuple[str, schemas.Field]]:
    if path:
        yield path, field
    for key, inner in field.fields.items():
        if schema.knows(inner.since):
            yield from _flat(inner, f"{path}.{key}".lstrip("."), schema)
    if field.item:
        yield from _flat(field.item, f"{path}[]" if field.type == "list" else f"{path}.*", schema)


def differences(schema: schemas.Schema, types: Types) -> list[str]:
    """Where the schema is not what the descheduler decodes: missing, surplus, or of another type."""
    found = list[str]()
    ours = known(schema)
    for root in sorted({*ours, *types}):
        here, there = ours.get(root, {}), types.get(root, {})
        found += [f"{root} {path}: not in the schema, {there[path]['go']}" for path in sorted({*there} - {*here})]
        found += [f"{root} {path}: the descheduler has none" for path in sorted({*here} - {*there})]
        for path in sorted({*here} & {*there}):
            if not fits(here[path], there[path]["type"]):
                found.append(
                    f"{root} {path}: {here[path].type} in the schema, {there[path]['type']} in the descheduler"
                )
    return found


_JOB_KINDS = {
    "str": "string",
    "quantity": "resource.Quantity",
    "time": "v1.Time",
    "duration": "v1.Duration",
}


def job_fields() -> dict[str, str]:
    """What our table of a PodMigrationJob's types holds: paths, and what they are decoded from (``-``: left out)."""
    roots = (("DeleteOptions", "deleteOptions"), ("ReservationTemplateSpec", "reservationOptions.template"))
    return dict(pair for kind, path in roots for pair in _job_fields(kind, path))


def _job_fields(kind: str, path: str) -> Iterator[tuple[str, str]]:
    if kind.startswith("["):
        yield path, "list"
        yield from _job_fields(kind[1:-1], f"{path}[]")
    elif kind.startswith("{"):
        yield path, "map"
        yield from _job_fields(kind[1:-1], f"{path}.*")
    elif kind in typed.TYPES:
        yield path, "object"
        for name, inner in typed.TYPES[kind].items():
            yield from _job_fields(inner, f"{path}.{name}")
    else:
        yield path, _JOB_KINDS.get(kind, kind)


def real_job_fields() -> dict[str, str]:
    """The same of what either Koordinator decodes, as far as our table has what it is part of."""
    ours, found = job_fields(), dict[str, str]()
    for flavor, version in MODULES:
        for path, field in everything(flavor, version).get(JOB, {}).items():
            parent = path[:-2] if path.endswith("[]") else path.rpartition(".")[0]
            if path in ours or (ours.get(parent) == "object" and f"{parent}.*" not in ours):
                found[path] = "-" if ours.get(path) == "-" else field["type"]
    return found
