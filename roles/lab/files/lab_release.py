# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Downloads released binaries whose checksums are known, so that they need not be built.

Reads one JSON object from stdin, prints one to stdout:

    {components, source, cache, mirror, checksums} -> {taken: [component], notes: [sentence]}

`components` are those of lab_binaries.py. One that is released has `download: {address, files:
{name: path}}`, and `member` where the files are archives: the path in them. `{arch}` in paths is
this machine's. `checksums` maps a path to its SHA-256. `mirror` replaces the addresses; empty,
nothing is asked. A component is taken with all of its files or not at all, and what is not taken is
built: no failure here is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sys
import tarfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab_binaries import MANIFEST, defect, emerging, folder
from lab_place import alone

CONNECT = 2.0
"""Seconds for finding and reaching a server."""
STALL = 10.0
"""Seconds without a byte after which a download is given up."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OFFICIAL = "official"


class Refused(Exception):
    """A component is not taken; why."""


@dataclass
class Servers:
    """Where files come from; a server that was out of reach once is not asked again."""

    mirror: str
    checksums: Mapping[str, str]
    wrong: dict[str, str] = field(default_factory=dict)

    def download(self, address: str, path: str, target: Path) -> None:
        """Stores a file that has its checksum; it cannot be executed."""
        if path not in self.checksums:
            raise Refused(f"no checksum of {path} is known (lab_checksums)")
        server = address if self.mirror == OFFICIAL else self.mirror.rstrip("/")
        if server not in self.wrong:
            self.wrong[server] = out_of_reach(server)
        if self.wrong[server]:
            raise Refused(f"{server} is out of reach ({self.wrong[server]})")
        url = f"{server}/{path}"
        digest = hashlib.sha256()
        try:
            with urllib.request.urlopen(url, timeout=STALL) as answer, target.open("wb") as out:
                while part := answer.read(1 << 20):
                    digest.update(part)
                    out.write(part)
        except (OSError, ValueError) as error:
            raise Refused(f"{url}: {error}") from error
        if digest.hexdigest() != self.checksums[path].lower():
            target.unlink()
            raise Refused(
                f"{url} has the SHA-256 {digest.hexdigest()} and not "
                f"{self.checksums[path]}: refused"
            )


def out_of_reach(server: str) -> str:
    """Why no connection to a server, or to the proxy for it,
    comes about at once; empty if one does.
    """
    parts = urllib.parse.urlsplit(server)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname or ""):
        parts = urllib.parse.urlsplit(proxy)
    said = ["no answer"]

    def connect() -> None:
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), timeout=CONNECT).close()
        except (OSError, ValueError) as error:
            said[0] = str(error)
        else:
            said[0] = ""

    # Looking a name up knows no time-out.
    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(CONNECT)
    return said[0]


def take(
    name: str, component: Mapping[str, Any], source: Path, cache: Path, servers: Servers
) -> None:
    """Downloads all binaries of a component to where its build would put them."""
    architecture = ARCHITECTURES.get(os.uname().machine, os.uname().machine)
    release = component["download"]
    target = folder(name, component, source, cache)
    with alone(cache / f".{name}.lock"):
        if not defect(target, component):
            return
        with emerging(target) as part:
            sizes = {}
            for binary, path in release["files"].items():
                file = part / binary
                servers.download(release["address"], path.format(arch=architecture), file)
                if "member" in release:
                    unpack(file, release["member"].format(arch=architecture))
                sizes[binary] = file.stat().st_size
            for binary in sizes:
                (part / binary).chmod(0o755)
            (part / MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")


def unpack(archive: Path, member: str) -> None:
    """Replaces an archive by one of its files."""
    extracted = archive.with_suffix(".member")
    try:
        with tarfile.open(archive) as tar:
            found = tar.extractfile(member)
            if found is None:
                raise Refused(f"{member} of {archive.name}'s archive is no file")
            with found, extracted.open("wb") as out:
                shutil.copyfileobj(found, out)
    except (tarfile.TarError, KeyError) as error:
        raise Refused(f"{archive.name}'s archive has no {member} ({error})") from error
    extracted.replace(archive)


def fetch(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """What was taken, and for what is released but was not, why."""
    servers = Servers(given["mirror"], given["checksums"])
    source, cache = Path(given["source"]), Path(given["cache"])
    taken, notes = [], []
    for name, component in given["components"].items():
        if not given["mirror"] or "download" not in component:
            continue
        try:
            take(name, component, source, cache, servers)
        except (Refused, OSError) as why:
            notes.append(f"{name} is built: {why}")
        else:
            taken.append(name)
    return {"taken": taken, "notes": notes}


if __name__ == "__main__":
    print(json.dumps(fetch(json.load(sys.stdin))))
