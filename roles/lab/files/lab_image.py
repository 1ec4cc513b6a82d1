# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a container image of one static binary, as an archive that containerd
imports under many names.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

OCI = "application/vnd.oci.image"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(archive: Path, binary: Path, names: Iterable[str]) -> None:
    """The image, whose entry point is the binary, by the OCI image specification v1.1."""
    layer = tar({binary.name: binary.read_bytes()})
    config = as_json(
        {
            "architecture": MACHINES.get(os.uname().machine, os.uname().machine),
            "os": "linux",
            "config": {"Entrypoint": [f"/{binary.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
    )
    manifest = as_json(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": descriptor(f"{OCI}.config.v1+json", config),
            "layers": [descriptor(f"{OCI}.layer.v1.tar", layer)],
        }
    )
    entry = descriptor(f"{OCI}.manifest.v1+json", manifest)
    entries = [{**entry, "annotations": {"io.containerd.image.name": name}} for name in names]
    files = {
        "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": as_json({"schemaVersion": 2, "manifests": entries}),
        **{
            f"blobs/sha256/{digest(blob).removeprefix('sha256:')}": blob
            for blob in (layer, config, manifest)
        },
    }
    archive.write_bytes(tar(files))


def digest(blob: bytes) -> str:
    """A blob's name."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    """How others refer to a blob."""
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}


def as_json(thing: Mapping[str, Any]) -> bytes:
    """One of the image's documents."""
    return json.dumps(thing).encode()


def tar(files: Mapping[str, bytes]) -> bytes:
    """An archive of executable files of root, the same each time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()
