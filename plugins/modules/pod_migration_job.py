# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pod_migration_job
short_description: Move pods with Koordinator's PodMigrationJobs
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Makes a PodMigrationJob for each pod, waits until it has ended, and says what became of the pod. In mode
    V(ReservationFirst) a place on another node is reserved before the pod is evicted.
  - A job is made only when Koordinator would admit it, by the live configuration of its descheduler, and it is not
    written again while it waits for arbitration; an update would start it without arbitration.
  - Where a job cannot succeed or has failed, RV(jobs[].cause) says why and what to do. Koordinator itself says only
    that the migration is forbidden, or that it timed out.
  - Jobs are bound to the UID of their pod. A successor of the same name, as a StatefulSet makes it, is never evicted by
    the job of its predecessor.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(present) makes the jobs and waits for their end. With O(name) alone it waits for the job of that name.
      - V(approved) lets paused jobs go on, once they have passed arbitration, and waits for their end. Their ttl counts
        from the approval on.
      - V(rejected) ends jobs that have not evicted their pod yet. Nothing is moved, the jobs are in phase C(Failed)
        with reason C(Rejected), and their Reservations are deleted.
      - V(absent) deletes jobs, after their end where their pod is on its way; others are rejected first.
    type: str
    choices: [present, approved, rejected, absent]
    default: present
  pods:
    description:
      - The pods to move; for other states than V(present) the pods whose newest job is meant.
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
          - The pod's UID. With it, a pod that is gone counts as moved already, and a successor of the same name is left
            alone. Without it, a pod that is not there is an error.
        type: str
  nodes:
    description:
      - All pods of these nodes, except mirror pods, those of DaemonSets and those that have ended. To empty nodes
        without interruption, use M(kubeops.node_maintenance.node_drain).
      - A list, or one text with commas, spaces or newlines between the names.
    type: list
    elements: str
  pod_selector:
    description:
      - All pods with these labels, such as V(app=web,tier!=db); with O(nodes) only those there.
    type: str
  namespaces:
    description:
      - Only pods of these namespaces. Needs O(nodes) or O(pod_selector).
    type: list
    elements: str
  name:
    description:
      - The name of a job. With O(pods) (one pod) and O(state=present) the job to be made gets it, else it is the name
        of one that is there.
      - Without it jobs are named after their pod and what is wanted of them, so that a repeated call finds them again.
    type: str
  mode:
    description:
      - V(ReservationFirst) needs koord-scheduler as the pod's scheduler. V(EvictDirectly) only evicts, with the limits
        and the arbitration of Koordinator; this module waits for the new pod then.
    type: str
    choices: [ReservationFirst, EvictDirectly]
    default: ReservationFirst
  paused:
    description:
      - Whether the jobs wait for an approval before they begin. See O(state=approved) and O(state=rejected).
    type: bool
    default: false
  ttl:
    description:
      - How long a job may take, as Go writes it (V(90s), V(5m), V(1h30m)) or in seconds; V(0) for no limit.
      - It counts from the job's creation, also while the job waits for arbitration or is paused. A job that waits or is
        paused is not ended by it, but fails as soon as it may begin after it.
      - Koordinator deletes a job five minutes after its ttl (30 minutes after its creation without one) with its
        Reservation, in whatever phase it is.
    type: str
    default: 5m
  reservation:
    description:
      - The name of a Reservation to use. It has to fit the one pod in O(pods), and to be unused. Koordinator deletes it
        with the job.
      - With O(reservation_template) it is made first, where it is not there, and waited for until it has a place.
    type: str
  reservation_template:
    description:
      - C(metadata) and C(spec) of the Reservation that the job makes, or that is made beforehand with O(reservation).
        What is left out comes from the pod. C(spec.template.spec.nodeName) works only with O(reservation).
      - It is checked field by field. Koordinator's API takes anything here, and a value of a wrong type stops its
        controller for all jobs.
    type: dict
  delete_options:
    description:
      - Options of the eviction, such as C(gracePeriodSeconds). The pod's UID as a precondition is always added.
    type: dict
  reason:
    description:
      - Why, for the annotation C(koordinator.sh/evict-reason), which the condition of the eviction shows. For
        O(state=rejected) it becomes part of the job's message.
    type: str
  trigger:
    description:
      - Who or what asked for it, for the annotation C(koordinator.sh/evict-trigger), a label of the descheduler's
        metric. The name of this collection without it.
    type: str
  koordinator_namespace:
    description:
      - The namespace of koord-descheduler and its ConfigMap. Without it C(koordinator-system) is looked at, then
        C(kube-system) (Alibaba Cloud's add-on).
    type: str
  wait:
    description:
      - Whether to wait until the jobs have ended. Without it all jobs are made at once, and limits of Koordinator use
        up their ttl.
    type: bool
    default: true
  timeout:
    description:
      - How long to wait at most, such as V(90s) or V(10m). Jobs go on when it is over. By default the jobs' ttl and
        half a minute.
    type: str
  run:
    description:
      - The run on whose behalf this is done, a label of the jobs; see M(kubeops.node_maintenance.maintenance_state).
      - Alone it means all jobs of the run, for other states than V(present).
    type: str
seealso:
  - module: kubeops.node_maintenance.node_drain
notes:
  - The guide to Koordinator's jobs of this collection has every cause with its remedy, the flow of a manual
    confirmation, the permissions that are needed, and what Koordinator really does where its documents leave it open.
"""

EXAMPLES = r"""
- name: Move a pod after its new place is reserved
  kubeops.node_maintenance.pod_migration_job:
    pods:
      - namespace: default
        name: pod-demo-5f9b977566-c7lvk
    name: migrationjob-demo
    ttl: 5m

- name: Move all pods of a namespace away from a node, telling why
  kubeops.node_maintenance.pod_migration_job:
    nodes: [worker-7]
    namespaces: [shop]
    ttl: 10m
    timeout: 1h
    reason: kernel update
    trigger: change-4711

- name: Only evict, with Koordinator's limits and arbitration, and with a grace of one minute
  kubeops.node_maintenance.pod_migration_job:
    pod_selector: app=web
    nodes: [worker-7]
    mode: EvictDirectly
    delete_options:
      gracePeriodSeconds: 60

- name: Use a Reservation that is there
  kubeops.node_maintenance.pod_migration_job:
    pods: [{namespace: default, name: web-0, uid: 4d5f6c9e-2f0f-4b57-9a84-0a4b7a3d6c11}]
    reservation: reservation-0

- name: Reserve a place on the new nodes first, and move the pod once it is there
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

# A person confirms before anything is moved
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
  description: One for each pod, or for each job that was ruled over. Not there when the call failed as a whole.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    name:
      description: The job's name.
      type: str
      sample: pod-demo-5f9b977566-c7lvk-0b7f3ac9d1
    outcome:
      description:
        - V(moved) - the pod was moved.
        - V(already_moved) - the pod had been moved already.
        - V(gone) - the pod ended otherwise before its job could move it.
        - V(created) - without O(wait), the job was made.
        - V(exists) - without O(wait), the job was there already.
        - V(paused) - without O(wait), the job is paused and waits for approval.
        - V(approved) - the job goes on.
        - V(already_approved) - the job was not paused.
        - V(rejected) - the job was ended, and the pod stays where it is.
        - V(already_rejected) - the job had ended without moving the pod.
        - V(absent) - the job was deleted.
        - V(already_absent) - there was no such job.
        - V(refused), a failure - no job was made, see RV(jobs[].cause).
        - V(failed), a failure - the job has failed, or could not be made.
        - V(timeout), a failure - the module's time is up; the job goes on.
        - V(not_ready), a failure - the pod was evicted, and no new pod is ready.
        - V(deleted), a failure - somebody deleted the job before its end.
        - V(not_found), a failure - there is no such job.
        - V(too_late), a failure - the pod is evicted already, and nothing undoes that.
        - V(still_waiting), a failure - the job waits for arbitration or moves its pod, and was not written.
      type: str
      sample: moved
    failed:
      description: Whether it failed.
      type: bool
    message:
      description: The outcome as a sentence, for failures with the cause and what to do.
      type: str
    phase:
      description: The job's phase; empty while it waits for arbitration.
      type: str
      sample: Succeeded
    status:
      description: The job's status, which is the type of its last condition, or V(Complete).
      type: str
      sample: Complete
    reason:
      description: The job's reason, such as V(Timeout) or V(ForbiddenMigratePod).
      type: str
    cause:
      description: The real cause where the pod was not moved, with a word of the closed list in the guide; else null.
      type: dict
      contains:
        code:
          description: The word.
          type: str
          sample: single_replica
        message:
          description: A sentence.
          type: str
          sample: Deployment default/web has one replica.
        remedy:
          description: What to do.
          type: str
    node:
      description: The node on which the place is reserved; empty in mode V(EvictDirectly).
      type: str
      sample: node-1
    reservation:
      description: The Reservation.
      type: str
      sample: d56659ab-ba16-47a2-821d-22d6ba49258e
    pod:
      description: The pod that is moved, with its C(namespace), C(name), C(uid), and the C(node) it was on.
      type: dict
    new_pod:
      description: The pod that took its place, with C(namespace), C(name) and C(uid); null where there is none yet.
      type: dict
    mode:
      description: The job's mode.
      type: str
    paused:
      description: Whether the job is paused.
      type: bool
    ttl:
      description: The job's ttl in seconds, 0 without one.
      type: float
    seconds:
      description: From the job's creation to its end; null where it has not ended.
      type: float
      sample: 4.2
    conditions:
      description: The job's conditions as Koordinator writes them.
      type: list
      elements: dict
    events:
      description:
        - Koordinator's events on the job, with C(type), C(reason), C(message), C(at) and C(from). Version 1.8.0 makes
          none.
      type: list
      elements: dict
doubt:
  description:
    - Why the configuration of koord-descheduler could not be read, empty where it could. Without it nothing is refused
      beforehand and no cause is told that depends on it.
    - Also that several profiles have a MigrationController. The rules of the first are read; any can refuse.
  returned: when the work could begin
  type: str
actions:
  description: What was done, or would be done in check mode, as sentences.
  returned: always
  type: list
  elements: str
  sample: ["Create PodMigrationJob web-0-0b7f3ac9d1 for Pod default/web-0 (ReservationFirst)"]
timeline:
  description: Everything that was told while it happened.
  returned: always
  type: list
  elements: dict
findings:
  description:
    - Why the call failed as a whole, such as V(no_crd), V(no_controller), V(no_scheduler), V(unknown_pod),
      V(unknown_node) or V(unknown_reservation). Nothing was written then.
  returned: when the call failed as a whole
  type: list
  elements: dict
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import jobs, module


def main() -> None:
    module.run_module(jobs.FACE)


if __name__ == "__main__":
    main()
