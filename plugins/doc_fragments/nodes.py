# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Which nodes a call works on, and for which run."""

    DOCUMENTATION = r"""
options:
  nodes:
    description: Names of the nodes, as a list or as a string separated by commas, spaces or newlines.
    type: list
    elements: str
    required: true
    aliases: [name]
"""

    RUN = r"""
options:
  run:
    description:
      - The run that this call belongs to, as C(<id>), C(<id>/<nonce>), or C(/<nonce>) for the run in each node's
        record. Without it this is a manual call, for nodes that manual calls of
        M(kubeops.node_maintenance.node_cordon) cordoned or took over.
    type: str
"""

    AUDIT = r"""
options:
  run:
    description:
      - The run that this call belongs to, for the API server's audit log; see
        M(kubeops.node_maintenance.maintenance_state).
    type: str
"""
