# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of real nodes: where it is possible, its image, and how its processes are told apart."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import lab_image
import lab_network
import lab_place
import pytest


@pytest.mark.parametrize(
    ("system", "user", "nodes", "reason"),
    [("Darwin", 0, 4, "Linux"), ("Linux", 1000, 4, "root"), ("Linux", 0, 21, "at most 20")],
)
def test_why_there_can_be_no_real_nodes(system: str, user: int, nodes: int, reason: str) -> None:
    assert reason in lab_network.obstacle(system, user, nodes)


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_network, "TOOLS", {"runc-of-nobody": "runc", "nft-of-nobody": "nftables"})
    said = lab_network.obstacle("Linux", 0, 4)
    assert "runc-of-nobody" in said
    assert "apt install runc nftables" in said


def test_the_image_refers_to_what_it_holds(tmp_path: Path) -> None:
    binary = tmp_path / "lab-web"
    binary.write_bytes(b"a program")
    archives = [tmp_path / "first.tar", tmp_path / "second.tar"]
    for archive in archives:
        lab_image.write(archive, binary, ["example.com/a:1", "example.com/b:2"])
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as image:
        files = {member.name: image.extractfile(member).read() for member in image.getmembers()}  # type: ignore[union-attr]
    for name, content in files.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]
    entries = json.loads(files["index.json"])["manifests"]
    assert [entry["annotations"]["io.containerd.image.name"] for entry in entries] == [
        "example.com/a:1",
        "example.com/b:2",
    ]
    manifest = json.loads(files["blobs/sha256/" + entries[0]["digest"].removeprefix("sha256:")])
    config = json.loads(files["blobs/sha256/" + manifest["config"]["digest"].removeprefix("sha256:")])
    assert config["config"]["Entrypoint"] == ["/lab-web"]
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def test_labs_of_one_name_in_two_directories_have_two_networks(tmp_path: Path) -> None:
    networks = {lab_place.Place("lab", tmp_path / folder).network for folder in ("one", "two")}
    assert len(networks) == 2
