# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_access
short_description: Set up an account with the rights that maintenance needs
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Makes a ServiceAccount, a ClusterRole for each step that it may do, and the bindings; on request also its
    kubeconfig, policies that limit what it can be used for, and the fence in the API server. Also our namespace, if
    it is missing.
  - A call makes, or with V(absent) removes, what it names; another account, other steps and others' objects stay as
    they are. Changes that others made to our objects are undone. An object with a name of ours that this collection
    did not make stops the call.
  - Everything is read and tried as a dry run first. If these credentials may not do all of it, the call fails before
    the first write and names everything that they may not do.
  - The guide "Rights" says which steps are needed for what.
requirements:
  - Kubernetes 1.30 or newer for O(fence) and O(policies).
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(present) installs, V(absent) removes. The namespace stays. A ServiceAccount is removed if this collection
        made it and no binding names it any more, a ClusterRole if nothing else is bound to it.
    type: str
    choices: [present, absent]
    default: present
  steps:
    description:
      - What the account may do, by the names of the roles in the guide "Rights".
      - The default is what C(maintain), C(evacuate), C(release) and C(recover) need in every cluster. An empty list
        means no account, for calls with only O(fence).
    type: list
    elements: str
    choices:
      - read
      - rehearse
      - look
      - locks
      - runs
      - nodes
      - conditions
      - evict
      - guard
      - surge
      - replace
      - hooks
      - announce
      - jobs
      - koordinator
      - kubelets
      - descheduler
      - preview
      - dry-run
      - events
      - delete-pods
      - namespace
      - fence
    default: [read, locks, runs, nodes, evict, guard, surge]
  service_account:
    description: Name of the ServiceAccount. One that exists is used as it is.
    type: str
    default: operator
  service_account_namespace:
    description: Its namespace.
    type: str
    default: kubeops-node-maintenance
  namespaces:
    description:
      - Bind the steps V(evict), V(guard), V(surge), V(replace), V(hooks), V(announce) and V(delete-pods) only in these
        namespaces, not in the whole cluster. In other namespaces the account can then move no pods.
    type: list
    elements: str
  descheduler_namespace:
    description:
      - The namespace of the descheduler, for the steps V(koordinator), V(descheduler), V(preview) and V(dry-run).
    type: str
    default: koordinator-system
  lease_namespace:
    description:
      - Where else the nodes' locks are, if O(kubeops.node_maintenance.node_cordon#module:lease_namespace) is used.
        Our namespace and C(medik8s-leases), if it exists, are always included.
    type: str
  fence:
    description:
      - Also the fence in the API server. It refuses evictions, and changes of pods that are replaced, that a run still
        has in flight after it lost its lock, because it was frozen or cut off and another run took the node over.
      - It is a ValidatingAdmissionPolicy, its binding, and an object of the kind C(NodeFence) in the namespace
        C(kubeops-node-maintenance), in which runs record who holds which lock. Its CustomResourceDefinition is
        installed too. It affects only requests of this collection; all others pass as if it did not exist.
      - Everything works without it, except that this gap stays open. It is not part of an account, so V(absent)
        removes it for all of them.
    type: bool
    default: false
  policies:
    description:
      - Also ValidatingAdmissionPolicies that limit what the account can be used for if somebody steals its token.
        Nodes - only the cordon, with a record of it, taints of ours and of O(taints) that do not evict, and our own
        marks. Evictions - only with the pod's UID and under a lock that is held, for which the fence is installed, too.
        Budgets - only our own. Replicas - at most doubled or halved, up to O(replicas), never to 0. Nothing of nodes,
        and in namespaces, with the label C(maintenance.kubeops.io/protected=true).
      - The guide "Security" says what each of them refuses, and what they cannot.
      - With them, C(grace_period) 0 and taints with NoExecute are refused.
    type: bool
    default: false
  taints:
    description:
      - With O(policies), the keys of further taints that the account may set and remove, such as those of
        C(maintain_taints).
    type: list
    elements: str
  replicas:
    description:
      - With O(policies), the number of replicas to which the account may raise a workload at most. One that has more
        already is not raised.
    type: int
    default: 100
  dest:
    description:
      - A file on the machine that runs the module. The account's kubeconfig is written to it, readable only by its
        owner (mode 0600). Its token is in this file and nowhere else, neither in the result nor in the log.
      - If the file has a token of the account that is valid for at least half of its lifetime, it is left as it is.
    type: path
  token:
    description:
      - V(request) asks the API server for a token that expires.
      - V(secret) makes a Secret C(<service_account>-token) with a token that does not expire, for systems that cannot
        renew it. Delete the Secret to revoke it.
    type: str
    choices: [request, secret]
    default: request
  token_lifetime:
    description:
      - How long the requested token is valid, as a duration such as V(24h) or V(30d), at least 10 minutes. The API
        server may give it a shorter life.
    type: raw
    default: 24h
seealso:
  - module: kubeops.node_maintenance.maintenance_plan
  - module: kubeops.node_maintenance.node_drain
"""

EXAMPLES = r"""
- name: Make an account that can run maintain, and its kubeconfig
  kubeops.node_maintenance.maintenance_access:
    dest: ~/.kube/operator.kubeconfig

- name: Make one that only plans
  kubeops.node_maintenance.maintenance_access:
    service_account: planner
    steps: [read, look]

- name: Remove that account
  kubeops.node_maintenance.maintenance_access:
    state: absent
    service_account: planner
    steps: [read, look]

- name: Make the API server refuse evictions from a run that lost its lock
  kubeops.node_maintenance.maintenance_access:
    steps: []
    fence: true
"""

RETURN = r"""
objects:
  description: What was installed or removed, in that order.
  returned: when the API server could be reached
  type: list
  elements: dict
  contains:
    kind: {description: Its kind., type: str, sample: ClusterRole}
    namespace: {description: Its namespace; empty if it has none., type: str}
    name: {description: Its name., type: str, sample: kubeops-node-maintenance-evict}
    outcome:
      description: &outcomes
        - V(created) - the object was created.
        - V(changed) - the object was changed to what it should be.
        - V(deleted) - the object was deleted.
        - V(already_present) - the object was as it should be.
        - V(already_absent) - the object was not there.
      type: str
kubeconfig:
  description: The file, without its content.
  returned: if O(dest) was given
  type: dict
  contains:
    path: {description: Its path., type: str}
    user:
      description: The account, as in the audit log.
      type: str
      sample: system:serviceaccount:kubeops-node-maintenance:operator
    outcome:
      description: *outcomes
      type: str
    expires:
      description: "Until when its token is valid, or V(never); empty in check mode and if the file was deleted."
      type: str
      sample: "2026-01-02T00:00:00Z"
findings:
  description:
    - Why a call failed as a whole. The codes are C(missing_permission) and C(not_ours), one finding for each object.
  returned: always
  type: list
  elements: dict
actions: {description: "What was done, or in check mode would be done.", returned: always, type: list, elements: str}
cluster:
  description:
    - The cluster of the call, as its C(context) in the kubeconfig (V(in-cluster) with a pod's service account) and the
      address of its C(server).
  returned: when the credentials could be read
  type: dict
  sample: {context: prod, server: "https://prod.example.com:6443"}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
