# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to a fake node: commands run here, a reboot happens to the node's object."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.nodes import answers, boot_id, reboot
from witness.api import Api

DOCUMENTATION = """
name: fake_node
short_description: a node of the lab as a host
description:
  - Runs commands on the controller as the P(ansible.builtin.local#connection) connection does.
  - The boot ID is that of the Node object, a reboot is one of the Node object, and while the node
    is down there is no connection.
author: Contributors to the kubeops.node_maintenance collection
options:
  node:
    description: Name of the node.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: fake_node_name
  stale:
    description: The host reboots, its Node object goes on showing the old boot.
    type: bool
    default: false
    vars:
      - name: fake_node_stale
extends_documentation_fragment:
  - connection_pipelining
"""

REBOOTS = ("shutdown", "reboot ", "systemctl")
FOUND = {"changed": False, "matched": 1, "files": [{"path": "/sbin/shutdown"}]}


class Connection(LocalConnection):
    transport = "fake_node"
    _own_boot: ClassVar[dict[str, str]] = {}

    def _lab(self) -> tuple[Api, str]:
        return Api(Path(os.environ["KUBEOPS_TEST_KUBECONFIG"]), "kubeops-test"), str(self.get_option("node"))

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """The answer of a command; AnsibleConnectionFailure while the node is down."""
        api, name = self._lab()
        if not answers(api, name):
            raise AnsibleConnectionFailure(f"{name} does not answer")
        if "boot_id" in cmd:
            booted = self._own_boot.get(name) or boot_id(api, name)
            return 0, booted.encode(), b""
        if "AnsiballZ_find" in cmd:
            # The reboot action looks for its command; this machine need not have one.
            return 0, json.dumps(FOUND).encode(), b""
        if any(word in cmd for word in REBOOTS):
            if self.get_option("stale"):
                self._own_boot[name] = str(uuid.uuid4())
            else:
                reboot(api, name)
            return 0, b"", b""
        answer: Any = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        code, out, err = answer
        return code, out, err

    def reset(self) -> None:
        """Nothing is kept open."""
