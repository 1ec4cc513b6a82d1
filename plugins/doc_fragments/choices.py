# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What may be done to pods: the options shared by planning and draining."""

    DOCUMENTATION = r"""
options:
  backend:
    description:
      - How pods are moved that are not surged. Single replicas that can be surged are surged with every backend.
      - V(eviction) uses only the Eviction API.
      - V(koordinator) moves them by PodMigrationJobs, which reserve capacity first, at the rate that the live
        configuration of koord-descheduler allows. If Koordinator or a part of it is missing, the call fails before
        anything is written.
      - V(auto) uses a PodMigrationJob if Koordinator is installed, would admit the job, can reserve capacity for the
        pod and does not delay it by more than O(job_wait). All other pods are evicted.
    type: str
    choices: [auto, eviction, koordinator]
    default: auto
  fallback:
    description:
      - What happens to a pod that O(backend=koordinator) cannot move by a PodMigrationJob, because arbitration would
        refuse it, its scheduler reserves nothing, or its job did not succeed. V(eviction) evicts it and says why.
        V(fail) leaves the pod and its node as they are.
      - Pods that serve nothing (finished, pending, not ready) are evicted in any case.
      - With O(backend=auto) such pods are always evicted.
    type: str
    choices: [eviction, fail]
    default: eviction
  job_wait:
    description:
      - How long a pod that could be evicted waits for its PodMigrationJob, in seconds or as C(90s), C(2m). Time in
        which its budget or pods that are not ready would hold an eviction as well does not count.
      - With O(backend=auto) the pod is evicted after that, whatever holds the job.
      - With O(backend=koordinator) it limits only waits without an end of their own, and O(fallback) follows. This is
        so while Koordinator admits no job because pods elsewhere are not ready, and while a job that someone else
        created for the pod is paused or does not move it.
    type: str
    default: 1m
  force:
    description: Whether to evict pods without a controller. Nothing recreates them.
    type: bool
    default: false
  delete_emptydir_data:
    description: Whether to evict pods with V(emptyDir) volumes. The data in these volumes is lost.
    type: bool
    default: false
  ignore_daemonsets:
    description: Whether to leave pods of DaemonSets on the node. If not, they are blockers.
    type: bool
    default: true
  disable_eviction:
    description:
      - Whether to delete pods instead of evicting them, ignoring all budgets. For clusters without the Eviction API.
    type: bool
    default: false
  allow_interruption:
    description:
      - Whether to interrupt pods that cannot be moved without interruption (a StatefulSet of one, a C(Recreate)
        Deployment, a volume that only one node can mount, or a second pod that fits on no other node).
      - The owner of a workload can allow the same with the annotation
        C(maintenance.kubeops.io/allow-interruption=true). Neither overrides a budget.
    type: bool
    default: false
  node_autoscaler:
    description:
      - Whether a node autoscaler (cluster-autoscaler, Karpenter) adds nodes for pods that fit nowhere. Such pods are
        then no blocker C(no_room) of a plan, and the drain waits for their replacements.
    type: bool
    default: false
  operator_budget_wait:
    description:
      - How long the drain waits for the operator of a pod's budget to act, such as to promote another instance of a
        database, in seconds or as C(90s), C(10m). After that the pod's node fails. It begins anew when another pod is
        evicted under the same budget; limits of the drain and of a pod hold as well.
    type: str
    default: 10m
  load_balancer_wait:
    description:
      - For how long a pod that is replaced first is out of its Services before it is evicted, in seconds or as C(90s),
        C(10m). For servers that stop at once when they are told to, and for load balancers that hear late that a pod
        has gone. With V(0) the pod leaves its Services by its eviction.
      - The owner of a workload can choose the same with the annotation C(maintenance.kubeops.io/load-balancer-wait).
    type: str
    default: '0'
  pod_selector:
    description:
      - Label selector of the pods to move. The others stay, and a node on which one stays is not reported as drained.
      - If no pod of a workload is selected, it keeps the surge that M(kubeops.node_maintenance.pdb_guard) prepared,
        for a later drain to complete.
    type: str
  namespaces:
    description: Namespaces of the pods to move; all namespaces by default.
    type: list
    elements: str
  fenced:
    description:
      - Names of nodes whose machines are definitely off (power cut, instance gone, disconnected from network and
        storage); by naming them you vouch for it. A node that is alive as far as the cluster knows is still refused.
      - The taint C(node.kubernetes.io/out-of-service) removes their pods, without checking budgets and without
        waiting for a kubelet, and their volumes are detached at once.
      - See the guide to dead nodes of this collection.
    type: list
    elements: str
"""

    BUDGETS = r"""
options:
  method:
    description:
      - How pods leave whose workload can run another one meanwhile. The owner of a workload can choose for it with the
        annotation C(maintenance.kubeops.io/method), and O(rules) with C(method).
      - V(replace) lets pods of Deployments go from their ReplicaSet, by taking the label C(pod-template-hash) off. The
        ReplicaSet starts another pod at once, the old one serves on, and is evicted when the others are enough without
        it. The workload is not changed and never has fewer ready endpoints than replicas, whatever its budget.
        While the other pod starts, a Deployment of up to three replicas is shown as not available.
        Pods for which this is not possible leave as with V(surge), and the plan says why.
      - V(surge) scales a workload of one replica up until a second pod serves; pods of more replicas are evicted as
        their budget allows, or moved by PodMigrationJobs.
      - V(evict) starts no pod before; a single replica then needs O(allow_interruption).
    type: str
    choices: [surge, replace, evict]
    default: replace
  reactive_budgets:
    description:
      - Label selectors of pods whose operator lifts their budget once the node is cordoned or an eviction is tried. The
        drain waits for it, so that such a budget is no blocker.
      - Pods and budgets of custom resources, and those of the projects in the guide to your cluster, are always
        included; the names of these projects, such as V(longhorn), are accepted and change nothing.
    type: list
    elements: str
"""

    KOORDINATOR = r"""
options:
  koordinator_namespace:
    description:
      - The namespace of koord-descheduler. By default all namespaces are searched for a Deployment whose image or
        command is C(koord-descheduler), or with the name of Koordinator's chart or of ACK's add-on. Of several,
        those whose leader renews its Lease count; if these are more than one, the call fails and names them.
    type: str
  koordinator_deployment:
    description: The Deployment of koord-descheduler, if it is not found or not the only one.
    type: str
  koordinator_config_map:
    description: The ConfigMap with its configuration. By default the one that its container mounts for C(--config).
    type: str
  koordinator_key:
    description: The key of that ConfigMap. By default the one that its container mounts for C(--config).
    type: str
"""

    RULES = r"""
options:
  rules:
    description:
      - Order and patience for single workloads, as a list of rules. The first rule that selects a pod decides all of
        it.
      - C(pods) is a label selector as text, C(namespaces) a list of names, C(owners) a list of C(Kind) or C(Kind/name)
        of the pod's own controller or the top one (V(Pod) for pods without one). C(*) and C(?) are wildcards in names.
        All that is given must hold; a rule without any of them selects all pods.
      - C(skip=true) leaves the pods on the node, which counts as drained without them.
      - C(wait=finished) waits for pods of Jobs, or without a controller, until they have finished by themselves.
      - C(order) is an integer. Pods with a lower one leave their node before those with a higher one; 0 by default.
      - C(after) and C(before) are lists of the C(name) of other rules.
      - C(last=true) is after all other pods of the node. It also evicts pods of DaemonSets that do not tolerate our
        taint.
      - C(grace_period) replaces the pod's own, in seconds. It does not apply to surges.
      - C(deadline) is how long the pod may take from when it is its turn, in seconds or as C(10m). Then its node fails.
      - C(method), how its pods leave, is C(surge), C(replace) or C(evict).
      - C(bands) is a list of C({priority, seconds}) as C(shutdownGracePeriodByPodPriority) of a kubelet. Pods leave
        from the lowest band of priorities to the highest, with at most so many seconds of grace.
      - Owners can set the same by annotations, see the guide to clusters of this collection. Rules override these.
      - Give M(kubeops.node_maintenance.pdb_guard), M(kubeops.node_maintenance.node_drain) and
        M(kubeops.node_maintenance.node_cordon) (for V(state=out)) of one maintenance the same rules.
    type: list
    elements: dict
"""
