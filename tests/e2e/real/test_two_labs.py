# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of real nodes beside another one: neither it, nor its end, shows in the other or on the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab_network import NAMESPACES, hierarchies
from lab_place import Place, components, processes
from support.lab import Lab, lab_playbook, started

OPTIONS: dict[str, Any] = {"lab_kind": "real", "lab_nodes": 2, "lab_metrics": False}
SETTINGS = ("ip_forward", "conf/all/send_redirects", "conf/all/rp_filter", "conf/all/forwarding")


def network_of_the_machine() -> dict[str, str]:
    """Everything by which the machine's own network could have got something."""
    words = {"addresses": ["address"], "rules": ["rule"], "routes": ["route", "show", "table", "all"]}
    found = {what: subprocess.check_output(["ip", "-oneline", *command], text=True) for what, command in words.items()}
    # For how long an address that was leased is still valid.
    found["addresses"] = "\n".join(line for line in found["addresses"].splitlines() if "valid_lft" not in line)
    found["packet filter"] = subprocess.check_output(["nft", "list", "ruleset"], text=True)
    return found | {name: Path(f"/proc/sys/net/ipv4/{name}").read_text(encoding="ascii") for name in SETTINGS}


def left(place: Place) -> dict[str, list[str]]:
    """What there is of a lab."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return {
        "processes": sorted(processes(place).values()),
        "namespaces": sorted(path.name for path in NAMESPACES.glob(f"{place.network}*")),
        "cgroups": [str(path) for path in hierarchies(place.network) if path.exists()],
        "mounts": [line for line in mounts if str(place.cluster) in line],
        "folders": [str(path) for path in (place.cluster, place.lab) if path.exists()],
    }


@pytest.mark.whole
def test_two_labs_stand_side_by_side_and_nothing_is_left_of_one_that_ends(lab: Lab, tmp_path: Path) -> None:
    state = lab.kubeconfig.parents[2]
    first, second = Place(lab.name, state), Place(f"{lab.name}-beside", state)
    machine, ours = network_of_the_machine(), (components(first), left(first)["namespaces"])
    try:
        beside = started(tmp_path, second.name, **OPTIONS)
        names = [node["metadata"]["name"] for node in beside.api.items("/api/v1/nodes")]
        assert names == ["node-001", "node-002"]
        assert {what for what, found in left(second).items() if found} >= {"processes", "namespaces", "folders"}
        assert network_of_the_machine() == machine
    finally:
        lab_playbook(tmp_path, second.name, "absent", **OPTIONS)
    assert not any(left(second).values())
    assert network_of_the_machine() == machine
    assert (components(first), left(first)["namespaces"]) == ours
    assert len(lab.api.items("/api/v1/nodes")) == 4
