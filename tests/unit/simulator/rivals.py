# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What another run does to the locks of one that stands still."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def take_over(world: World, node: str, of: str, by: str = "other/x") -> None:
    """Take the node's lock, as the protocol wants it: first the heartbeat of the start that had it is ended."""
    world.delete(kinds.LEASES, names.heartbeat_name(of), names.NAMESPACE)
    spec = {"holderIdentity": by, "leaseDurationSeconds": 15}
    taken = {"metadata": {"annotations": {names.HEARTBEAT: None}}, "spec": spec}
    world.patch(kinds.LEASES, names.node_lease_name(node), taken, names.NAMESPACE)
