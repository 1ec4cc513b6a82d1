# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_ready
short_description: Check whether nodes may take pods again
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Evaluates the gates of nodes that come back from a maintenance, once or until all of them are passed, or watches for
    a while that they hold. The call fails if a node does not pass.
  - Compares each node with its record, which M(kubeops.node_maintenance.node_cordon) wrote before the maintenance. The
    cordon and our own taint do not count.
  - Changes no node and no pod. Only the leases that show that O(run) is alive are renewed, those of nodes that it holds
    out of service during O(wait), and that of the run during O(soak). A node that another run has taken over fails.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes.read_only
attributes:
  check_mode:
    description: Can run in C(check_mode) and predict the changes without making them.
    support: full
    details:
      - The gates are evaluated once, whatever O(wait) and O(soak) say, and no lease is renewed.
options:
  nodes:
    description:
      - Names of the nodes, as a list or as a string separated by commas, spaces or newlines.
      - Exactly one of O(nodes) and O(node_selector) is required.
    type: list
    elements: str
    aliases: [name]
  node_selector:
    description: A label selector of the nodes, such as V(pool=blue). The call fails if it matches no node.
    type: str
  run:
    description:
      - The run that holds the nodes out of service, as C(<id>), C(<id>/<nonce>), or C(/<nonce>) for the run in each
        node's record. Without it, the locks of manual calls are renewed.
    type: str
  gates:
    description:
      - What is checked.
      - V(ready) checks the node's condition, V(rebooted) that its bootID differs from the record's, V(daemonsets) that
        every DaemonSet that should run there has a ready pod, unless it had none when the node was drained,
        V(pressure) that there is no memory, disk or process pressure, V(schedulable) that no taint keeps pods away that
        was not there before the maintenance, V(conditions) that no condition is worse than before and those in
        O(conditions) are as stated, V(stable) that the others have held for O(stable).
    type: list
    elements: str
    choices: [ready, rebooted, daemonsets, pressure, schedulable, conditions, stable]
    default: [ready, daemonsets, pressure, schedulable, conditions, stable]
  taints:
    description:
      - Taints that are set or removed once the gates have passed, as in
        O(kubeops.node_maintenance.node_taint#module:taints). They do not hold up V(schedulable) and V(daemonsets).
    type: list
    elements: raw
  conditions:
    description:
      - Types of conditions that the gate V(conditions) checks, each with the status that it must have, V(True) or
        V(False); for example C(example.com/NetworkReady) with V(True).
      - Conditions that are bad when V(True) are known, those of Kubernetes and of node-problem-detector. They pass if
        they were V(True) before the maintenance, too.
    type: dict
  not_rebooted:
    description: Nodes that were not rebooted on purpose. The gate V(rebooted) does not apply to them.
    type: list
    elements: str
  stable:
    description: How long the other gates must hold for V(stable), in seconds or as C(90s), C(2m). Only with O(wait).
    type: str
    default: 10s
  wait:
    description: Whether to wait for the gates.
    type: bool
    default: false
  timeout:
    description: How long to wait for the gates, in seconds or as C(90s), C(10m). No limit by default.
    type: str
  soak:
    description:
      - Instead of waiting for the gates, watch for this long that they hold, in seconds or as C(90s), C(10m). The first
        gate that fails ends the call.
      - It is for nodes that are in service again. Those that do not exist are left out, and V(rebooted) does not apply.
    type: str
  soak_since:
    description:
      - When the soak began, as a timestamp by the API server's clock. The time since then counts. Defaults to now.
    type: str
seealso:
  - module: kubeops.node_maintenance.node_cordon
  - module: kubeops.node_maintenance.maintenance_plan
"""

EXAMPLES = r"""
- name: Take a node out of service, which records its bootID
  kubeops.node_maintenance.node_cordon:
    nodes: worker-1

- name: Reboot it
  ansible.builtin.reboot:
  delegate_to: worker-1

- name: Remove our taint, so that the pods of DaemonSets come back first
  kubeops.node_maintenance.node_cordon:
    nodes: worker-1
    state: returning

- name: Wait until the node is back after its reboot
  kubeops.node_maintenance.node_ready:
    nodes: worker-1
    gates: [ready, rebooted, daemonsets, pressure, schedulable, conditions, stable]
    wait: true
    timeout: 15m

- name: Return it to service
  kubeops.node_maintenance.node_cordon:
    nodes: worker-1
    state: uncordoned

- name: Watch it for half a minute before the next node is taken out of service
  kubeops.node_maintenance.node_ready:
    nodes: worker-1
    soak: 30s
"""

RETURN = r"""
nodes:
  description: The result for each node. Missing if the call failed as a whole.
  returned: when the nodes could be read
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str, sample: worker-1}
    outcome:
      description:
        - V(passed) - the node may take pods.
        - V(failed), a failure - a gate does not hold.
      type: str
      sample: passed
    failed: {description: Whether a gate does not hold., type: bool}
    message: {description: "What does not hold, or that the node passed.", type: str}
    address: {description: Its InternalIP., type: str}
findings:
  description: What does not hold, or why the call failed as a whole, such as V(unknown_node).
  returned: when the nodes could be read, or the call failed as a whole
  type: list
  elements: dict
  contains:
    code: {description: A code of the closed list in the documentation., type: str, sample: not_rebooted}
    severity: {description: Always V(blocker)., type: str}
    object: {description: The node., type: str, sample: Node worker-1}
    objects: {description: All nodes that it is about., type: list, elements: str}
    message: {description: What was found., type: str}
    remedy: {description: What can be done about it., type: str}
services:
  description:
    - Ready endpoints of the Services that changed meanwhile, over time; for the report, as of
      M(kubeops.node_maintenance.node_drain).
  returned: when Services were watched, because gates were waited for
  type: list
  elements: dict
watched: {description: From when to when Services were watched., returned: with RV(services), type: list, elements: str}
cluster:
  description:
    - The cluster of the call, as its C(context) in the kubeconfig (V(in-cluster) with a pod's service account) and the
      address of its C(server).
  returned: when the credentials could be read
  type: dict
  sample: {context: prod, server: "https://prod.example.com:6443"}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_ready

if __name__ == "__main__":
    specs.run_module(arguments_ready.SPEC)
