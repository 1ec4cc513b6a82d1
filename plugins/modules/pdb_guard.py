# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pdb_guard
short_description: Prepare what runs on nodes to leave without interruption
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Raises the count of workloads whose pods leave by a swap, and waits until the newcomers serve.
  - Lays a budget over pods of several replicas that have none, so that evictions go one by one.
  - Gives all of it back, from wherever it is. What somebody else changed meanwhile is kept and reported.
  - The swaps are ended by M(kubeops.node_maintenance.node_drain).
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(present) prepares, V(absent) gives back.
    type: str
    choices: [present, absent]
    default: present
  nodes:
    description:
      - Names of the nodes, as a list or as one text with commas, spaces or newlines between them.
      - For V(present) they have to be out of service, see M(kubeops.node_maintenance.node_cordon).
    type: list
    elements: str
    required: true
  run:
    description:
      - The run on whose behalf this is done, as C(<id>), C(<id>/<nonce>), or C(/<nonce>) for the run in each node's
        record. Without it this is a call by hand, for nodes that such calls of M(kubeops.node_maintenance.node_cordon)
        took out or took up.
    type: str
  surge:
    description:
      - Whether counts are raised. Without it, only budgets are laid.
    type: bool
    default: true
  swap_blocked:
    description:
      - Whether Deployments of several replicas whose budget allows nothing are moved by a swap as well.
    type: bool
    default: false
  pin_budgets:
    description:
      - Whether foreign budgets in percent are pinned to an absolute floor while the count is raised, and restored.
    type: bool
    default: false
  reactive_budgets:
    description:
      - Budgets that are lifted only after a cordon or an eviction attempt, as V(longhorn), V(kubevirt), V(rook) or as a
        label selector of the pods. The three are always known.
    type: list
    elements: str
  settle:
    description:
      - How long a newcomer has to be ready before it counts, in seconds or as C(90s), C(2m). Two seconds where it is
        not given.
    type: str
  timeout:
    description:
      - How long to wait for newcomers, guards and other runs' surges, in seconds or as C(90s), C(10m), from the begin
        of the call. Ten minutes where it is not given.
    type: str
seealso:
  - module: kubeops.node_maintenance.node_cordon
  - module: kubeops.node_maintenance.node_drain
"""

EXAMPLES = r"""
- name: Bring up the second pods
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1, worker-2]

- name: Give everything back
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1, worker-2]
    state: absent
"""

RETURN = r"""
workloads:
  description: What was prepared or given back.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the workload.
      type: str
    namespace:
      description: Its namespace.
      type: str
    name:
      description: Its name.
      type: str
    replicas_before:
      description: Its count without us.
      type: int
    replicas_during:
      description: Its count while its pods leave.
      type: int
    budget:
      description: The budget of ours that guards it; empty without one.
      type: str
    outcome:
      description:
        - V(raised) - its surge serves, so its pods can leave.
        - V(already_raised) - its surge served already.
        - V(guarded) - a guard, a budget of ours, was laid under it.
        - V(already_guarded) - its guard was there already.
        - V(not_guarded) - another budget covers pods of its selector, so it gets no guard.
        - V(ended) - no pod of it has to leave any more, or it is gone.
        - V(given_back) - it is as it was before its surge.
        - V(given_back_in_part) - its surge goes on for other nodes.
        - V(kept) - its surge is given back, but for what somebody else changed meanwhile.
        - V(unguarded) - its guard is given back.
        - V(adopted_by), a failure - another run has its surge or its nodes now.
        - V(bad_surge), a failure - the record of its surge cannot be read.
        - V(surge_denied), a failure - the API server refuses to raise it.
        - V(surge_reverted), a failure - somebody put its replica count back.
        - V(surge_refused), a failure - one more pod of it is refused, by a quota or at admission.
        - V(surge_preempts), a failure - its new pod would take the place of other pods.
        - V(surge_unschedulable), a failure - its new pod has no place in the cluster.
        - V(surge_on_leaving_node), a failure - its new pod was placed on a node that takes no pods.
        - V(guard_denied), a failure - the API server refuses its guard.
        - V(timed_out), a failure - it was not ready in time.
        - V(undo_failed), a failure - the API server refused to take its surge back.
        - V(not_given_back), a failure - its surge is still there.
        - V(failed), a failure - something else ended the work on it.
      type: str
      sample: raised
nodes:
  description: What became of each node, in the order asked for.
  returned: when the cluster could be connected to
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
    outcome:
      description:
        - V(protected) - the node's pods are protected.
        - V(already_protected) - the node's pods were protected already, or need no protection.
        - V(given_back) - what protected the node's pods is given back.
        - V(already_given_back) - nothing protected the node's pods any more.
        - V(not_in_maintenance_any_more) - the node has no record, and nothing protected its pods any more.
        - V(not_in_maintenance), a failure - the node has no record; cordon it with node_cordon first.
        - V(adopted_by), a failure - another run took the node over.
        - V(held), a failure - another run works on the node.
        - V(gone), a failure - the node does not exist.
        - V(bad_record), a failure - the node's record cannot be read.
        - V(blocked), a failure - a workload could not be protected; its entry and a finding say why.
        - V(timed_out), a failure - a workload was not protected in time, and its surge was taken back.
        - V(not_given_back), a failure - something that protected its pods is still there.
        - V(failed), a failure - the API server refused, or could not be reached.
      type: str
      sample: protected
    failed:
      description: Whether it failed.
      type: bool
    message:
      description: The outcome as a sentence; for failures with what to do.
      type: str
findings:
  description: What was noticed, and why a call failed as a whole.
  returned: always
  type: list
  elements: dict
actions:
  description: What was done, or would be done in check mode, as sentences.
  returned: always
  type: list
  elements: str
timeline:
  description: Everything that was told while it happened.
  returned: always
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import guard, module


def main() -> None:
    module.run_module(guard.FACE)


if __name__ == "__main__":
    main()
