# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_drain
short_description: Drain nodes and verify that they are empty
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Completes the surges that M(kubeops.node_maintenance.pdb_guard) prepared, and evicts the other pods, in parallel as
    far as their budgets allow.
  - Follows every pod by its UID until it is gone, waits for replacements and volumes, and writes into the node's record
    that it is drained.
  - The nodes must be out of service, see M(kubeops.node_maintenance.node_cordon).
  - Plans every pod first. A node with a pod that must not be moved is left as it is.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.choices
  - kubeops.node_maintenance.choices.budgets
  - kubeops.node_maintenance.choices.koordinator
  - kubeops.node_maintenance.choices.rules
  - kubeops.node_maintenance.hooks
  - kubeops.node_maintenance.hooks.after
  - kubeops.node_maintenance.nodes
  - kubeops.node_maintenance.nodes.run
options:
  grace_period:
    description: Grace period of the pods in seconds, instead of their own. V(0) means none. Does not apply to surges.
    type: int
  order:
    description: Whether pods of low priority leave first, or pods leave in the order of the API server's list.
    type: str
    choices: [priority, listed]
    default: priority
  parallel:
    description:
      - How many evictions may be in flight at the same time at most. For each budget it is one.
      - The call begins with eight. It takes one more for each round of quick answers, fewer where answers become slow,
        and half as many where the API server is overloaded.
    type: int
    default: 32
  timeout:
    description: How long draining the nodes may take, in seconds or as C(90s), C(10m). What is left then fails.
    type: str
    default: 24h
  pod_timeout:
    description: How long a single pod may take, in seconds or as C(90s), C(10m). No limit by default.
    type: str
  alarm_after:
    description:
      - After how long it is reported that nothing has moved on on a node, in seconds or as C(90s), C(10m). It says who
        waits, since when, why, and what helps, once for each reason.
      - Less than a minute counts as one. V(0) means never.
      - Pods that are terminating within their grace period are not reported.
    type: str
    default: 10m
  announce:
    description:
      - Who else is told then, while the call goes on, in the form of M(kubeops.node_maintenance.maintenance_event) with
        the moment V(blocked). What could not be told is a note in RV(timeline).
      - In check mode nobody is told.
    type: dict
    suboptions:
      events:
        description: Whether to create Events about the nodes and about the workloads of the pods that are left.
        type: bool
        default: false
      webhook:
        description: Where to send it, as in O(kubeops.node_maintenance.maintenance_event#module:webhook).
        type: dict
        suboptions:
          url:
            description: The URL. It may be secret; results and messages show its scheme and host only.
            type: str
            required: true
          headers:
            description: Headers, which may be secret. They are in no result, message or diff.
            type: dict
          format:
            description: The shape of the body.
            type: str
            choices: [json, slack]
            default: json
          deadline:
            description: How long to try.
            type: str
            default: 30s
  wait_for:
    description:
      - What to wait for. V(gone) means that the pods themselves are gone, V(replacement) that their replacements are
        ready elsewhere, V(volumes) that their volumes are detached. That they are gone is always waited for; given alone,
        V(gone) waits for nothing else.
      - A replacement for which the scheduler finds no node for 15 seconds is not waited for any longer, if the budget
        of its workload holds without it and other pods of it serve; see RV(nodes[].pending). So it is for one that a
        StatefulSet does not create before an earlier pod is Ready.
      - What is waited for stands in the node's record, so a call that continues another one waits for the same.
    type: list
    elements: str
    choices: [gone, replacement, volumes]
    default: [gone, replacement, volumes]
seealso:
  - module: kubeops.node_maintenance.pdb_guard
  - module: kubeops.node_maintenance.node_cordon
notes:
  - A task written for C(kubernetes.core.k8s_drain) is told what to write instead; the guide to moving from
    C(kubernetes.core) has a table of the options.
"""

EXAMPLES = r"""
- name: Take two nodes out of service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1, worker-2]
    reason: new kernel

- name: Start second pods of single replicas, and give pods without a budget one
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1, worker-2]

- name: Drain both nodes
  kubeops.node_maintenance.node_drain:
    nodes: [worker-1, worker-2]
    timeout: 30m

- name: Remove these budgets again
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1, worker-2]
    state: absent

- name: Return the nodes to service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1, worker-2]
    state: uncordoned

# With Koordinator
- name: Take a node out of service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-3]

- name: Drain it by PodMigrationJobs, and leave what they cannot move
  kubeops.node_maintenance.node_drain:
    nodes: [worker-3]
    backend: koordinator
    fallback: fail
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
        - V(drained) - the node is empty, and its record says so.
        - V(already_drained) - there was nothing to do.
        - V(selected_gone) - the selected pods are gone; others are left, so the node is not drained.
        - V(gone) - the node was deleted meanwhile.
        - V(not_in_maintenance), a failure - the node has no record; cordon it with node_cordon first.
        - V(unknown_node), a failure - there is no such node.
        - V(held), a failure - another run works on the node.
        - V(adopted_by), a failure - another run took the node over, or somebody gave it back.
        - V(refused), a failure - a pod may not be moved, so the node is left as it is.
        - V(needs_surge), a failure - a pod leaves by a surge, which pdb_guard has to prepare first.
        - V(needs_guard), a failure - a pod has no budget, so pdb_guard has to create a guard first.
        - V(timed_out), a failure - the timeout expired; the message names what is left and what blocked it.
        - V(failed), a failure - a pod could not be moved, or the API server refused.
        - V(no_room), a failure - successors of its pods fit on no other node, so no more of its pods may leave.
        - V(replaced), a failure - the node was deleted, and another one is registered under its name.
        - V(uncordoned), a failure - somebody uncordoned the node, and it is not cordoned again.
        - V(untainted), a failure - somebody removed our taint, and it is not set again.
        - V(unreachable), a failure - its kubelet does not respond, so its terminating pods stay; the drain does not
          wait for it.
        - V(not_dead), a failure - O(fenced) names the node, but it is alive.
        - V(came_back), a failure - the kubelet of a fenced node came back during the drain.
        - Once a node has failed, nothing more is evicted from it; requests in flight still complete.
      type: str
      sample: drained
    failed: {description: Whether it failed., type: bool}
    message: {description: "The outcome as a sentence, with the remedy for failures.", type: str}
    moved_before: {description: How many pods had left it by its drains before this call., type: int}
    pods:
      description: The result for each pod.
      type: list
      elements: dict
      contains:
        namespace: {description: Its namespace., type: str}
        name: {description: Its name., type: str}
        uid: {description: Its UID., type: str}
        route:
          description: The route it took, V(job) for a PodMigrationJob. If the job did not succeed, V(evict).
          type: str
        outcome:
          description:
            - V(evicted) - our eviction ended it.
            - V(deleted) - our deletion ended it, without checking its budgets.
            - V(surged) - a new pod serves in its place.
            - V(replaced) - another pod served before our eviction ended it.
            - V(migrated) - a PodMigrationJob moved it.
            - V(let_go) - the API server removed it from a fenced node.
            - V(gone) - it ended without our eviction.
            - V(already_gone) - it was gone before it could be evicted.
            - V(cleared) - it had finished before, and its object is deleted.
            - V(mirror) - it stays, because only its kubelet can stop a static pod.
            - V(daemonset) - it stays, because its DaemonSet would recreate it at once.
            - V(not_selected) - it stays, because it is not among the selected pods.
            - V(left_by_rule) - it stays, because a rule or an annotation says so.
            - V(tolerates_maintenance) - it tolerates cordon and taint, so it is moved at most once.
            - V(out_of_service) - it stays, because it tolerates the taint out-of-service of a fenced node.
            - V(not_moved) - it stays, because its node was given up before its turn.
            - V(still_ending), a failure - it was still terminating when its node was given up.
            - V(refused), a failure - it may not be moved.
            - V(needs_surge), a failure - it leaves by a surge, which is not prepared.
            - V(needs_guard), a failure - it has no budget and no guard.
            - V(surge_failed), a failure - its surge could not be completed.
            - V(two_budgets), a failure - two budgets cover it, so no eviction of it can ever succeed.
            - V(deadline), a failure - the deadline of its rule or annotation has passed.
            - V(operator_budget), a failure - its operator did not let it go in time.
            - V(hook_failed), a failure - a hook of it failed, or was not done by its deadline.
            - V(job_failed), a failure - its PodMigrationJob failed, and no eviction was allowed instead.
            - V(failed), a failure - the API server refused its eviction permanently.
          type: str
          sample: evicted
        reason: {description: The reason for the route., type: str}
        waited_seconds: {description: How long it took until it was gone., type: float}
        blocked_by:
          description: What blocked it, if anything did, with C(kind), C(namespace), C(name) and C(message).
          type: dict
    pending:
      description:
        - Workloads that stay short of ready pods until the node is back, because the scheduler finds no other place for
          their pods, or until an earlier pod of a StatefulSet is Ready. C(ready) of C(wanted) are ready; C(reason) is
          what the scheduler says, or names that pod.
      returned: when the node is drained and there are some
      type: list
      elements: dict
      sample: [{kind: Deployment, namespace: shop, name: web, ready: 2, wanted: 3, reason: 0/3 nodes are available}]
    hooks:
      description:
        - The hooks of its pods with their C(key), C(state) and variables. The state is V(due), V(begun), V(done) or
          V(failed).
      returned: when its pods have hooks
      type: list
      elements: dict
summary:
  description: Totals.
  returned: when the work could begin
  type: dict
  contains:
    evicted: {description: Pods that were evicted., type: int}
    migrated: {description: Pods that left by a surge or by a PodMigrationJob., type: int}
    skipped: {description: Pods that stay., type: int}
    failed: {description: Pods that could not be moved., type: int}
    refusals: {description: Evictions that were refused., type: int}
    services: {description: Services that were watched., type: int}
    requests: {description: Requests that the call made., type: int}
    seconds: {description: How long the call took., type: float}
services:
  description:
    - Ready endpoints of the services whose pods left, over time; for the report. C(replicas) is what the workloads
      behind one want, V(0) if that is unknown.
  returned: when the work could begin
  type: list
  elements: dict
watched: {description: From when to when Services were watched., returned: with RV(services), type: list, elements: str}
actions: {description: "What was done, or in check mode would be done.", returned: always, type: list, elements: str}
cluster:
  description:
    - The cluster of the call, as its C(context) in the kubeconfig (V(in-cluster) with a pod's service account) and the
      address of its C(server).
  returned: when the credentials could be read
  type: dict
  sample: {context: prod, server: "https://prod.example.com:6443"}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
findings:
  description: Why the call failed as a whole, or which workloads stay short until their node is back.
  returned: after such a failure, or if there are some
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
