# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_hooks
short_description: Call the hooks of nodes, and record the task files of hooks
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Calls what has to be done before a node is drained and before it returns to service, and records in the node's
    record how far it is, so that another start of the run goes on from there.
  - The hooks of pods are called by M(kubeops.node_maintenance.node_drain). Their task files are recorded here, too.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.nodes
  - kubeops.node_maintenance.nodes.run
  - kubeops.node_maintenance.hooks.node_rules
options:
  state:
    description:
      - V(listed) only says which hooks are left to call.
      - V(called) makes the HTTP calls. A node one of whose task files has not run to its end has failed.
      - V(begun), V(done) and V(failed) record how far the task files of O(hooks) are. V(begun) keeps the locks of
        O(nodes) for the longest deadline.
    type: str
    choices: [listed, called, begun, done, failed]
    default: listed
  hook:
    description: Which hook the O(rules) are for.
    type: str
    choices: [before_node, after_node]
    default: before_node
  hooks:
    description:
      - Hooks with task files, as in RV(hooks), or in the result of M(kubeops.node_maintenance.node_drain) for a node.
    type: list
    elements: dict
seealso:
  - module: kubeops.node_maintenance.node_drain
"""

EXAMPLES = r"""
- name: Take a storage node out of service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1]

- name: Announce its maintenance
  kubeops.node_maintenance.maintenance_hooks:
    state: called
    nodes: [worker-1]
    rules:
      - name: noout
        nodes: node-role.kubernetes.io/storage
        http:
          url: https://storage.example.com/nodes/{node}/noout
          method: PUT

- name: Return it to service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1]
    state: uncordoned
"""

RETURN = r"""
nodes:
  description: The result for each node, in the order given. Missing if the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str}
    outcome:
      description:
        - V(ok) - no hook of the node has failed.
        - V(not_in_maintenance), a failure - the node has no record; cordon it with node_cordon first.
        - V(adopted_by), a failure - another run took the node over.
        - V(held), a failure - another run works on the node.
        - V(failed), a failure - a hook failed, or was not done by its deadline.
      type: str
      sample: ok
    failed: {description: Whether it failed., type: bool}
    message: {description: "The outcome as a sentence, with the remedy for failures.", type: str}
hooks:
  description:
    - The hooks that the call was for, with their variables, C(key) and C(state), which is V(due), V(begun), V(done) or
      V(failed). C(again) is V(true) for one that was begun before.
  returned: when the work could begin
  type: list
  elements: dict
actions: {description: "What was done, or in check mode would be done.", returned: always, type: list, elements: str}
cluster:
  description:
    - The cluster of the call, as its C(context) in the kubeconfig (V(in-cluster) with a pod's service account) and the
      address of its C(server).
  returned: when the credentials could be read
  type: dict
  sample: {context: prod, server: "https://prod.example.com:6443"}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
findings: {description: Why the call failed as a whole., returned: after such a failure, type: list, elements: dict}
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_hooks

if __name__ == "__main__":
    specs.run_module(arguments_hooks.SPEC)
