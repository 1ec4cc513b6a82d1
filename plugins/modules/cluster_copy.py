# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_copy
short_description: Save what a maintenance depends on of a cluster, and rebuild it in a lab
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - With O(state=saved) it reads nodes, pods, their controllers, budgets, autoscalers, Services, volumes, claims,
    classes and quotas of a cluster into a file. It only lists; Secrets and ConfigMaps are not read, and images,
    commands, arguments, environments, probes and volumes with a content are left out.
  - With O(state=rebuilt) it creates them in an empty lab, whose nodes are simulated, with the same pods on the same
    nodes, and waits until they are ready. Pods take as long to start as the real ones did.
  - The playbook C(rehearse) does both, and runs C(maintain) on the copy.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(saved) - read the cluster into the file O(path).
      - V(rebuilt) - create the snapshot in the file O(path) in this cluster, which must not have any node.
    type: str
    choices: [saved, rebuilt]
    default: saved
  path:
    description: The file with the snapshot. It is compressed if its name ends with C(.gz).
    type: path
    required: true
  hash_key:
    description:
      - Replaces names, namespaces and values of labels by hashes under this key when the snapshot is saved, so that it
        can be given away. The same key always gives the same hashes.
    type: str
  stop:
    description:
      - How long a pod takes to stop on the copy, beside the time that its preStop hook sleeps; at least one second.
    type: str
    default: 1s
  timeout:
    description: How long it may take to rebuild the snapshot.
    type: str
    default: 10m
attributes:
  diff_mode:
    description: Shows what has changed, or would change, in diff mode.
    support: none
  idempotent:
    description: When run twice in a row with the same arguments, the second time changes nothing.
    support: none
    details:
      - A snapshot is written each time, with the time at which it was taken. It is rebuilt in an empty cluster only.
seealso:
  - module: kubeops.node_maintenance.maintenance_plan
"""

EXAMPLES = r"""
- name: Save a snapshot of the cluster
  kubeops.node_maintenance.cluster_copy:
    state: saved
    path: ./snapshot.json.gz

- name: Rebuild it in a lab
  kubeops.node_maintenance.cluster_copy:
    state: rebuilt
    path: ./snapshot.json.gz
    kubeconfig: "{{ lab_result.kubeconfig }}"
"""

RETURN = r"""
names: {description: "Names of the nodes in the snapshot, by their real names.", returned: success, type: dict}
counts: {description: "How many objects of each kind were saved or created.", returned: success, type: dict}
kubernetes: {description: "The version of the cluster that was saved.", returned: success, type: str, sample: v1.36.3}
taken: {description: "When it was saved, in RFC 3339.", returned: success, type: str}
not_rehearsed:
  description: What the copy lacks, as sentences.
  returned: success
  type: list
  elements: str
  sample: ["Autoscalers keep their limits, but see no load."]
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
