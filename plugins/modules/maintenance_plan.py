# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_plan
short_description: Plan the maintenance of nodes
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Assigns every pod on the nodes its route and reports all blockers at once.
  - Changes nothing. What admission webhooks and policies might refuse in the run is tried by dry runs.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes.read_only
  - kubeops.node_maintenance.choices
  - kubeops.node_maintenance.choices.budgets
  - kubeops.node_maintenance.choices.koordinator
  - kubeops.node_maintenance.choices.rules
  - kubeops.node_maintenance.hooks
options:
  nodes:
    description:
      - Names of the nodes, as a list or as a string separated by commas, spaces or newlines.
      - Exactly one of O(nodes) and O(node_selector) is required.
    type: list
    elements: str
  node_selector:
    description: Label selector of the nodes.
    type: str
  run:
    description:
      - The run that already works on the nodes, if any, as C(<id>) or C(<id>/<nonce>). Its own locks are not
        blockers.
      - With a nonce the plan is one that a started run makes before a wave, to see that it still fits. The permissions
        and the fence were checked before the start and are not checked again.
    type: str
  goal:
    description:
      - The wanted state of the nodes. With V(evacuated), nodes that are already out of service and drained are in no
        wave.
    type: str
    choices: [maintained, evacuated]
    default: maintained
  on_blocked:
    description:
      - What the blockers of single nodes mean for the others. With V(skip), the nodes with blockers join no wave, the
        plan is made for the others, and RV(feasible) is about these. A blocker of other things than nodes of the plan
        stops all.
    type: str
    choices: [stop, skip]
    default: stop
    version_added: 1.0.0
  order:
    description:
      - In which order the nodes are taken out of service.
      - V(given) is the order of O(nodes), or by name with O(node_selector). V(name) is by name; numbers in it count by
        their value. V(pods) begins with the node with the fewest pods to move, V(priority) with the one whose most
        important pod to move has the lowest priority. V(zone) does zone after zone, by O(zone_key).
      - A node goes into the first wave with room for it, so O(max_per_zone) can move a later node forward.
    type: str
    choices: [given, name, pods, priority, zone]
    default: given
  max_parallel:
    description:
      - How many nodes may be out of service at the same time.
      - A wave is smaller if it would have two nodes of the control plane, or more pods with local volumes of one budget
        than that allows to be down at the same time.
    type: int
    default: 1
  zone_key:
    description:
      - The node label with a node's zone, for O(max_per_zone) and O(order=zone). It is an error if no node has it.
    type: str
    default: topology.kubernetes.io/zone
  max_per_zone:
    description:
      - How many nodes of one zone may be out of service at the same time. Nodes without the label count as one zone.
    type: int
  kured:
    description:
      - Namespace and name of kured's DaemonSet. While its lock is held in the name of a node, no node is taken out.
      - Such a lock on another DaemonSet is a warning, because anybody who may create DaemonSets can write it.
    type: str
    default: kube-system/kured
  settle:
    description:
      - How long replacement pods will have to be ready, see O(kubeops.node_maintenance.pdb_guard#module:settle); for
        the estimate. Two seconds by default.
    type: str
  node_conditions:
    description:
      - Whether M(kubeops.node_maintenance.node_cordon) will set node conditions, see
        O(kubeops.node_maintenance.node_cordon#module:node_conditions); the plan then checks the permission for it.
    type: bool
    default: false
  planned_notice:
    description:
      - See O(kubeops.node_maintenance.node_cordon#module:planned_notice); for the estimate. Needs O(node_conditions).
    type: str
  announce_events:
    description:
      - Whether M(kubeops.node_maintenance.maintenance_event) is going to create Events, to check the permissions.
    type: bool
    default: false
  timeout:
    description:
      - The limit that each call of M(kubeops.node_maintenance.pdb_guard) and M(kubeops.node_maintenance.node_drain) will
        have, in seconds or as C(90s), C(10m), if it is not their own one. A finding says if the forecast exceeds it.
    type: str
seealso:
  - module: kubeops.node_maintenance.node_drain
  - module: kubeops.node_maintenance.node_ready
"""

EXAMPLES = r"""
- name: See what would happen
  kubeops.node_maintenance.maintenance_plan:
    node_selector: pool=blue
    max_parallel: 2
  register: plan
"""

RETURN = r"""
feasible: {description: Whether there is no blocker., returned: when the cluster could be read, type: bool}
findings:
  description: Everything worth knowing before the first write.
  returned: always
  type: list
  elements: dict
  contains:
    code: {description: A code of the closed list in the documentation., type: str, sample: stateful_single}
    severity: {description: "V(blocker) prevents the maintenance, V(warning) and V(info) do not.", type: str}
    object:
      description: The object concerned, or the first of them and how many there are besides.
      type: str
      sample: StatefulSet shop/db and 15 more
    objects:
      description:
        - All objects that it is about, and the Services that go dark.
        - Findings that say the same of different objects are one.
      type: list
      elements: str
      sample: [StatefulSet shop/db, StatefulSet shop/queue]
    message: {description: What was found., type: str}
    remedy: {description: What can be done about it., type: str}
pods:
  description: Every pod on the nodes.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    namespace: {description: Its namespace., type: str}
    name: {description: Its name., type: str}
    uid: {description: Its UID., type: str}
    node: {description: The node it is on., type: str}
    owner: {description: The workload that it belongs to; empty for a bare pod., type: str, sample: Deployment shop/web}
    route: {description: "V(skip), V(surge), V(replace), V(evict), V(job), V(wait) or V(refuse).", type: str}
    code: {description: "Why it takes this route, as a code of the closed list in the documentation.", type: str}
    reason: {description: Why it takes this route., type: str}
    remedy: {description: What to do if it must not be moved., type: str}
    budgets: {description: The budgets that apply to it., type: list, elements: str}
    fits: {description: Whether there is room for it elsewhere; C(null) if no forecast was made., type: bool}
    target: {description: The node where it will likely be scheduled; C(null) if no forecast was made., type: str}
    forecast:
      description:
        - Why it fits nowhere, in the scheduler's words; whom the scheduler would preempt for it; or why no forecast was
          made. Empty if it fits.
      type: str
      sample: "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
    seconds:
      description:
        - How long it takes once it is its turn, until it is gone and its successor is Ready. C(null) if it stays.
          RV(budgets) says how long it may wait for its turn.
      type: float
    fate:
      description: If its node is lost, what happens to the pod without intervention; otherwise C(null).
      type: dict
      contains:
        told_at:
          description: When it is deleted; empty if never, or if the taint for it is not set yet.
          type: str
          sample: "2026-03-01T02:56:10Z"
        in_seconds: {description: The same in seconds from now; V(0) if that time has passed., type: int}
        successor:
          description:
            - When its controller starts a replacement. V(at_once) when the pod is deleted; V(after_its_volume) the
              same, but the replacement waits for a volume; V(after_its_object) only when the pod's object is gone;
              V(none) never.
          type: str
          sample: after_its_object
        volumes:
          description: PersistentVolumes of its claims that stay attached to the node.
          type: list
          elements: str
        reason: {description: All of that as a sentence., type: str}
left_out:
  description: With O(on_blocked=skip), the nodes that join no wave because of blockers, which are in RV(findings).
  returned: when the cluster could be read
  type: list
  elements: str
  sample: [worker-3]
waves:
  description: The remaining nodes, by wave, in order.
  returned: when the cluster could be read
  type: list
  elements: list
  sample: [[worker-1], [worker-2]]
waits:
  description:
    - Why nodes are not in an earlier wave, once for each node that is not in the first one, in the order of the waves.
    - It tells of the wave before the node's own. Waves before that one had no room either.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    node: {description: The node., type: str, sample: worker-3}
    wave: {description: "Its wave, from 1.", type: int, sample: 2}
    limits:
      description:
        - Which options the wave before would exceed with it, V(max_parallel) or V(max_per_zone); V(control_plane) if it
          would have two nodes of the control plane, V(budget) if it would have more pods that stay down than their
          budget allows, V(room) if not all pods of the wave would fit elsewhere.
        - V(queue) if it gave way to later nodes, because its pods would have made the longest queue of the wave longer.
      type: list
      elements: str
      sample: [max_per_zone]
    behind:
      description:
        - The nodes of the wave before, which come first; without V(max_parallel) those of the same zone, of the control
          plane, with pods of the same budget or with pods that need the same room. If these were not in it, the node
          would be.
      type: list
      elements: str
      sample: [worker-1]
    together:
      description:
        - The other nodes with pods of the same gang, which leave in the same wave. There was no room for all of them.
      type: list
      elements: str
      sample: []
    reason: {description: All of that in words., type: str, sample: wave 1 has worker-1 of the same zone}
wave_seconds:
  description:
    - How long each wave is expected to take, from its cordon until its nodes are back, without your own tasks and the
      gates after them.
  returned: when the cluster could be read
  type: list
  elements: int
  sample: [35, 20]
wave_ranges:
  description:
    - The fewest and most seconds that each wave may take, by how long its pods take to end. Only the last rollout of
      a StatefulSet tells that before; any other pod may use its whole grace period.
  returned: when the cluster could be read
  type: list
  elements: list
  sample: [[33, 61], [20, 20]]
wave_parts:
  description:
    - What these times are made of, in seconds, for each wave.
    - The start time of a workload is measured on its own running pods, the end of a StatefulSet's pods on its last
      rollout.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    steps: {description: "Cordon, the proof that the nodes are empty, and giving them back.", type: float}
    notice: {description: How long others get to react before the first pod is moved., type: float}
    starts: {description: Waiting for replacement pods to be ready., type: float}
    stops: {description: Waiting for pods to end., type: float}
    budgets: {description: Waiting for the turn of a pod by its budget., type: float}
    jobs: {description: Waiting for Koordinator's PodMigrationJobs., type: float}
  sample: [{steps: 3.0, notice: 0.0, starts: 4.0, stops: 9.0, budgets: 20.0, jobs: 0.0}]
estimate_seconds:
  description: RV(wave_seconds) of all waves together.
  returned: when the cluster could be read
  type: int
estimate_range:
  description: RV(wave_ranges) of all waves together.
  returned: when the cluster could be read
  type: list
  elements: int
  sample: [53, 81]
advice:
  description:
    - What would remove blockers of the plan, one entry for those of a kind, also for what only stands in the way once
      others are removed.
    - Empty if nothing is wrong, or if no such change helps. RV(findings[].remedy) then says what does.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    codes: {description: The codes of the findings., type: list, elements: str, sample: [stateful_single, recreate]}
    objects: {description: What these are about., type: list, elements: str, sample: [StatefulSet shop/db]}
    changes:
      description:
        - Changes of which one is enough. An option is for all of the objects, any other change for the one that it
          names, of the first ten.
      type: list
      elements: dict
      contains:
        code:
          description: What is done, as a code of the closed list in the documentation.
          type: str
          sample: relax_budget
        kind: {description: The kind of the object to change; empty for an option., type: str, sample: Deployment}
        namespace: {description: Its namespace., type: str, sample: shop}
        name: {description: "Its name; for an option its name without C(maintain_).", type: str, sample: web}
        text: {description: The change as a sentence., type: str}
        command:
          description: What makes the change, for a shell or for C(ansible-playbook); empty if there is no such line.
          type: str
          sample: "kubectl scale deployment web -n shop --replicas=3"
        back:
          description: What takes it back after the maintenance; empty if nothing is left of the change.
          type: str
          sample: "kubectl scale deployment web -n shop --replicas=2"
budgets:
  description:
    - The budgets that hold pods back, by wave. Within a wave, those that block for good come first, then the one that
      holds it up longest.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    namespace: {description: Its namespace., type: str}
    name: {description: The name of the budget., type: str}
    workload: {description: The workload of its first pod., type: str, sample: Deployment shop/web}
    guard: {description: "Whether it is a budget that the run will create, for pods that have none.", type: bool}
    wave: {description: "The wave, from 1.", type: int}
    pods: {description: How many of its pods leave in the wave., type: int}
    allowed:
      description: How many of them may be missing at a time. V(0) if it does not allow any eviction at the moment.
      type: int
    seconds:
      description:
        - How long the last of the pods waits for its turn. Where RV(budgets[].allowed) is V(0), the time counts from
          when the budget allows an eviction again.
      type: float
    blocks: {description: Whether it never allows an eviction of these pods., type: bool}
fence:
  description:
    - Whether the API server refuses evictions from a run that lost its lock, see
      M(kubeops.node_maintenance.maintenance_access). V(present), V(absent), V(incomplete) if a part of it is missing
      or was changed, or V(unknown) if the credentials do not allow reading it or O(run) has a nonce.
  returned: when the cluster could be read
  type: str
  sample: present
nodes:
  description: Every requested node. Missing if the call failed as a whole.
  returned: when the cluster could be read
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str}
    outcome:
      description:
        - V(planned) - the node can be taken out.
        - V(at_goal) - the node is already out and empty.
        - V(blocked), a failure - a finding does not allow the node to be taken out.
        - V(unknown), a failure - there is no such node.
      type: str
    failed: {description: Whether the maintenance of the node cannot continue., type: bool}
    message: {description: The outcome as a sentence., type: str}
    address: {description: Its InternalIP., type: str}
    record: {description: "The record on the node, without the nonce.", type: dict}
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
