# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
short_description: Changes of the conditions of a cluster's nodes
description:
  - An event for each change of a condition, and at the start for each that is not healthy.
  - What has been told is kept in the cluster, in the ConfigMap C(events-<name>) of the namespace
    C(kubeops-node-maintenance). After a restart the source tells what changed in between, from the history of the API
    server and, where that is too short, by comparing. A condition that is not healthy is then told again, with
    C(repeated), because the rulebook may have been killed before it acted. So an event may come twice; none is lost.
  - "Needs the rights to list and watch nodes, and to get, create and patch ConfigMaps in C(kubeops-node-maintenance)."
  - "The environment of C(ansible-rulebook) needs ansible-core and the packages of the collection."
options:
  name:
    description: Tells the ConfigMaps of several sources apart.
    type: str
    default: node-conditions
  conditions:
    description:
      - Types of the conditions. C(Ready) is healthy if it is C(True), others if they are C(False). Where yours are
        otherwise, give the healthy status, such as C(GPUHealthy=True).
    type: list
    elements: str
    default: [Ready]
  node_selector:
    description: A label selector; without it all nodes are watched.
    type: str
  kubeconfig:
    description:
      - As in the modules of the collection, like all other connection options of theirs. Without any, the variables
        C(K8S_AUTH_*) and C(KUBECONFIG) of the environment, otherwise the pod that this runs in.
    type: raw
"""

EXAMPLES = r"""
- name: Nodes that are not healthy
  hosts: all
  sources:
    - kubeops.node_maintenance.node_conditions:
        conditions: [Ready, DiskPressure, KernelDeadlock]
  rules:
    - name: Plan the maintenance of the node
      condition: event.healthy == false and event.in_maintenance == false
      action:
        run_playbook:
          name: kubeops.node_maintenance.plan
          extra_vars:
            maintain_nodes: "{{ event.node }}"
"""

# An event: node, uid, condition, status, healthy, previous (status), repeated, since, reason,
# message, labels, schedulable, in_maintenance.

import asyncio
import concurrent.futures
import os
import sys
import threading
import typing as t
from pathlib import Path

# Unlike Ansible, ansible-rulebook leaves it to its plugins to find the rest of their collection.
TREE = str(Path(__file__).absolute().parents[7])
if TREE not in sys.path:
    sys.path.append(TREE)

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_condition_events,
)

LOOK_SECONDS = 0.5


async def main(queue: asyncio.Queue[dict[str, t.Any]], args: dict[str, t.Any]) -> None:
    """The entry point of ansible-rulebook: events into ``queue`` until it is cancelled.

    Raises:
        RuntimeError: the nodes cannot be watched; says why.
    """
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def emit(event: dict[str, t.Any]) -> None:
        """In the thread of the watch, which goes on once there is room in the queue."""
        put = asyncio.run_coroutine_threadsafe(queue.put(event), loop)
        while not (stop.is_set() or put.done()):
            concurrent.futures.wait([put], LOOK_SECONDS)

    try:
        why = await asyncio.to_thread(
            arguments_condition_events.follow, args, dict(os.environ), emit, stop.is_set
        )
    finally:
        stop.set()
    raise RuntimeError(f"node_conditions: {why}")
