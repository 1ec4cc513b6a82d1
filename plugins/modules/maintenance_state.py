# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_state
short_description: Start, end, list, finish and undo maintenance runs
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Stores a run in the cluster (ConfigMap C(run-<id>)) with its input, its plan and the nodes it has finished,
    so that the same command resumes a run that was killed.
  - Finds everything that earlier runs left, and finishes or undoes it.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(started) starts a run, or resumes the one with the same O(input) (or the one named by O(run)).
      - V(noted) records O(nodes) as finished.
      - V(ended) ends the run. The stored run is deleted, unless the run O(failed) and left something to resume.
      - V(listed) only reads what runs left in the cluster.
      - V(undone) undoes what dead runs left, and deletes the stored runs; with O(run), what that run left. V(finished)
        does so only where the work was completed. Neither touches what a live run holds.
      - Neither returns a node to service that was parked or whose host was being worked on; see RV(nodes).
    type: str
    choices: [started, noted, ended, listed, finished, undone]
    default: listed
  run:
    description:
      - The run, as C(<id>) or C(<id>/<nonce>).
      - With O(state=noted) also C(/<nonce>), for whatever runs the records of O(nodes) name.
      - With O(state=started) the id of the run to resume; it is an error if there is no such run.
      - With O(state=listed), O(state=finished) and O(state=undone), all runs by default. With O(state=listed) and
        O(input) as with O(state=started).
    type: str
  input:
    description:
      - With O(state=started), what identifies two starts as the same run (playbook, nodes, tasks).
      - With O(state=listed), RV(resumable) shows which run a start with the same input would resume.
    type: dict
  plan:
    description:
      - With O(state=started), the plan. It is stored with the run, and tells which nodes are left, the numbers of waves, and
        which nodes wait.
    type: dict
  nodes:
    description:
      - With O(state=noted), the nodes that are finished. Without nodes, the call only reports that the run is alive.
    type: list
    elements: str
  results:
    description:
      - With O(state=noted), the results of the modules for a wave that is over. What its report says in numbers is kept
        with the run, so that the report of a start that resumes it counts from the first start.
    type: list
    elements: dict
  failed:
    description: With O(state=ended), whether something failed, so that the same command may resume the run.
    type: bool
    default: false
  parked:
    description:
      - With O(state=undone) or O(state=finished) and without O(run), whether to include nodes that were left out
        of service on purpose. They too return only through the gates.
    type: bool
    default: false
  lease_duration:
    description:
      - With O(state=started) and O(state=noted), how long the run counts as alive although it holds no node's lock, in
        seconds or as C(90s), C(10m), C(1h30m). One minute by default.
    type: str
  mark_waiting:
    description:
      - With O(state=started), whether to set the taint C(maintenance.kubeops.io/waiting) with the effect
        V(PreferNoSchedule) on the nodes of all waves of O(plan) but the first, so that pods that leave earlier nodes
        prefer others and move once. It is removed when its node is cordoned, and at the latest when the run ends or is
        undone. What cannot be set or removed is told, and stops nothing.
    type: bool
    default: false
seealso:
  - module: kubeops.node_maintenance.node_cordon
"""

EXAMPLES = r"""
- name: List what earlier runs left
  kubeops.node_maintenance.maintenance_state:
  register: left

- name: Undo what dead runs left, except for nodes that have to pass the gates
  kubeops.node_maintenance.maintenance_state:
    state: undone

- name: Undo what one run left
  kubeops.node_maintenance.maintenance_state:
    state: undone
    run: 3b032189
"""

RETURN = r"""
run:
  description:
    - The run as C(<id>/<nonce>), to be passed on as O(kubeops.node_maintenance.node_cordon#module:run).
    - Anyone with the nonce may act for the run.
  returned: with O(state=started)
  type: str
earlier:
  description: What earlier starts of the run have done, for the report; C(null) unless the run was resumed.
  returned: with O(state=started)
  type: dict
  contains:
    since: {description: "When the first one began, by the clock of the machine that makes the call.", type: str}
    waves: {description: "The nodes that they have finished, by wave.", type: list, elements: list}
    waves_done: {description: "How many waves are finished, from the first on.", type: int}
    pods_moved: {description: How many pods had left these nodes., type: int}
    out_seconds: {description: For how long nodes of these waves were out of service., type: float}
    watched_seconds: {description: For how long Services were watched meanwhile., type: float}
    dark: {description: "When Services were dark, as namespace, name, start and end.", type: list, elements: list}
    whole: {description: "Whether that is all, because no start was killed.", type: bool}
resumed: {description: Whether this start continues an earlier one., returned: with O(state=started), type: bool}
finished_nodes:
  description: The nodes that the run has already finished.
  returned: with O(state=started) and O(state=noted)
  type: list
  elements: str
resumable:
  description: The run that a start with the same O(input) would resume; C(null) if there is none.
  returned: with O(state=listed)
  type: dict
  contains:
    run: {description: The run's id., type: str}
    finished: {description: The nodes that it has already finished., type: list, elements: str}
    waves_done: {description: "How many of its waves are finished, from the first on.", type: int}
    noted: {description: "When the last of them was recorded as finished, or the run ended with failures.", type: str}
    by: {description: Who started it., type: str}
    since: {description: When it was started., type: str}
traces:
  description: What runs left in the cluster.
  returned: with O(state=listed), O(state=finished) and O(state=undone)
  type: list
  elements: dict
  contains:
    run: {description: The run's id., type: str}
    by: {description: Who started it., type: str}
    since: {description: When it was started., type: str}
    alive:
      description: Whether its run is alive now, because it holds a lock or is between two of its waves.
      type: bool
    object: {description: The object that was left or changed., type: str}
    kind: {description: Its kind., type: str}
    what: {description: "What was left, as a sentence.", type: str}
    nodes: {description: The nodes it concerns., type: list, elements: str}
    step: {description: Of a node's record its step; empty for anything else., type: str}
nodes:
  description: The result for each node. Missing if the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name: {description: The node., type: str}
    outcome:
      description:
        - V(noted) - the node is recorded as finished.
        - V(left) - the node is left as it is; the message says why, and how to return it.
        - V(still_dead) - the node was evacuated as dead, and its kubelet does not respond yet.
        - V(to_verify) - the node has to pass the gates before it takes pods; use recover or release.
        - V(bad_record), a failure - the node's record cannot be read.
        - V(held), a failure - a live run holds the lock of the node.
        - V(failed), a failure - the API server refused.
        - A node that was returned to service, or could not be, has the outcome that
          M(kubeops.node_maintenance.node_cordon) or M(kubeops.node_maintenance.pdb_guard) has for that.
      type: str
    failed: {description: Whether it failed., type: bool}
    message: {description: The outcome as a sentence., type: str}
actions: {description: "What was done, or in check mode would be done.", returned: always, type: list, elements: str}
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
