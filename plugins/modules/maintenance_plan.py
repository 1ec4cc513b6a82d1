# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_plan
short_description: Plan the maintenance of nodes, or ask whether nodes are back
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Gives every pod on the nodes its route, and names everything that stands in the way, all at once.
  - With O(gates), tells whether nodes that come back may take pods.
  - Changes nothing.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes.read_only
  - kubeops.node_maintenance.choices
options:
  nodes:
    description:
      - Names of the nodes, as a list or as one text with commas, spaces or newlines between them.
      - Exactly one of O(nodes) and O(node_selector) is needed.
    type: list
    elements: str
  node_selector:
    description:
      - Label selector of the nodes.
    type: str
  run:
    description:
      - The run that works on the nodes already, if any, as C(<id>) or C(<id>/<nonce>). Its own locks do not stand in
        the way.
    type: str
  goal:
    description:
      - Where the nodes shall be in the end. With V(evacuated), those that are out of service and empty already join no
        wave.
    type: str
    choices: [maintained, evacuated]
    default: maintained
  max_parallel:
    description:
      - How many nodes may be out of service at the same time.
    type: int
    default: 1
  zone_key:
    description:
      - The node label that tells a node's zone, for O(max_per_zone).
    type: str
    default: topology.kubernetes.io/zone
  max_per_zone:
    description:
      - How many nodes of one zone may be out of service at the same time.
    type: int
  settle:
    description:
      - How long newcomers will have to be ready, see O(kubeops.node_maintenance.pdb_guard#module:settle); for the
        estimate.
    type: str
  gates:
    description:
      - Instead of planning, ask whether the nodes may take pods.
      - V(ready) asks the node's condition, V(rebooted) for another bootID than the record's, V(daemonsets) for a ready
        pod of every DaemonSet that belongs there, V(pressure) for the absence of memory, disk and process pressure,
        V(stable) that the others have held for O(stable).
      - With O(wait) the locks of those nodes that are out by O(run) are renewed meanwhile; a node that another run has
        taken over fails. Nothing else is written.
    type: list
    elements: str
    choices: [ready, rebooted, daemonsets, pressure, stable]
  stable:
    description:
      - How long the other gates have to hold for V(stable), in seconds or as C(90s), C(2m).
    type: str
    default: 10s
  wait:
    description:
      - Whether to wait for the gates.
    type: bool
    default: false
  timeout:
    description:
      - How long to wait for the gates, in seconds or as C(90s), C(10m). Without it there is no limit.
    type: str
seealso:
  - module: kubeops.node_maintenance.node_drain
"""

EXAMPLES = r"""
- name: What would happen?
  kubeops.node_maintenance.maintenance_plan:
    node_selector: pool=blue
    max_parallel: 2
  register: plan

- name: Is the node back after its reboot?
  kubeops.node_maintenance.maintenance_plan:
    nodes: worker-1
    gates: [ready, rebooted, daemonsets, pressure, stable]
    wait: true
    timeout: 15m
"""

RETURN = r"""
feasible:
  description: Whether nothing stands in the way; with O(gates), whether all nodes passed.
  returned: when the cluster could be read
  type: bool
findings:
  description: Everything worth knowing before the first write.
  returned: always
  type: list
  elements: dict
  contains:
    code:
      description: A word of the closed list in the documentation.
      type: str
      sample: stateful_single
    severity:
      description: V(blocker) stands in the way, V(warning) and V(info) do not.
      type: str
    object:
      description: What it is about.
      type: str
      sample: StatefulSet shop/db
    message:
      description: What is found.
      type: str
    remedy:
      description: What can be done about it.
      type: str
pods:
  description: Every pod on the nodes.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    namespace:
      description: Its namespace.
      type: str
    name:
      description: Its name.
      type: str
    uid:
      description: Its UID.
      type: str
    node:
      description: The node it is on.
      type: str
    owner:
      description: The workload that it belongs to; empty for a bare pod.
      type: str
      sample: Deployment shop/web
    route:
      description: V(skip), V(swap), V(evict), V(job), V(wait) or V(refuse).
      type: str
    code:
      description: Why it takes this route, as a word of the closed list in the documentation.
      type: str
    reason:
      description: Why it takes this route.
      type: str
    remedy:
      description: What can be done where it may not be moved.
      type: str
    budgets:
      description: The budgets that will be asked.
      type: list
      elements: str
    fits:
      description: Whether there is room for it elsewhere; C(null) where no forecast was made.
      type: bool
    target:
      description: The node it will likely go to; C(null) where no forecast was made.
      type: str
    fate:
      description: What becomes of it if nobody does anything, where its node is lost; C(null) elsewhere.
      type: dict
      contains:
        told_at:
          description: When it is told to end; empty where it never is, or where the taint for it is not set yet.
          type: str
          sample: "2026-03-01T02:56:10Z"
        in_seconds:
          description: The same in seconds from now; V(0) where that is over.
          type: int
        successor:
          description:
            - When its controller starts another one. V(at_once) when it is told to end, V(after_its_volume) the same,
              but that one waits for a volume; V(after_its_object) only when the object of this pod has gone; V(none)
              never.
          type: str
          sample: after_its_object
        volumes:
          description: PersistentVolumes of its claims that stay attached to the node.
          type: list
          elements: str
        reason:
          description: All of that as a sentence.
          type: str
waves:
  description: The nodes that are left to do, by wave, in order.
  returned: when the cluster could be read
  type: list
  elements: list
  sample: [[worker-1], [worker-2]]
estimate_seconds:
  description: How long emptying the nodes will take.
  returned: when the cluster could be read
  type: int
fence:
  description:
    - Whether the API server refuses evictions of a run that lost its lock, see
      M(kubeops.node_maintenance.maintenance_access). V(present), V(absent), V(incomplete) where a part of it is missing
      or was changed, or V(unknown) where these credentials may not read it.
    - Not there with O(gates).
  returned: when the cluster could be read
  type: str
  sample: present
nodes:
  description: Every node that was asked for. Not there when the call failed as a whole.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
    outcome:
      description:
        - V(planned) - the node can be taken out.
        - V(at_goal) - the node is out and empty already.
        - V(blocked), a failure - a finding stands against taking the node out.
        - V(unknown), a failure - there is no such node.
        - V(passed) - with O(gates), the node may take pods.
        - V(failed), a failure - with O(gates), a gate does not hold.
      type: str
    failed:
      description: Whether it cannot be gone on with.
      type: bool
    message:
      description: The outcome as a sentence.
      type: str
    address:
      description: Its InternalIP; not there with O(gates).
      type: str
    record:
      description: The record on the node, without what gives the right to act; not there with O(gates).
      type: dict
timeline:
  description: Everything that was told while it happened.
  returned: always
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import module, plan


def main() -> None:
    module.run_module(plan.FACE)


if __name__ == "__main__":
    main()
