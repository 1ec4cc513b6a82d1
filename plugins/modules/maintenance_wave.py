# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_wave
short_description: Take a wave of nodes out of service, and return it after the work on its hosts
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - The two calls around the work on the hosts of a wave, each with the steps of the other modules in one process. The
    playbook C(maintain) consists of them; M(kubeops.node_maintenance.node_cordon), M(kubeops.node_maintenance.pdb_guard)
    and M(kubeops.node_maintenance.node_drain) are for those who compose these steps themselves.
  - V(out) cordons the nodes, prepares their pods, drains the nodes and keeps their locks for the work. A node that
    fails is returned to service at once, or kept out with O(on_failure=keep). V(back) returns the nodes whose work is
    done, through their gates, sets their taints, and keeps the others out of service.
  - V(released) does the latter with nodes that earlier runs left out of service, as the playbooks C(release) and
    C(recover) do.
  - Where a playbook has to do something in between (task files of hooks, a machine to be switched off), the call ends early
    and says what is due, see RV(hooks) and RV(to_fence). The same call with its answer as O(before) then goes on.
  - A node that fails affects no other node.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.nodes
options:
  state:
    description: Which call it is. Check mode asks no gates with V(released).
    type: str
    choices: [out, back, released]
    required: true
  run:
    description:
      - The run, as RV(kubeops.node_maintenance.maintenance_state#module:run) has it. With O(state=released) it may be
        C(/<nonce>) for the runs in the nodes' records, which are told that their nodes are back.
    type: str
    required: true
  goal:
    description: With V(evacuated), O(state=back) leaves the nodes out of service.
    type: str
    choices: [maintained, evacuated]
    default: maintained
  plan:
    description:
      - Options of M(kubeops.node_maintenance.maintenance_plan). If given, even empty, it is checked first whether the
        wave still fits; if it does not, nothing is changed.
    type: dict
  cordon:
    description: Options of M(kubeops.node_maintenance.node_cordon).
    type: dict
  protect:
    description: Options of M(kubeops.node_maintenance.pdb_guard).
    type: dict
  migrate:
    description: Options of M(kubeops.node_maintenance.node_drain), with the hooks of pods.
    type: dict
  verify:
    description: The gates, options of M(kubeops.node_maintenance.node_ready).
    type: dict
  taint:
    description: Options of M(kubeops.node_maintenance.node_taint), for nodes before they are uncordoned.
    type: dict
  before_node:
    description: Rules of hooks of nodes before they are drained, as of M(kubeops.node_maintenance.maintenance_hooks).
    type: list
    elements: dict
  after_node:
    description: Rules of hooks of nodes before they return.
    type: list
    elements: dict
  on_failure:
    description:
      - V(auto) returns nodes to service that fail before the work, and leaves those out whose work or gates fail.
      - V(keep) leaves the former out, too, and V(release) returns all.
    type: str
    choices: [auto, keep, release]
    default: auto
  has_work:
    description: Whether tasks on the hosts follow O(state=out).
    type: bool
    default: false
  tasks_timeout:
    description:
      - How long the tasks may take before others may take the nodes over, in seconds or as C(90s), C(10m), C(1h30m).
    type: str
    default: 1h
  works:
    description:
      - With O(state=back) and O(has_work), what came of the tasks on the hosts, by node. Each has an C(outcome), one of
        V(done), V(failed) and V(waiting), a C(message), and maybe C(not_rebooted). A node without one stays out of
        service.
    type: dict
  runs:
    description: The runs that had left nodes out of service before, by node. They are told that these are back.
    type: dict
  adopt:
    description:
      - Whether O(state=out) and O(state=released) take over nodes where another run's tasks may still be running. Set this
        only if you know that they are not.
    type: bool
    default: false
  fences:
    description: Whether nodes whose kubelets do not respond are due to be switched off.
    type: bool
    default: false
  fenced:
    description: The nodes of RV(to_fence) that were switched off since.
    type: list
    elements: str
  files:
    description: What came of the task files of hooks so far.
    type: dict
  before:
    description: The answer of the call before this one for the same wave. O(state=back) needs that of O(state=out).
    type: dict
  last:
    description: Whether the run ends after this wave, so that its results need not be stored.
    type: bool
    default: false
  lease_duration:
    description: For how long the run counts as alive after O(state=back), in seconds or as C(90s), C(10m), C(1h30m).
    type: str
seealso:
  - module: kubeops.node_maintenance.node_drain
  - module: kubeops.node_maintenance.maintenance_state
"""

EXAMPLES = r"""
- name: Take two nodes out of service
  kubeops.node_maintenance.maintenance_wave:
    state: out
    nodes: [worker-1, worker-2]
    run: "{{ started.run }}"
    cordon: {reason: new kernel}
    migrate: {timeout: 30m}
    has_work: true
  register: out

- name: Return them
  kubeops.node_maintenance.maintenance_wave:
    state: back
    nodes: [worker-1, worker-2]
    run: "{{ started.run }}"
    before: "{{ out }}"
    has_work: true
    works:
      worker-1: {outcome: done, message: ''}
      worker-2: {outcome: failed, message: No such package}
    verify: {gates: [ready, daemonsets, rebooted]}
"""

RETURN = r"""
nodes:
  description:
    - What came of each node. Missing if the call could not begin; then nothing was changed. Empty if something is due.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str, sample: worker-1}
    outcome:
      description:
        - That of its last step, for a node that did not fail.
        - V(failed), a failure - the maintenance of the node failed.
        - V(failed_tasks), a failure - the user's tasks failed on the node.
      type: str
      sample: drained
    failed: {description: Whether it is not where it should be., type: bool}
    message: {description: "The outcome as a sentence, with the remedy for failures.", type: str}
ready: {description: The nodes whose hosts the work may begin on., returned: when the work could begin, type: list, elements: str}
back: {description: The nodes that are at their goal., returned: when the work could begin, type: list, elements: str}
due: {description: Whether the call has to be made again., returned: when the work could begin, type: bool}
locked: {description: The nodes whose locks are to be kept until then., returned: when the work could begin, type: list, elements: str}
hooks:
  description: The task files to run before the call is made again.
  returned: when the work could begin
  type: list
  elements: dict
to_fence:
  description: The nodes whose machines to switch off before the call is made again.
  returned: when the work could begin
  type: list
  elements: str
stop:
  description: Why the wave does not start; the cluster has changed since it was planned. Nothing was changed then.
  returned: when the work could begin
  type: str
left_out: {description: Why nodes of the wave are left out by O(plan)., returned: when the work could begin, type: list, elements: str}
answers: {description: What later calls for this wave need to know of its steps., returned: when the work could begin, type: dict}
broken: {description: The error that ended the way out for all nodes., returned: when the work could begin, type: str}
broken_late: {description: The error that ended the way back., returned: when the work could begin, type: str}
steps:
  description: The results of the steps, each with its name as C(step), as their modules return them.
  returned: when the work could begin
  type: list
  elements: dict
details: {description: Files with the results in full., returned: in the playbooks of this collection, type: list, elements: str}
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
