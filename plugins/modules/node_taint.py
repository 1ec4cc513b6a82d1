# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_taint
short_description: Set and clear taints of nodes
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Brings the taints of many nodes to what is wanted, in one conditional patch for each node that differs. A taint is
    known by its key and effect, as for C(kubectl taint); one of another value is changed.
  - What nobody asked about stays as it is, at its place and with its C(timeAdded). If somebody else writes the node at
    the same moment, it is read and planned anew, so nothing of theirs is lost.
  - Everything that is wrong with the taints is told before the first request.
  - Before a taint of effect V(NoExecute) is set, RV(evicts) tells which pods it would end and when, and the call is
    refused unless O(allow_no_execute=true). Budgets are not asked when such a taint ends pods; to empty a node without
    interruption, use M(kubeops.node_maintenance.node_drain).
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(present) sets the taints and leaves all others.
      - V(absent) removes them. O(taints[].value) does not matter then, and without O(taints[].effect) all taints of the
        key go.
      - V(exact) sets them and removes all others, except those that Kubernetes' own controllers keep
        (C(node.kubernetes.io/*) and C(node.cloudprovider.kubernetes.io/*)) and the taint of a maintenance of this
        collection. An empty list removes all but these.
    type: str
    choices: [present, absent, exact]
    default: present
  nodes:
    description:
      - Names of the nodes, as a list or as one text with commas, spaces or newlines between them.
      - If one of them does not exist, the call fails before anything is written.
    type: list
    elements: str
    required: true
  taints:
    description:
      - The taints. Each key and effect may be there once.
    type: list
    elements: dict
    required: true
    suboptions:
      key:
        description:
          - A name, with a domain before it or without, such as V(dedicated) or V(example.com/gpu).
          - C(maintenance.kubeops.io/in-progress) belongs to M(kubeops.node_maintenance.node_cordon) and is refused.
        type: str
        required: true
      value:
        description:
          - A text of 63 characters at most, as for a label. Booleans become V(true) and V(false).
        type: raw
      effect:
        description:
          - V(NoSchedule) keeps pods without a toleration from coming, V(PreferNoSchedule) only while there is room
            elsewhere, V(NoExecute) also ends those that are there.
          - Needed for every taint that is set.
        type: str
        choices: [NoSchedule, PreferNoSchedule, NoExecute]
      state:
        description:
          - Another state for this taint than O(state), so that one patch sets one taint and removes another. Not
            with O(state=exact).
        type: str
        choices: [present, absent]
  allow_no_execute:
    description:
      - Whether taints may be set that end running pods. RV(evicts) names them.
    type: bool
    default: false
  run:
    description:
      - The run on whose behalf this is done, for the API server's audit log; see
        M(kubeops.node_maintenance.maintenance_state).
    type: str
seealso:
  - module: kubeops.node_maintenance.node_drain
  - module: kubeops.node_maintenance.node_cordon
notes:
  - The guide to taints of this collection has the rules of matching, of the forecast, and more examples.
"""

EXAMPLES = r"""
- name: Keep two nodes for one team; its pods tolerate dedicated=analytics
  kubeops.node_maintenance.node_taint:
    nodes: [worker-7, worker-8]
    taints:
      - key: dedicated
        value: analytics
        effect: NoSchedule

- name: Keep pods without a need for it from the nodes with special hardware, gently
  kubeops.node_maintenance.node_taint:
    nodes: gpu-1, gpu-2, gpu-3
    taints:
      - key: special
        value: true
        effect: PreferNoSchedule

- name: See which pods a NoExecute taint would end, and when
  kubeops.node_maintenance.node_taint:
    nodes: [worker-7]
    taints:
      - key: dedicated
        value: analytics
        effect: NoExecute
    allow_no_execute: true
  check_mode: true
  register: forecast

- name: Replace one taint by another in one patch
  kubeops.node_maintenance.node_taint:
    nodes: [worker-7]
    taints:
      - key: pool
        value: batch
        effect: NoSchedule
      - key: dedicated
        state: absent

- name: Clear every taint but those of Kubernetes itself
  kubeops.node_maintenance.node_taint:
    nodes: [worker-7, worker-8]
    state: exact
    taints: []
"""

RETURN = r"""
nodes:
  description: What became of each node, in the order asked for. Not there when the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      sample: worker-7
    outcome:
      description:
        - V(present) - the taints were set.
        - V(absent) - the taints were removed.
        - V(exact) - the taints were changed to exactly those.
        - V(already_present) - the taints were there already.
        - V(already_absent) - the taints were not there.
        - V(already_exact) - the node had exactly those taints already.
        - V(refused), a failure - a NoExecute taint became necessary only while the node was written.
        - V(gone), a failure - the node was deleted meanwhile.
        - V(failed), a failure - the API server refused the change.
      type: str
      sample: present
    failed:
      description: Whether it failed.
      type: bool
    message:
      description: The outcome as a sentence; for failures with what to do.
      type: str
      sample: "On node worker-7: set dedicated=analytics:NoSchedule."
    before:
      description: All taints of the node as they were, with all of their fields.
      type: list
      elements: dict
      sample: []
    after:
      description: All taints of the node as they are now (in check mode, would be).
      type: list
      elements: dict
      sample: [{"key": "dedicated", "value": "analytics", "effect": "NoSchedule"}]
evicts:
  description:
    - The pods that the call ends by setting or changing V(NoExecute) taints, the first to go first, by node. Also there
      when the call was refused because of them.
    - Pods that stay, and those that an earlier taint ends anyway, are not in it.
  returned: when the nodes could be read
  type: list
  elements: dict
  contains:
    node:
      description: The node.
      type: str
    namespace:
      description: The pod's namespace.
      type: str
    name:
      description: The pod.
      type: str
    uid:
      description: The pod's UID.
      type: str
    owner:
      description: Its controller, empty where it has none.
      type: str
      sample: ReplicaSet shop/web-5d4f
    seconds:
      description: How long it may stay once the taint is set; 0 means that it goes at once.
      type: int
      sample: 300
    taint:
      description: The taint that decides it.
      type: str
      sample: dedicated=analytics:NoExecute
    reason:
      description: Why, as a sentence.
      type: str
      sample: It does not tolerate dedicated=analytics:NoExecute.
actions:
  description: What was done, or would be done in check mode, as sentences.
  returned: always
  type: list
  elements: str
  sample: ["On node worker-7: set dedicated=analytics:NoSchedule"]
timeline:
  description: Everything that was told while it happened.
  returned: always
  type: list
  elements: dict
findings:
  description: Why the call failed as a whole, such as V(unknown_node) or V(no_execute_refused).
  returned: when the call failed as a whole
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import module, taint


def main() -> None:
    module.run_module(taint.FACE)


if __name__ == "__main__":
    main()
