# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_cordon
short_description: Take nodes out of service and return them
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Acquires the lock of each node, writes the record of its previous state, cordons it and taints it, with one
    conditional patch per node. The other states are the later steps of the maintenance and the return to service.
  - The same patch sets labels and annotations that keep load balancers, autoscalers and remediation operators away from
    the node, see O(exclude_from_load_balancers), O(hold_autoscalers) and O(hold_remediation).
  - The return to service undoes only what the record lists as ours. What others changed meanwhile is kept and reported.
  - A node that cannot be changed (another run holds it, it is not drained) does not affect the other nodes.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.choices.rules
  - kubeops.node_maintenance.nodes
options:
  state:
    description:
      - V(cordoned) takes the nodes out of service.
      - V(out) means that work on the hosts starts. It checks again that the nodes are drained, and keeps the lock
        for O(lease_duration), because the work may continue after this playbook was killed.
        If a Service has an external load balancer, it waits until half a minute has passed since the nodes were
        taken out of service, so that they receive no more traffic.
      - V(returning) removes our taint but keeps the cordon, so that DaemonSet pods come back before any other.
      - V(parked) leaves the nodes out of service with no run working on them. Any later call may take them over.
      - V(uncordoned) returns the nodes to service. Workloads whose pods fitted on no other node are waited for until
        they are complete, three minutes at most; RV(nodes[].kept) says what still is not.
    type: str
    choices: [cordoned, out, returning, parked, uncordoned]
    default: cordoned
  run:
    description:
      - The run that this call belongs to, as C(<id>) or C(<id>/<nonce>); see
        M(kubeops.node_maintenance.maintenance_state). C(/<nonce>) means the run in each node's record; the nonce
        identifies this start of the playbook.
      - Without it this is a manual call. It continues what manual calls have started, takes over nodes that are
        V(parked), and nodes that another run left once their lock has not been renewed for its full duration; never a
        node that is V(out).
    type: str
  reason:
    description: The reason, shown to others who find the node out of service.
    type: str
  taint:
    description:
      - Whether to set the taint C(maintenance.kubeops.io/in-progress), which keeps pods off even if someone uncordons
        the node.
    type: bool
    default: true
  exclude_from_load_balancers:
    description:
      - Whether to set the label C(node.kubernetes.io/exclude-from-external-load-balancers), so that load balancers
        outside of the cluster send no traffic to the node while it is out of service.
      - This option, O(hold_autoscalers) and O(hold_remediation) apply when O(state=cordoned) takes a node out. The
        record then says what was set, so later calls return exactly that, whatever their options say.
    type: bool
    default: true
  hold_autoscalers:
    description:
      - Whether to set the annotations C(cluster-autoscaler.kubernetes.io/scale-down-disabled) and
        C(karpenter.sh/do-not-disrupt) to V("true"), so that neither autoscaler removes the empty node while it is
        out of service.
    type: bool
    default: true
  hold_remediation:
    description:
      - Whether to set the label C(remediation.medik8s.io/exclude-from-remediation) to V("true"), so that the operators
        of Medik8s do not reboot or fence the node because it is not Ready while it is out of service.
      - It does not hold a MachineHealthCheck of Cluster API, which reads only the annotations of the Machine.
    type: bool
    default: true
  node_conditions:
    description:
      - Whether to tell others of the maintenance by the node conditions C(MaintenancePlanned), C(DrainInProgress),
        C(Drained) and C(MaintenanceInProgress) of Kubernetes (KEP-5683). Nodes that are taken out with V(true) keep
        them up to date until they have returned, whatever later calls say.
      - It costs one more request at each step of each node, and the permission to patch C(nodes/status).
    type: bool
    default: false
  planned_notice:
    description:
      - How long O(state=cordoned) waits after it has set C(MaintenancePlanned), so that others can react before the
        first pod is moved, in seconds or as C(90s), C(10m), C(1h30m). Needs O(node_conditions). After a kill, only the
        rest of it is waited for.
    type: str
  lease_namespace:
    description:
      - The namespace of the locks. Defaults to C(medik8s-leases) if that namespace exists, otherwise to
        C(kubeops-node-maintenance).
    type: str
  lease_duration:
    description:
      - With O(state=out) or O(state=cordoned), how long work during which nothing renews the lock (tasks on the hosts,
        tasks that switch a machine off) may take before others may take over, in seconds or as C(90s), C(10m),
        C(1h30m).
    type: str
  adopt:
    description:
      - Whether to take over a node where another run's tasks may still be running. The lock that its run
        left for them is taken at once; the call waits as usual for a lock that someone else holds.
      - Set this only if you know that the tasks are not running.
    type: bool
    default: false
  stored:
    description:
      - Whether M(kubeops.node_maintenance.maintenance_state) has started O(run). Then V(cordoned) cordons
        only the nodes that this run still has to do.
      - This keeps a start that was suspended before it acquired a node's lock from doing the node again after another
        start of the same run has continued in its place. Its nodes are then V(adopted_by).
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

- name: Return them to service
  kubeops.node_maintenance.node_cordon:
    nodes: worker-1, worker-2
    state: uncordoned
"""

RETURN = r"""
nodes:
  description: The result for each node, in the order given. Missing if the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str, sample: worker-1}
    outcome:
      description:
        - V(cordoned) - the node takes no new pods, and its record names the run.
        - V(out) - the node is handed over to the tasks on its host.
        - V(returning) - the node is on its way back.
        - V(parked) - the node stays out of service.
        - V(uncordoned) - the node is in service again, without a record.
        - V(replaced) - the node was registered again while it was out, so nothing of its maintenance is left on it.
        - V(already_cordoned) - the node was already cordoned or drained.
        - V(already_out) - the node was already out.
        - V(already_returning) - the node was already returning.
        - V(already_parked) - the node was already parked.
        - V(not_in_maintenance) - the node has no record, so there was nothing to undo.
        - V(gone) - the node no longer exists.
        - V(held), a failure - another run works on the node.
        - V(adopted_by), a failure - another run took the node over.
        - V(not_drained), a failure - pods that have to leave are still on the node.
        - V(still_dead), a failure - the node was evacuated as dead, and its kubelet does not respond yet.
        - V(not_in_maintenance_yet), a failure - the node has no record, so it was never taken out.
        - V(failed), a failure - the API server refused, or the record cannot be read.
      type: str
      sample: cordoned
    failed: {description: Whether it failed., type: bool}
    message: {description: "The outcome as a sentence, with the remedy for failures.", type: str}
    kept:
      description: What others changed and what was therefore left as it is, and what does not run again yet.
      type: list
      elements: str
    record: {description: "The record on the node, without the nonce; C(null) if there is none.", type: dict}
    out_since:
      description: Since when the node is out of service, by the clock of the machine that made the call.
      type: str
    moved_before:
      description: How many pods had left it by its drains before this call; C(null) if one of them was not ended.
      type: int
actions:
  description: What was done, or would be done in check mode, as sentences.
  returned: always
  type: list
  elements: str
  sample: [Cordon node worker-1]
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_cordon

if __name__ == "__main__":
    specs.run_module(arguments_cordon.SPEC)
