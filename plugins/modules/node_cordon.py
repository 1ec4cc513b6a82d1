# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_cordon
short_description: Take nodes out of service and give them back
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Takes the lock on each node, writes the record of what it was, cordons it and holds it with a taint, in one
    conditional patch for each node. Later steps of the maintenance and giving back are the other states.
  - Giving back undoes only what the record says is ours. What somebody else changed meanwhile is kept and reported.
  - A node that cannot be changed (another run holds it, it is not drained) does not keep the others from it.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(cordoned) takes the nodes out of service.
      - V(out) says that work on the hosts begins. It checks once more that the nodes are drained, and keeps the lock
        for O(lease_duration), because the work may go on after this playbook was killed.
        Where a Service has an external load balancer, it waits until half a minute has passed since the nodes left
        service, so that nothing is sent to them any more.
      - V(returning) lifts our taint while the cordon stays, so that DaemonSet pods come back before any other.
      - V(parked) leaves the nodes out of service with nobody working on them. Anybody may take them up again.
      - V(uncordoned) gives the nodes back.
    type: str
    choices: [cordoned, out, returning, parked, uncordoned]
    default: cordoned
  nodes:
    description:
      - Names of the nodes, as a list or as one text with commas, spaces or newlines between them.
    type: list
    elements: str
    required: true
  run:
    description:
      - The run on whose behalf this is done, as C(<id>) or C(<id>/<nonce>); see
        M(kubeops.node_maintenance.maintenance_state). C(/<nonce>) stands for the run in each node's record, as one
        start of a playbook that the nonce tells from others.
      - Without it this is a call by hand. It goes on with what calls by hand have begun, takes up what is V(parked),
        and what another run left once its lock was silent for its whole duration; never a node that is V(out).
    type: str
  reason:
    description:
      - Why; others read it when they find the node out of service.
    type: str
  taint:
    description:
      - Whether a taint C(maintenance.kubeops.io/in-progress) holds the node even if somebody lifts the cordon.
    type: bool
    default: true
  lease_namespace:
    description:
      - Where the locks are kept. Without it C(medik8s-leases) where that namespace exists, else
        C(kubeops-node-maintenance).
    type: str
  lease_duration:
    description:
      - With O(state=out) or O(state=cordoned), how long work that nobody renews the lock for (tasks on the hosts,
        tasks that switch a machine off) may take before others may take over, in seconds or as C(90s), C(10m),
        C(1h30m).
    type: str
  adopt:
    description:
      - Whether to take over a node whose tasks are, as far as anybody knows, still running. The lock that its run
        left for them is taken at once; one that somebody else holds is waited for as always.
      - Only say so when you know that they are not.
    type: bool
    default: false
  stored:
    description:
      - Whether O(run) is one that M(kubeops.node_maintenance.maintenance_state) has started. Then V(cordoned) takes out
        only what that run still has to do.
      - So a start that stood still before it took a node's lock does not do the node once more when another start of
        the same run has gone on in its place. Its nodes are V(adopted_by) then.
    type: bool
    default: false
seealso:
  - module: kubeops.node_maintenance.node_drain
  - module: kubeops.node_maintenance.maintenance_state
"""

EXAMPLES = r"""
- name: Take two nodes out of service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1, worker-2]
    reason: new kernel

- name: Give them back
  kubeops.node_maintenance.node_cordon:
    nodes: worker-1, worker-2
    state: uncordoned
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
      sample: worker-1
    outcome:
      description:
        - V(cordoned) - the node takes no new pods, and its record says whose it is.
        - V(out) - the node is handed over to the tasks on its host.
        - V(returning) - the node is on its way back.
        - V(parked) - the node stays out of service.
        - V(uncordoned) - the node is in service again, without a record.
        - V(already_cordoned) - the node was cordoned, or is drained, already.
        - V(already_out) - the node was out already.
        - V(already_returning) - the node was returning already.
        - V(already_parked) - the node was parked already.
        - V(not_in_maintenance) - the node has no record, so there was nothing of ours to undo.
        - V(gone) - the node does not exist any more.
        - V(held), a failure - another run works on the node.
        - V(adopted_by), a failure - another run took the node over.
        - V(not_drained), a failure - pods that have to go are still on the node.
        - V(still_dead), a failure - the node was evacuated as dead, and its kubelet does not answer yet.
        - V(not_in_maintenance_yet), a failure - the node has no record, so it was never taken out.
        - V(failed), a failure - the API server refused, or the record cannot be read.
      type: str
      sample: cordoned
    failed:
      description: Whether it failed.
      type: bool
    message:
      description: The outcome as a sentence; for failures with what to do.
      type: str
    kept:
      description: What somebody else changed and what was therefore left as it is.
      type: list
      elements: str
    record:
      description: The record on the node, without what gives the right to act; C(null) when there is none.
      type: dict
actions:
  description: What was done, or would be done in check mode, as sentences.
  returned: always
  type: list
  elements: str
  sample: [Take node worker-1 out of service]
timeline:
  description: Everything that was told while it happened.
  returned: always
  type: list
  elements: dict
findings:
  description: Why the call failed as a whole.
  returned: when the call failed as a whole
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import cordon, module


def main() -> None:
    module.run_module(cordon.FACE)


if __name__ == "__main__":
    main()
