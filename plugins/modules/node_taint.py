# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_taint
short_description: Set and remove taints of nodes
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Sets and removes taints of many nodes, with one conditional patch for each node that differs. A taint is
    identified by its key and effect, as in C(kubectl taint); if its value differs, the value is changed.
  - All other taints stay as they are, in their position and with their C(timeAdded). If someone else writes the node at
    the same time, it is read and planned again, so none of their changes is lost.
  - All errors in the taints are reported before the first request. If a node does not exist, nothing is written.
  - Before a taint with the effect V(NoExecute) is set, RV(evicts) lists which pods it would evict and when, and the
    call is refused unless O(allow_no_execute=true). Such evictions ignore budgets; to drain a node without
    interruption, use M(kubeops.node_maintenance.node_drain).
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.nodes.audit
options:
  nodes:
    description:
      - Names of the nodes, as a list or as a string separated by commas, spaces or newlines.
      - Exactly one of O(nodes) and O(node_selector) is required.
    type: list
    elements: str
    aliases: [name]
  node_selector:
    description:
      - A label selector of the nodes, such as V(pool=blue) or V(pool!=blue,gpu). The call fails if it matches no node.
    type: str
  state:
    description:
      - V(present) sets the taints and leaves all others.
      - V(absent) removes them. The value of a taint is then ignored, and without an effect all taints with the key are
        removed.
      - V(exact) sets them and removes all others, except those that controllers set and remove on their own and
        those in O(keep). An empty list removes all but these.
      - The controllers are Kubernetes (C(node.kubernetes.io/*)), the cloud controller manager
        (C(node.cloudprovider.kubernetes.io/*)), Cilium (C(node.cilium.io/*)), Karpenter (C(karpenter.sh/*)),
        Cluster API (C(node.cluster.x-k8s.io/*)), node-readiness-controller (C(readiness.k8s.io/*)), Gardener
        (C(node.gardener.cloud/*)), cluster-autoscaler (C(ToBeDeletedByClusterAutoscaler),
        C(DeletionCandidateOfClusterAutoscaler), C(ignore-taint.cluster-autoscaler.kubernetes.io/*),
        C(startup-taint.cluster-autoscaler.kubernetes.io/*), C(status-taint.cluster-autoscaler.kubernetes.io/*)), the
        AWS CSI drivers (C(ebs.csi.aws.com/agent-not-ready), C(efs.csi.aws.com/agent-not-ready)) and this collection
        (C(maintenance.kubeops.io/*)).
    type: str
    choices: [present, absent, exact]
    default: present
  taints:
    description:
      - The taints, each as a mapping or in the syntax of C(kubectl taint), such as V(dedicated=gpu:NoSchedule), or
        V(dedicated:NoSchedule-) to remove it. A string may hold several, separated by commas. Each combination of key
        and effect may be listed once. An empty entry is an error.
      - C(key) is a name, with or without a domain prefix, such as V(dedicated) or V(example.com/gpu). It is required.
        C(maintenance.kubeops.io/in-progress) and C(maintenance.kubeops.io/waiting) belong to the maintenance itself and
        are refused. The message of a node names an outdated key, C(node.alpha.kubernetes.io/notReady) or
        C(unreachable), and the one that replaced it.
      - C(value) has at most 63 characters, with the syntax of a label value. Booleans become V(true) and V(false).
      - C(effect) is required for every taint that is set. V(NoSchedule) keeps pods without a toleration from being
        scheduled on the node, V(PreferNoSchedule) only while there is room elsewhere; V(NoExecute) also evicts those
        that run there.
      - C(state) is V(present) or V(absent), the state of this taint. It overrides O(state), so that one patch sets one
        taint and removes another. V(absent) is not allowed with O(state=exact).
    type: list
    elements: raw
    required: true
  keep:
    description:
      - Keys of more taints that O(state=exact) leaves as they are, for example V(node.example.com/*); a C(*) at the end
        stands for anything.
    type: list
    elements: str
    default: []
  allow_no_execute:
    description: Whether to allow taints that evict running pods. RV(evicts) lists them.
    type: bool
    default: false
seealso:
  - module: kubeops.node_maintenance.node_drain
  - module: kubeops.node_maintenance.node_cordon
notes:
  - The guide to taints of this collection has the rules of matching and prediction, and more examples.
  - A task written for C(kubernetes.core.k8s_taint) runs as it is, except for C(replace); see the guide to moving from
    C(kubernetes.core).
"""

EXAMPLES = r"""
- name: Keep two nodes for one team; its pods tolerate dedicated=analytics
  kubeops.node_maintenance.node_taint:
    nodes: [worker-7, worker-8]
    taints:
      - key: dedicated
        value: analytics
        effect: NoSchedule

- name: The same in the syntax of kubectl taint
  kubeops.node_maintenance.node_taint:
    nodes: [worker-7, worker-8]
    taints: dedicated=analytics:NoSchedule

- name: Keep pods that do not need special hardware off these nodes if possible
  kubeops.node_maintenance.node_taint:
    node_selector: hardware=gpu
    taints:
      - key: special
        value: true
        effect: PreferNoSchedule

- name: See which pods a NoExecute taint would evict, and when
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

- name: Remove all taints except those of controllers
  kubeops.node_maintenance.node_taint:
    nodes: [worker-7, worker-8]
    state: exact
    taints: []
"""

RETURN = r"""
nodes:
  description: The result for each node, in the order given. Missing if the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str, sample: worker-7}
    outcome:
      description:
        - V(present) - the taints were set.
        - V(absent) - the taints were removed.
        - V(exact) - the taints were replaced by exactly these.
        - V(already_present) - the taints were already there.
        - V(already_absent) - the taints were not there.
        - V(already_exact) - the node already had exactly these taints.
        - V(refused), a failure - a NoExecute taint turned out to be necessary while the node was being changed.
        - V(gone), a failure - the node was deleted meanwhile.
        - V(failed), a failure - the API server refused the change.
      type: str
      sample: present
    failed: {description: Whether it failed., type: bool}
    message:
      description: The outcome as a sentence, with the remedy for failures.
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
    - The pods that the call evicts by setting or changing V(NoExecute) taints, by node, the earliest first. Also
      returned if the call was refused because of them.
    - Does not include pods that stay, and those that an earlier taint evicts anyway.
  returned: when the nodes could be read
  type: list
  elements: dict
  contains:
    node: {description: The node., type: str}
    namespace: {description: The pod's namespace., type: str}
    name: {description: The pod., type: str}
    uid: {description: The pod's UID., type: str}
    owner: {description: Its controller; empty if it has none., type: str, sample: ReplicaSet shop/web-5d4f}
    seconds:
      description: How long it may stay once the taint is set; 0 means that it is deleted at once.
      type: int
      sample: 300
    taint: {description: The taint that determines this., type: str, sample: dedicated=analytics:NoExecute}
    reason: {description: "Why, as a sentence.", type: str, sample: It does not tolerate dedicated=analytics:NoExecute.}
actions:
  description: What was done, or would be done in check mode, as sentences.
  returned: always
  type: list
  elements: str
  sample: ["On node worker-7: set dedicated=analytics:NoSchedule"]
cluster:
  description:
    - The cluster of the call, as its C(context) in the kubeconfig (V(in-cluster) with a pod's service account) and the
      address of its C(server).
  returned: when the credentials could be read
  type: dict
  sample: {context: prod, server: "https://prod.example.com:6443"}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
findings:
  description: Why the call failed as a whole, such as V(unknown_node) or V(no_execute_refused).
  returned: when the call failed as a whole
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_taint

if __name__ == "__main__":
    specs.run_module(arguments_taint.SPEC)
