# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab runs the version of Kubernetes that it is asked for; `make test-kubernetes` runs other tests on each."""

from __future__ import annotations

import json
import os

import yaml
from support.arena import Arena
from support.lab import ROOT, Lab


def test_control_plane_kubelets_and_kubectl_are_of_the_version_that_was_asked_for(lab: Lab, arena: Arena) -> None:
    defaults = yaml.safe_load((ROOT / "roles" / "lab" / "defaults" / "main.yml").read_text(encoding="utf-8"))
    wanted = os.environ.get("LAB_KUBERNETES") or defaults["lab_kubernetes"]
    (node,) = arena.nodes(1)
    spoken = json.loads(lab.run_kubectl("version", "--output=json").stdout)
    found = (spoken["serverVersion"]["gitVersion"], spoken["clientVersion"]["gitVersion"])
    assert found == (wanted, wanted)
    assert arena.node(node)["status"]["nodeInfo"]["kubeletVersion"] == wanted
