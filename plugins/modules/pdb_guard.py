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
      description: One word of the closed list in the documentation.
      type: str
      sample: surged
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
        - One word of the closed list in the documentation.
        - Failures are V(not_in_maintenance), V(adopted_by), V(held), V(gone), V(bad_record), V(blocked),
          V(timed_out), V(not_given_back) and V(failed).
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

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.guard import FACE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.module import run_module


def main() -> None:
    run_module(FACE)


if __name__ == "__main__":
    main()
