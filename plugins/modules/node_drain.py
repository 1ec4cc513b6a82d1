# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_drain
short_description: Empty nodes and prove that they are empty
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Ends the swaps that M(kubeops.node_maintenance.pdb_guard) prepared, and evicts the other pods, in parallel as far as
    their budgets allow.
  - Follows every pod by its UID until it is gone, waits for replacements and volumes, and writes into the node's record
    that it is drained.
  - Plans every pod first. A node with a pod that may not be moved is left as it is.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.choices
options:
  nodes:
    description:
      - Names of the nodes, as a list or as one text with commas, spaces or newlines between them.
      - They have to be out of service, see M(kubeops.node_maintenance.node_cordon).
    type: list
    elements: str
    required: true
  run:
    description:
      - The run on whose behalf this is done, as C(<id>), C(<id>/<nonce>), or C(/<nonce>) for the run in each node's
        record. Without it this is a call by hand, for nodes that such calls of M(kubeops.node_maintenance.node_cordon)
        took out or took up.
    type: str
  grace_period:
    description:
      - Seconds that a pod gets to end, instead of its own. V(0) means at once. Does not apply to swaps.
    type: int
  order:
    description:
      - Whether pods of low priority leave first, or pods leave as the API server lists them.
    type: str
    choices: [priority, listed]
    default: priority
  parallel:
    description:
      - How many requests may be under way at the same time. For each budget it is one.
    type: int
    default: 8
  timeout:
    description:
      - How long emptying the nodes may take, in seconds or as C(90s), C(10m). Without it there is no limit.
    type: str
  pod_timeout:
    description:
      - How long a single pod may take, in seconds or as C(90s), C(10m). Without it there is no limit.
    type: str
  wait_for:
    description:
      - What to wait for. V(gone) are the pods themselves, V(replacement) are their successors elsewhere, V(volumes) are
        the detachments of their volumes.
    type: list
    elements: str
    choices: [gone, replacement, volumes]
    default: [gone, replacement, volumes]
seealso:
  - module: kubeops.node_maintenance.pdb_guard
  - module: kubeops.node_maintenance.node_cordon
"""

EXAMPLES = r"""
- name: Empty a node by PodMigrationJobs, and leave what they cannot move
  kubeops.node_maintenance.node_drain:
    nodes: [worker-1]
    backend: koordinator
    fallback: fail

- name: Empty two nodes
  kubeops.node_maintenance.node_drain:
    nodes: [worker-1, worker-2]
    timeout: 30m
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
    outcome:
      description:
        - V(drained), or V(already_drained) where there was nothing to do.
        - V(selected_gone) where O(pod_selector) or O(namespaces) left other pods on the node, which is not drained
          then.
        - Failures are V(not_in_maintenance), V(adopted_by), V(held), V(unknown_node), V(refused), V(needs_surge),
          V(needs_guard), V(timed_out) and V(failed).
        - V(gone) where it was deleted meanwhile, which is no failure.
        - V(replaced) where it was deleted and another one registered under its name, V(uncordoned) and V(untainted)
          where somebody uncordoned it or removed our taint. From then on nothing more is evicted from it, and what they
          did stays; requests under way are still answered.
        - V(unreachable) where its kubelet does not answer, so that what was told to end stays there; such a node is
          never waited for. V(not_dead) where O(fenced) names a node that lives, V(came_back) where the kubelet of a
          fenced node came back in the middle.
      type: str
      sample: drained
    failed:
      description: Whether it failed.
      type: bool
    message:
      description: The outcome as a sentence; for failures with what to do.
      type: str
    pods:
      description: What became of each pod.
      type: list
      elements: dict
      contains:
        namespace:
          description: Its namespace.
          type: str
        name:
          description: Its name.
          type: str
        uid:
          description: Its UID.
          type: str
        route:
          description: The route it took, V(job) for a PodMigrationJob. Where it came to nothing, V(evict).
          type: str
        outcome:
          description: One word of the closed list in the documentation.
          type: str
          sample: evicted
        reason:
          description: Why.
          type: str
        waited_seconds:
          description: How long it took until it was gone.
          type: float
        blocked_by:
          description: What blocked it, if anything did, with C(kind), C(namespace), C(name) and C(message).
          type: dict
summary:
  description: Numbers.
  returned: when the work could begin
  type: dict
  contains:
    evicted:
      description: Pods that were evicted.
      type: int
    migrated:
      description: Pods that left by a swap or by a PodMigrationJob.
      type: int
    skipped:
      description: Pods that stay.
      type: int
    failed:
      description: Pods that could not be moved.
      type: int
    requests:
      description: Requests that the call made.
      type: int
    seconds:
      description: How long the call took.
      type: float
services:
  description: Ready endpoints of the services whose pods left, over time; for the report.
  returned: when the work could begin
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
findings:
  description: Why the call failed as a whole.
  returned: when the call failed as a whole
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.drain import FACE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.module import run_module


def main() -> None:
    run_module(FACE)


if __name__ == "__main__":
    main()
