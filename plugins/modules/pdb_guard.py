# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pdb_guard
short_description: Prepare the pods on nodes to be moved without interruption
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Scales up workloads whose pods are surged, and waits until the replacement pods serve.
  - Creates a PodDisruptionBudget (a guard) for workloads of several replicas that have none, so that their pods are
    evicted one by one.
  - Undoes all of this, from any state. What others changed meanwhile is kept and reported.
  - M(kubeops.node_maintenance.node_drain) completes the surges.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.choices.budgets
  - kubeops.node_maintenance.choices.rules
  - kubeops.node_maintenance.nodes
  - kubeops.node_maintenance.nodes.run
options:
  state:
    description:
      - V(present) prepares the pods; the nodes must be out of service, see M(kubeops.node_maintenance.node_cordon).
        V(absent) undoes it.
      - In check mode a node need not be out of service yet, because an earlier task only predicted that; the message of
        the node says so.
    type: str
    choices: [present, absent]
    default: present
  allow_interruption:
    description:
      - Whether the drain may interrupt workloads of one replica whose second pod does not come to serve, because it
        fits on no other node, is refused, or somebody resets the replicas. Without it, such a workload fails. Several
        replicas that no other node takes get no guard with it.
      - The owner of a workload can allow the same with the annotation
        C(maintenance.kubeops.io/allow-interruption=true). Neither overrides a budget.
    type: bool
    default: false
  node_autoscaler:
    description:
      - Whether a node autoscaler (cluster-autoscaler, Karpenter) adds nodes for second pods that fit nowhere, so that
        they are waited for until O(timeout). Only then is a workload interrupted that may be.
    type: bool
    default: false
  settle:
    description:
      - How long a replacement pod must be ready before it counts, in seconds or as C(90s), C(2m). Two seconds by
        default.
    type: str
  timeout:
    description:
      - How long to wait for replacement pods, guards and other runs' surges, in seconds or as C(90s), C(10m), from the
        start of the call. Ten minutes by default.
    type: str
seealso:
  - module: kubeops.node_maintenance.node_cordon
  - module: kubeops.node_maintenance.node_drain
"""

EXAMPLES = r"""
- name: Take two nodes out of service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1, worker-2]

- name: Start second pods of single replicas, and give pods without a budget one
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1, worker-2]

- name: Undo both
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1, worker-2]
    state: absent

- name: Return the nodes to service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1, worker-2]
    state: uncordoned
"""

RETURN = r"""
workloads:
  description: What was prepared or undone.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    kind: {description: Kind of the workload., type: str}
    namespace: {description: Its namespace., type: str}
    name: {description: Its name., type: str}
    replicas_before: {description: Its replica count without the surge., type: int}
    replicas_during: {description: Its replica count during the surge., type: int}
    budget: {description: "Its guard, the budget that we created; empty without one.", type: str}
    outcome:
      description:
        - V(raised) - its additional pods serve, so the leaving ones can be evicted.
        - V(already_raised) - its additional pods were already serving.
        - V(guarded) - a guard, a budget of ours, was created for it.
        - V(already_guarded) - its guard already existed.
        - V(not_guarded) - another budget covers pods of its selector, so it gets no guard.
        - V(ended) - none of its pods has to leave any more, or it is gone.
        - V(given_back) - its state before the surge is restored.
        - V(kept) - its surge is undone, except for what somebody else changed meanwhile.
        - V(interruption_allowed) - no second pod came to serve; as it may be interrupted, its pod is evicted.
        - V(unguarded) - its guard was removed.
        - V(adopted_by), a failure - another run has its surge or its nodes now.
        - V(bad_surge), a failure - the record of its surge cannot be read.
        - V(surge_denied), a failure - the API server refused to scale it.
        - V(surge_reverted), a failure - somebody reset its replicas.
        - V(surge_refused), a failure - one more pod of it is rejected, by a quota or at admission.
        - V(surge_preempts), a failure - its new pod would preempt other pods.
        - V(surge_unschedulable), a failure - its new pod cannot be scheduled.
        - V(surge_not_starting), a failure - its new pod does not start.
        - V(surge_not_scheduled), a failure - no scheduler looks at its new pod.
        - V(surge_on_leaving_node), a failure - its new pod was scheduled to a node that takes no pods.
        - V(guard_denied), a failure - the API server rejected its guard.
        - V(timed_out), a failure - it was not ready in time.
        - V(undo_failed), a failure - the API server refused to undo its surge.
        - V(not_given_back), a failure - its surge is still there.
        - V(failed), a failure - something else ended the work on it.
      type: str
      sample: raised
nodes:
  description: The result for each node, in the order given.
  returned: when the cluster could be reached
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str}
    outcome:
      description:
        - V(protected) - the node's pods are protected.
        - V(already_protected) - the node's pods were already protected, or need no protection.
        - V(given_back) - the protection of the node's pods was removed.
        - V(already_given_back) - the node's pods were no longer protected.
        - V(not_in_maintenance_any_more) - the node has no record, and its pods were no longer protected.
        - V(not_in_maintenance), a failure - the node has no record; cordon it with node_cordon first.
        - V(adopted_by), a failure - another run took the node over.
        - V(held), a failure - another run works on the node.
        - V(gone), a failure - the node does not exist.
        - V(bad_record), a failure - the node's record cannot be read.
        - V(blocked), a failure - a workload could not be protected; its entry and a finding say why.
        - V(timed_out), a failure - a workload was not protected in time, and its surge was undone.
        - V(not_given_back), a failure - part of the protection of its pods is still there.
        - V(failed), a failure - the API server refused, or could not be reached.
      type: str
      sample: protected
    failed: {description: Whether it failed., type: bool}
    message: {description: "The outcome as a sentence, with the remedy for failures.", type: str}
findings: {description: "Observations, and why a call failed as a whole.", returned: always, type: list, elements: dict}
actions: {description: "What was done, or in check mode would be done.", returned: always, type: list, elements: str}
services:
  description:
    - Ready endpoints of the Services that changed meanwhile, over time; for the report, as of
      M(kubeops.node_maintenance.node_drain).
  returned: when Services were watched, because a surge was waited for
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
