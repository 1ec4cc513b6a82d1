# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_state
short_description: Start, end, list, finish and undo maintenance runs
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Keeps a run's memory in the cluster (ConfigMap C(run-<id>)), its input, its plan and the nodes it has finished,
    so that the same command resumes a run that was killed.
  - Finds every trace of earlier runs, and finishes or undoes them.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(started) begins a run, or resumes the one with the same O(input) (or the one named by O(run)).
      - V(noted) notes O(nodes) as finished.
      - V(ended) ends the run. Its memory goes, unless it O(failed) and left something to go on with.
      - V(listed) only reads what runs left in the cluster.
      - V(undone) gives back what dead runs left, and forgets them; with O(run) what that run left. V(finished) does so
        only where the work was done. Both leave alone what a living run holds.
      - Neither gives a node back on whose host somebody was at work, or that was parked; see RV(nodes).
    type: str
    choices: [started, noted, ended, listed, finished, undone]
    default: listed
  run:
    description:
      - The run, as C(<id>) or C(<id>/<nonce>).
      - With O(state=noted) also C(/<nonce>), for whatever runs the records of O(nodes) name.
      - With O(state=started) the id of the run to resume; it is an error when there is none.
      - With O(state=listed), O(state=finished) and O(state=undone), all runs where it is not given.
    type: str
  input:
    description:
      - With O(state=started), what makes two starts the same run (playbook, nodes, tasks).
      - With O(state=listed), RV(resumable) tells which run the same start would resume.
    type: dict
  plan:
    description:
      - With O(state=started), the plan; kept for those who look at the run later.
    type: dict
  nodes:
    description:
      - With O(state=noted), the nodes that are finished. With none of them the call only says that the run lives.
    type: list
    elements: str
  failed:
    description:
      - With O(state=ended), whether something failed, so that the same command may resume the run.
    type: bool
    default: false
  parked:
    description:
      - With O(state=undone) or O(state=finished) and without O(run), whether nodes count as well that people left out
        of service on purpose. They, too, only come back through the gates.
    type: bool
    default: false
  lease_duration:
    description:
      - With O(state=started) and O(state=noted), how long the run counts as alive although it has no node's lock, in
        seconds or as C(90s), C(10m), C(1h30m). One minute where it is not given.
    type: str
seealso:
  - module: kubeops.node_maintenance.node_cordon
"""

EXAMPLES = r"""
- name: What did earlier runs leave?
  kubeops.node_maintenance.maintenance_state:
  register: left

- name: Undo what dead runs left, but for nodes that have to pass the gates
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
    - Whoever has the nonce may act for the run.
  returned: with O(state=started)
  type: str
resumed:
  description: Whether an earlier start of this run goes on.
  returned: with O(state=started)
  type: bool
finished:
  description: The nodes that the run has finished already.
  returned: with O(state=started)
  type: list
  elements: str
resumable:
  description: The run that a start with the same O(input) would resume, C(null) when there is none.
  returned: with O(state=listed)
  type: dict
  contains:
    run:
      description: The run's id.
      type: str
    finished:
      description: The nodes that it has finished already.
      type: list
      elements: str
    by:
      description: Who started it.
      type: str
    since:
      description: Since when.
      type: str
traces:
  description: What runs left in the cluster.
  returned: with O(state=listed), O(state=finished) and O(state=undone)
  type: list
  elements: dict
  contains:
    run:
      description: The run's id.
      type: str
    by:
      description: Who started it.
      type: str
    since:
      description: Since when.
      type: str
    alive:
      description: Whether its run lives at this moment, because it holds a lock or is between two of its waves.
      type: bool
    object:
      description: The object that carries the trace.
      type: str
    what:
      description: What it says.
      type: str
nodes:
  description: What became of each node. Not there when the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
    outcome:
      description:
        - V(noted) - the node is noted as finished.
        - V(left) - the node is left as it is; the message says why, and what gives it back.
        - V(still_dead) - the node was evacuated as dead, and its kubelet does not answer yet.
        - V(to_verify) - the node has to pass the gates before it takes pods, which recover and release see to.
        - V(bad_record), a failure - the node's record cannot be read.
        - V(held), a failure - the node is locked by a run that lives.
        - V(failed), a failure - the API server refused.
        - A node that was given back, or could not be, has the outcome that M(kubeops.node_maintenance.node_cordon) or
          M(kubeops.node_maintenance.pdb_guard) has for that.
      type: str
    failed:
      description: Whether it failed.
      type: bool
    message:
      description: The outcome as a sentence.
      type: str
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
findings:
  description: Why the call failed as a whole.
  returned: when the call failed as a whole
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import module, state


def main() -> None:
    module.run_module(state.FACE)


if __name__ == "__main__":
    main()
