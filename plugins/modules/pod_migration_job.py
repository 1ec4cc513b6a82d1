# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pod_migration_job
short_description: Move pods with Koordinator's PodMigrationJobs
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Creates a PodMigrationJob for each pod, waits until it has finished, and returns the result for the pod. In mode
    V(ReservationFirst) capacity on another node is reserved before the pod is evicted.
  - A job is created only when Koordinator would admit it, by the live configuration of its descheduler, and it is not
    written again while it waits for arbitration, because an update would start it without arbitration.
  - If a job cannot succeed or has failed, RV(jobs[].cause) says why and what to do. Koordinator itself says only
    that the migration is forbidden, or that it timed out.
  - Jobs are bound to the UID of their pod. A new pod of the same name, as a StatefulSet creates it, is never evicted by
    the job of the old one.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.choices.koordinator
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(present) creates the jobs and waits until they finish. With O(name) alone it waits for the job of that name.
      - V(approved) resumes paused jobs, once they have passed arbitration, and waits until they finish. Their ttl
        counts from the approval on.
      - V(rejected) aborts jobs that have not evicted their pod yet. Nothing is moved, the jobs are in phase C(Failed)
        with reason C(Rejected), and their Reservations are deleted.
      - V(absent) deletes jobs. It waits for jobs whose pod is being moved, and rejects the others first.
    type: str
    choices: [present, approved, rejected, absent]
    default: present
  pods:
    description: The pods to move; for other states than V(present), the pods whose newest job is used.
    type: list
    elements: dict
    suboptions:
      namespace:
        description: The pod's namespace.
        type: str
        required: true
      name:
        description: The pod's name.
        type: str
        required: true
      uid:
        description:
          - The pod's UID. With it, a pod that is gone counts as already moved, and a new pod of the same name is left
            alone. Without it, a pod that does not exist is an error.
        type: str
  nodes:
    description:
      - All pods of these nodes, except mirror pods, pods of DaemonSets and finished pods. To drain nodes
        without interruption, use M(kubeops.node_maintenance.node_drain).
      - A list, or a string separated by commas, spaces or newlines.
    type: list
    elements: str
  pod_selector:
    description: All pods with these labels, such as V(app=web,tier!=db); with O(nodes) only those on these nodes.
    type: str
  namespaces:
    description: Only pods of these namespaces. Requires O(nodes) or O(pod_selector).
    type: list
    elements: str
  name:
    description:
      - The name of a job. With O(pods) (one pod) and O(state=present) it names the job to create, otherwise an
        existing one.
      - By default jobs are named after their pod and their options, so that a repeated call finds them again.
    type: str
  mode:
    description:
      - V(ReservationFirst) requires koord-scheduler as the pod's scheduler. V(EvictDirectly) only evicts, with the
        limits and the arbitration of Koordinator; the module then waits for the new pod.
    type: str
    choices: [ReservationFirst, EvictDirectly]
    default: ReservationFirst
  paused:
    description: Whether the jobs wait for an approval before they start. See O(state=approved) and O(state=rejected).
    type: bool
    default: false
  ttl:
    description:
      - How long a job may take, as a Go duration (V(90s), V(5m), V(1h30m)) or in seconds; V(0) for no limit.
      - It counts from the job's creation, also while the job waits for arbitration or is paused. It does not abort a
        waiting or paused job, but once it has expired the job fails as soon as it could start.
      - Koordinator deletes a job, with its Reservation, five minutes after its ttl (without a ttl, 30 minutes after its
        creation), in whatever phase it is.
    type: str
    default: 5m
  reservation:
    description:
      - The name of a Reservation to use. It must match the one pod in O(pods) and be unused. Koordinator deletes it
        with the job.
      - With O(reservation_template) it is created first if it does not exist, and the module waits until it is
        scheduled.
    type: str
  reservation_template:
    description:
      - C(metadata) and C(spec) of the Reservation that the job creates, or that is created first with O(reservation).
        Omitted fields come from the pod. C(spec.template.spec.nodeName) works only with O(reservation).
      - It is checked field by field. Koordinator's API accepts anything here, and a value of a wrong type stops its
        controller for all jobs. Of the pod counts what says where it has a place (its labels, resources, ports, claims,
        affinity, tolerations, priority); what it runs, as in a spec that was copied from a pod, is left out. Fields of
        Kubernetes 1.35 are valid; Koordinator before 1.8.0 silently drops those that Kubernetes 1.28 does not have.
    type: dict
  delete_options:
    description:
      - Options of the eviction, such as C(gracePeriodSeconds). The pod's UID is always added as a precondition.
    type: dict
  reason:
    description:
      - The reason, for the annotation C(koordinator.sh/evict-reason), which the condition of the eviction shows. For
        O(state=rejected) it becomes part of the job's message.
    type: str
  trigger:
    description:
      - Who or what requested the move, for the annotation C(koordinator.sh/evict-trigger), a label of the descheduler's
        metric. Defaults to the name of this collection.
    type: str
  wait:
    description:
      - Whether to wait until the jobs have finished. Without it all jobs are created at once, and Koordinator's limits
        use up their ttl.
    type: bool
    default: true
  timeout:
    description:
      - How long to wait at most, such as V(90s) or V(10m). The jobs continue afterwards. Defaults to the jobs' ttl plus
        half a minute.
    type: str
  run:
    description:
      - The run that this call belongs to, a label of the jobs; see M(kubeops.node_maintenance.maintenance_state).
      - Without other selections it means all jobs of the run, for other states than V(present).
    type: str
seealso:
  - module: kubeops.node_maintenance.node_drain
notes:
  - The guide to PodMigrationJobs of this collection has every cause with its remedy, the procedure for manual
    approval, the required permissions, and how Koordinator behaves where its documentation leaves it open.
"""

EXAMPLES = r"""
- name: Move a pod after capacity is reserved for it
  kubeops.node_maintenance.pod_migration_job:
    pods:
      - namespace: default
        name: pod-demo-5f9b977566-c7lvk
    name: migrationjob-demo
    ttl: 5m

- name: Move all pods of a namespace away from a node, with a reason
  kubeops.node_maintenance.pod_migration_job:
    nodes: [worker-7]
    namespaces: [shop]
    ttl: 10m
    timeout: 1h
    reason: kernel update
    trigger: change-4711

- name: Only evict, with Koordinator's limits and arbitration, and with a grace period of one minute
  kubeops.node_maintenance.pod_migration_job:
    pod_selector: app=web
    nodes: [worker-7]
    mode: EvictDirectly
    delete_options:
      gracePeriodSeconds: 60

- name: Use an existing Reservation
  kubeops.node_maintenance.pod_migration_job:
    pods: [{namespace: default, name: web-0, uid: 4d5f6c9e-2f0f-4b57-9a84-0a4b7a3d6c11}]
    reservation: reservation-0

- name: Reserve capacity on the new nodes first, then move the pod
  kubeops.node_maintenance.pod_migration_job:
    pods: [{namespace: default, name: web-0}]
    reservation: web-0-new
    reservation_template:
      spec:
        ttl: 30m
        template:
          spec:
            schedulerName: koord-scheduler
            nodeSelector: {pool: new}
            containers:
              - name: web
                resources: {requests: {cpu: "2", memory: 4Gi}}

# A person approves before anything is moved
- name: Prepare the moves
  kubeops.node_maintenance.pod_migration_job:
    nodes: [worker-7]
    paused: true
    ttl: 1h
    wait: false
    run: "2026-11-night"
  register: prepared

- name: Ask
  ansible.builtin.pause:
    prompt: "Move {{ prepared.jobs | map(attribute='pod.name') | join(', ') }}? Enter, or Ctrl+C and A"

- name: Go on
  kubeops.node_maintenance.pod_migration_job:
    state: approved
    run: "2026-11-night"

- name: Or leave everything where it is
  kubeops.node_maintenance.pod_migration_job:
    state: rejected
    run: "2026-11-night"
    reason: not tonight
  when: false
"""

RETURN = r"""
jobs:
  description: One entry per pod, or per approved, rejected or deleted job. Missing if the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name: {description: The job's name., type: str, sample: pod-demo-5f9b977566-c7lvk-0b7f3ac9d1}
    outcome:
      description:
        - V(moved) - the pod was moved.
        - V(already_moved) - the pod had been moved already.
        - V(gone) - the pod ended otherwise before its job could move it.
        - V(created) - without O(wait), the job was created.
        - V(exists) - without O(wait), the job already existed.
        - V(paused) - without O(wait), the job is paused and waits for approval.
        - V(approved) - the job continues.
        - V(already_approved) - the job was not paused.
        - V(rejected) - the job was ended, and the pod stays where it is; the call fails if it waited for the move.
        - V(already_rejected) - the job had ended without moving the pod.
        - V(absent) - the job was deleted.
        - V(already_absent) - there was no such job.
        - V(refused), a failure - no job was created, see RV(jobs[].cause).
        - V(failed), a failure - the job has failed, or could not be created.
        - V(timeout), a failure - the timeout expired; the job continues.
        - V(not_ready), a failure - the pod was evicted, and no new pod is ready.
        - V(deleted), a failure - somebody deleted the job before its end.
        - V(not_found), a failure - there is no such job.
        - V(too_late), a failure - the pod is already evicted, which cannot be undone.
        - V(still_waiting), a failure - the job waits for arbitration or moves its pod, and was not written.
      type: str
      sample: moved
    failed: {description: Whether it failed., type: bool}
    message: {description: "The outcome as a sentence, with the cause and the remedy for failures.", type: str}
    phase: {description: The job's phase; empty while it waits for arbitration., type: str, sample: Succeeded}
    status:
      description: The job's status, which is the type of its last condition, or V(Complete).
      type: str
      sample: Complete
    reason: {description: "The job's reason, such as V(Timeout) or V(ForbiddenMigratePod).", type: str}
    cause:
      description: The real cause if the pod was not moved, with a code of the closed list in the guide; otherwise null.
      type: dict
      contains:
        code: {description: The code., type: str, sample: single_replica}
        message: {description: A sentence., type: str, sample: Deployment default/web has one replica.}
        remedy: {description: What to do., type: str}
    node:
      description: The node on which capacity is reserved; empty in mode V(EvictDirectly).
      type: str
      sample: node-1
    reservation: {description: The Reservation., type: str, sample: d56659ab-ba16-47a2-821d-22d6ba49258e}
    pod:
      description: The pod to move, with its C(namespace), C(name), C(uid), and the C(node) it was on.
      type: dict
    new_pod:
      description: The pod that replaced it, with C(namespace), C(name), C(uid) and C(node); null if there is none yet.
      type: dict
    mode: {description: "The job's mode, also of one that was not created.", type: str}
    paused: {description: Whether the job is paused., type: bool}
    ttl: {description: "The job's ttl in seconds, 0 without one.", type: float}
    seconds:
      description: From the job's creation until it finished; null if it has not finished.
      type: float
      sample: 4.2
    conditions: {description: The job's conditions as Koordinator writes them., type: list, elements: dict}
    events:
      description:
        - Koordinator's events on the job, with C(type), C(reason), C(message), C(at) and C(from). Version 1.8.0 creates
          none. The last one may be missing, because Koordinator writes it after the status that ends the call.
      type: list
      elements: dict
doubt:
  description:
    - Why the configuration of koord-descheduler could not be read; empty if it could. In that case nothing is refused
      beforehand and no cause is reported that depends on it.
    - Also reports that several profiles have a MigrationController. The rules of the first are read; any can refuse.
  returned: when the work could begin
  type: str
actions:
  description: What was done, or would be done in check mode, as sentences.
  returned: always
  type: list
  elements: str
  sample: ["Create PodMigrationJob web-0-0b7f3ac9d1 for Pod default/web-0 (ReservationFirst)"]
cluster:
  description:
    - The cluster of the call, as its C(context) in the kubeconfig (V(in-cluster) with a pod's service account) and the
      address of its C(server).
  returned: when the credentials could be read
  type: dict
  sample: {context: prod, server: "https://prod.example.com:6443"}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
findings:
  description:
    - Why the call failed as a whole, such as V(no_crd), V(no_controller), V(no_scheduler),
      V(several_koordinators), V(unknown_pod), V(unknown_node) or V(unknown_reservation). Nothing was written.
    - V(selector_matches_nothing), which is no failure, if there is nothing to do for what was selected.
  returned: when the call failed as a whole, or selected nothing
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
