# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs the archive that `ansible-galaxy collection build` made anew,
so that equal sources give equal bytes.

    python .ci/repack.py kubeops-node_maintenance-1.0.0.tar.gz SECONDS

What differs between two builds are the times in it, the user, and the order of the files, also in
FILES.json, whose checksum is in MANIFEST.json. SECONDS, since the epoch,
becomes the time of every file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

LISTS = ("MANIFEST.json", "FILES.json")


def dumped(value: object) -> bytes:
    """JSON as ansible-galaxy writes it."""
    return json.dumps(value, indent=True).encode()


def repacked(archive: bytes, seconds: int) -> bytes:
    """The archive with its files in order, of one time and of nobody."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as old:
        members = old.getmembers()
        files = ((one, old.extractfile(one)) for one in members if one.isfile())
        contents = {one.name: file.read() for one, file in files if file}
    listed = json.loads(contents["FILES.json"])
    listed["files"].sort(key=lambda file: file["name"])
    contents["FILES.json"] = dumped(listed)
    manifest = json.loads(contents["MANIFEST.json"])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(
        contents["FILES.json"]
    ).hexdigest()
    contents["MANIFEST.json"] = dumped(manifest)
    packed, told = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(members, key=lambda one: (one.name not in LISTS, one.name)):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.pax_headers = {}
            content = contents.get(member.name)
            member.size = len(content) if content is not None else 0
            new.addfile(member, io.BytesIO(content) if content is not None else None)
    with gzip.GzipFile(filename="", mode="wb", fileobj=told, mtime=seconds) as zipped:
        zipped.write(packed.getvalue())
    return told.getvalue()


def main(path: Path, seconds: int) -> None:
    """Replaces the archive and writes its checksum next to it, as sha256sum does."""
    packed = repacked(path.read_bytes(), seconds)
    path.write_bytes(packed)
    told = f"{hashlib.sha256(packed).hexdigest()}  {path.name}\n"
    path.with_name(f"{path.name}.sha256").write_text(told, encoding="ascii")
    print(told, end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
