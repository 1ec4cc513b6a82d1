# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What may be done to pods: the options that planning and draining share."""

    DOCUMENTATION = r"""
options:
  backend:
    description:
      - How pods are moved that are not swapped. Single replicas that can be swapped are swapped whatever is said here.
      - V(eviction) is the Eviction API alone.
      - V(koordinator) moves them by PodMigrationJobs, which reserve the new place first, at the rate that the live
        configuration of koord-descheduler admits. Where Koordinator or a part of it is missing, the call fails before
        anything is written.
      - V(auto) takes a PodMigrationJob where Koordinator is there, would admit it, reserves a place for it and does not
        let it wait for more than a minute. All others are evicted.
    type: str
    choices: [auto, eviction, koordinator]
    default: auto
  fallback:
    description:
      - What becomes of a pod that O(backend=koordinator) cannot move by a PodMigrationJob, because arbitration would
        refuse it, its scheduler reserves nothing, or its job came to nothing. V(eviction) evicts it and says why.
        V(fail) leaves it where it is, and the node with it.
      - Pods that serve nobody (finished, pending, not ready) are evicted in any case.
      - With O(backend=auto) such pods are always evicted.
    type: str
    choices: [eviction, fail]
    default: eviction
    version_added: 0.1.0
  force:
    description:
      - Whether pods without a controller may go. Nobody makes them anew.
    type: bool
    default: false
  delete_emptydir_data:
    description:
      - Whether pods with V(emptyDir) volumes may go. The data in these volumes goes with them.
    type: bool
    default: false
  ignore_daemonsets:
    description:
      - Whether pods of DaemonSets are left where they are. If not, they stand in the way.
    type: bool
    default: true
  disable_eviction:
    description:
      - Whether pods are deleted instead of evicted, past all budgets. For clusters without the Eviction API.
    type: bool
    default: false
  allow_interruption:
    description:
      - Whether what cannot be moved without an interruption (a StatefulSet of one, a C(Recreate) Deployment, a volume
        that only one node can mount) may be interrupted.
      - The owner of a workload can allow the same with the annotation
        C(maintenance.kubeops.io/allow-interruption=true). Neither overrides a budget.
    type: bool
    default: false
  swap_blocked:
    description:
      - Whether Deployments of several replicas whose budget allows nothing are moved by a swap, which never goes below
        the budget.
    type: bool
    default: false
  pod_selector:
    description:
      - Label selector of the pods to move. The others stay, and a node on which one stays is not called drained.
      - A workload none of whose pods is selected keeps the surge that M(kubeops.node_maintenance.pdb_guard) prepared,
        for a later drain to end.
    type: str
  namespaces:
    description:
      - Namespaces of the pods to move; all of them where it is not given.
    type: list
    elements: str
  reactive_budgets:
    description:
      - Budgets that are lifted only after a cordon or an eviction attempt, as V(longhorn), V(kubevirt), V(rook) or as a
        label selector of the pods. They are waited for instead of standing in the way. The three are always known.
    type: list
    elements: str
  fenced:
    description:
      - Names of nodes whose machines are surely off (power cut, instance gone, disconnected from network and storage),
        as you vouch by naming them. A node that is alive as far as the cluster knows is refused all the same.
      - Their pods are ended by the taint C(node.kubernetes.io/out-of-service), without asking a budget and without
        waiting for a kubelet, and their volumes are detached at once.
      - See the guide to dead nodes of this collection.
    type: list
    elements: str
"""
