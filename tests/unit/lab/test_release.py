# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Released binaries are taken from a mirror if they have their checksums, and from nowhere else."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLE = Path(__file__).resolve().parents[3] / "roles" / "lab"
VARIABLES = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
PROGRAM = b"#!/bin/sh\necho v1.0.0\n"


class Mirror:
    """A server on loopback with these files."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def __getattr__(self, name: str) -> Any:
                if name != "do_GET":
                    raise AttributeError(name)
                return self.answer

            def answer(self) -> None:
                outer.asked.append(self.path)
                found = outer.files.get(self.path)
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(found or b"")))
                self.end_headers()
                self.wfile.write(found or b"")

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    made = Mirror()
    yield made
    made.close()


class Lab:
    """The components of a small lab: tool, a program, and packed, one in an archive."""

    def __init__(self, folder: Path) -> None:
        self.source, self.cache = folder / "source", folder / "cache"
        self.cache.mkdir()
        for name in ("tool", "packed"):
            (self.source / name).mkdir(parents=True)
            (self.source / name / "go.mod").write_text("go 1.24\n")
            (self.source / name / "go.sum").write_text("")
        base = {"version": "v1.0.0", "seconds": 1, "ldflags": ""}
        self.components: dict[str, Any] = {
            "tool": {
                **base,
                "binaries": {name: {"from": name, "version": []} for name in ("tool", "toolctl")},
                "download": {
                    "address": "https://released.invalid",
                    "files": {"tool": "v1/tool-{arch}", "toolctl": "v1/toolctl-{arch}"},
                },
            },
            "packed": {
                **base,
                "binaries": {"packed": {"from": "packed", "version": []}},
                "download": {
                    "address": "https://released.invalid",
                    "files": {"packed": "v1/packed-{arch}.tar.gz"},
                    "member": "packed-{arch}/packed",
                },
            },
        }

    def run(self, script: str, *words: str, **more: Any) -> dict[str, Any]:
        given = {"components": self.components, "source": str(self.source), "cache": str(self.cache), **more}
        done = subprocess.run(
            [sys.executable, str(ROLE / "files" / script), *words],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def fetch(self, mirror: str, checksums: dict[str, str]) -> dict[str, Any]:
        return self.run("lab_release.py", mirror=mirror, checksums=checksums)

    def missing(self) -> list[str]:
        found: list[str] = self.run("lab_binaries.py", "locate", bin_dir="", wheel="")["missing"]
        return found

    def executable(self) -> list[Path]:
        return [path for path in self.cache.rglob("*") if path.is_file() and os.access(path, os.X_OK)]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        entry = tarfile.TarInfo(f"packed-{ARCHITECTURE}/packed")
        entry.size = len(PROGRAM)
        tar.addfile(entry, io.BytesIO(PROGRAM))
    return made.getvalue()


def released(mirror: Mirror) -> dict[str, str]:
    """Puts everything on the mirror; returns the checksums by path."""
    paths = {f"v1/{name}-{ARCHITECTURE}": PROGRAM for name in ("tool", "toolctl")}
    paths[f"v1/packed-{ARCHITECTURE}.tar.gz"] = archive()
    mirror.files = {f"/{path}": content for path, content in paths.items()}
    return {path: hashlib.sha256(content).hexdigest() for path, content in paths.items()}


def test_what_has_its_checksum_is_taken_and_not_built(lab: Lab, mirror: Mirror) -> None:
    assert lab.missing() == ["tool", "packed"]
    assert lab.fetch(mirror.address, released(mirror)) == {"taken": ["tool", "packed"], "notes": []}
    assert lab.missing() == []
    found = lab.run("lab_binaries.py", "locate", bin_dir="", wheel="")["binaries"]
    for name in ("tool", "toolctl", "packed"):
        assert subprocess.run([found[name]], capture_output=True, check=True).stdout == b"v1.0.0\n"
    asked = len(mirror.asked)
    assert lab.fetch(mirror.address, released(mirror))["taken"] == ["tool", "packed"]
    assert len(mirror.asked) == asked, "what is there is not downloaded again"


def test_a_wrong_checksum_is_refused_and_nothing_of_it_can_be_executed(lab: Lab, mirror: Mirror) -> None:
    wrong = {**released(mirror), f"v1/toolctl-{ARCHITECTURE}": "0" * 64}
    answer = lab.fetch(mirror.address, wrong)
    assert answer["taken"] == ["packed"]
    (note,) = answer["notes"]
    assert note.startswith(f"tool is built: {mirror.address}/v1/toolctl-{ARCHITECTURE} has the SHA-256 ")
    assert note.endswith(f"and not {'0' * 64}: refused")
    assert lab.missing() == ["tool"]
    assert [path.name for path in lab.executable()] == ["packed"]
    assert list(lab.cache.glob(".*.part")) == []


def test_what_is_not_on_the_mirror_or_has_no_checksum_is_built(lab: Lab, mirror: Mirror) -> None:
    known = released(mirror)
    del mirror.files[f"/v1/tool-{ARCHITECTURE}"], known[f"v1/packed-{ARCHITECTURE}.tar.gz"]
    answer = lab.fetch(mirror.address, known)
    assert answer["taken"] == []
    assert answer["notes"] == [
        f"tool is built: {mirror.address}/v1/tool-{ARCHITECTURE}: HTTP Error 404: Not Found",
        f"packed is built: no checksum of v1/packed-{ARCHITECTURE}.tar.gz is known (lab_checksums)",
    ]
    assert mirror.asked == [f"/v1/tool-{ARCHITECTURE}"]
    assert lab.executable() == []


def test_a_mirror_that_is_not_there_costs_one_short_attempt(lab: Lab, mirror: Mirror) -> None:
    checksums, gone = released(mirror), Mirror()
    gone.close()
    begun = time.monotonic()
    for server in (gone.address, "official"):
        answer = lab.fetch(server, checksums)
        assert answer["taken"] == []
        assert [" is out of reach (" in note for note in answer["notes"]] == [True, True]
    assert time.monotonic() - begun < 8
    assert lab.fetch("", checksums) == {"taken": [], "notes": []}
    assert lab.missing() == ["tool", "packed"]


def test_an_archive_without_the_program_is_refused(lab: Lab, mirror: Mirror) -> None:
    checksums = released(mirror)
    lab.components["packed"]["download"]["member"] = "elsewhere/packed"
    (note,) = lab.fetch(mirror.address, checksums)["notes"]
    assert note.startswith("packed is built: packed's archive has no elsewhere/packed")
    assert lab.missing() == ["packed"]


def test_checksums_are_of_files_that_the_role_asks_for() -> None:
    """Each is whole, and of a path of a component; of Kubernetes all files of a version or none."""
    versions = set(re.findall(r"v1\.\d+\.\d+", (ROLE / "meta/argument_specs.yml").read_text(encoding="utf-8")))
    paths = [
        path.replace("{{ lab_kubernetes }}", version).format(arch=arch)
        for component in VARIABLES["_lab_components"].values()
        for path in component.get("download", {}).get("files", {}).values()
        for version in sorted(versions)
        for arch in ("amd64", "arm64")
    ]
    checksums = VARIABLES["_lab_checksums"]
    assert set(checksums) - set(paths) == set()
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in checksums.values())
    assert len(set(checksums.values())) == len(checksums)
    by_version: dict[str, int] = {}
    for path in checksums:
        if path.startswith("release/"):
            by_version[path.split("/")[1]] = by_version.get(path.split("/")[1], 0) + 1
    assert by_version == dict.fromkeys(("v1.34.1", "v1.35.4", "v1.36.3"), 8)


def role(folder: Path, mirror: str, checksums: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The role with the smallest set of components and an empty cache; a build would need more disk than there is."""
    variables = {
        "lab_state": "built",
        "lab_all_options": False,
        "lab_metrics": False,
        "lab_cache_dir": str(folder / "cache"),
        "lab_mirror": mirror,
        "lab_checksums": checksums,
        "lab_disk_gib": 1_000_000,
    }
    (folder / "cache").mkdir()
    (folder / "ansible.cfg").touch()
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "kubeops.node_maintenance.lab", "-e", json.dumps(variables)],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def paths_of_the_role() -> list[str]:
    parts = [
        VARIABLES["_lab_components"][name]["download"]["files"].values() for name in ("kubernetes", "etcd", "kwok")
    ]
    version = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))["lab_kubernetes"]
    paths = [path for part in parts for path in part]
    return [path.replace("{{ lab_kubernetes }}", version).format(arch=ARCHITECTURE) for path in paths]


def stand_in(path: str) -> bytes:
    """A small file in place of a released one."""
    if not path.endswith(".tar.gz"):
        return PROGRAM + path.encode()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        entry = tarfile.TarInfo(f"{path.rpartition('/')[2].removesuffix('.tar.gz')}/etcd")
        entry.size = len(PROGRAM)
        tar.addfile(entry, io.BytesIO(PROGRAM))
    return made.getvalue()


def test_the_role_takes_all_it_needs_from_a_mirror(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files = {f"/{path}": stand_in(path) for path in paths_of_the_role()}
    checksums = {path[1:]: hashlib.sha256(content).hexdigest() for path, content in mirror.files.items()}
    done = role(tmp_path, mirror.address, checksums)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Show what will be built" not in done.stdout
    made = {path.name for path in (tmp_path / "cache").glob("*/*") if os.access(path, os.X_OK)}
    assert made == {"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "etcd", "kwok", "kwokctl"}


def test_the_role_builds_what_a_mirror_that_is_not_there_does_not_give(tmp_path: Path) -> None:
    gone = Mirror()
    gone.close()
    done = role(tmp_path, gone.address, {})
    assert done.returncode != 0
    assert f"kwok is built: {gone.address} is out of reach" in done.stdout
    assert "Building kubernetes, etcd, kwok needs 1000000 GiB of free disk" in " ".join(done.stdout.split())
