# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: descheduler_config
short_description: Roll out the configuration of a descheduler
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Validates a configuration of koord-descheduler, of ACK's ack-koord-descheduler or of the descheduler of
    sigs.k8s.io, writes it to its ConfigMap, restarts the descheduler, verifies that it runs with the new configuration,
    and otherwise rolls everything back.
  - The validation knows every plugin and argument. Errors stop the call before the first write, including settings that
    the descheduler itself would silently drop. Warnings are in RV(findings). The rules and all plugins are in this
    collection's guides to descheduler configuration.
  - The ConfigMap is written only if it differs. A configuration given as keys and values is compared by
    meaning; one given as text is written as that text, comments included.
  - Whether to restart depends on state. The pod template has a digest of the configuration's meaning in the annotation
    C(maintenance.kubeops.io/descheduler-config); pods that started with another digest are restarted. If there is no
    digest yet, the pods are asked for their running configuration. If everything is as wanted, nothing is written
    and nothing restarts.
  - Changes that someone else made after a rollout, to the ConfigMap or by a restart with another one, are repaired by
    the next call and reported in RV(drifted).
  - A restart of koord-descheduler orphans running PodMigrationJobs, so the call waits for them first.
  - One call at a time writes to a descheduler; it holds a Lease in the namespace C(kubeops-node-maintenance). If
    another call holds it and is alive, this one fails (C(held)) and names it; if not, this one takes the Lease over.
  - The previous state is stored in a ConfigMap in the namespace C(kubeops-node-maintenance) until the new configuration
    is verified. If a call was killed at any point, running it again completes the rollout or rolls it back.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.nodes.audit
options:
  state:
    description:
      - V(present) rolls the configuration out.
      - V(validated) only checks O(config). It needs no cluster and no credentials.
      - V(previewed) tells which pods O(config) would evict now, and which the present configuration would, by a dry run
        of each. It needs a service account that may only read, see the guide to rollouts. Nothing remains of it.
      - V(restarted) restarts the descheduler in any case, each time; with O(config) it rolls that out first.
      - V(paused) stops the descheduler's own evictions until V(resumed), also if V(present) rolls out another
        configuration in between. Koordinator's descheduler gets C(dryRun=true) and a restart; PodMigrationJobs created
        by others are still processed. The Deployment of O(flavor=sigs) is scaled to 0, its CronJob suspended.
      - V(resumed) restores the configuration before the pause, or the one that was rolled out during it; with O(config)
        it rolls that out instead. Without O(namespace), O(deployment) and O(config) it resumes every paused descheduler
        of the cluster.
    type: str
    choices: [present, validated, previewed, restarted, paused, resumed]
    default: present
  flavor:
    description:
      - The kind of descheduler. It determines the validation rules and the default names.
      - V(koordinator) is Koordinator's chart. Deployment C(koord-descheduler) in C(koordinator-system), ConfigMap and
        key C(koord-descheduler-config).
      - V(ack) is the add-on of Alibaba Cloud's ACK. Deployment C(ack-koord-descheduler) in C(kube-system), ConfigMap
        and key C(koord-descheduler-config).
      - V(sigs) is sigs.k8s.io/descheduler with the names of its plain manifests. Deployment (or CronJob) C(descheduler)
        in C(kube-system), ConfigMap C(descheduler-policy-configmap), key C(policy.yaml).
    type: str
    choices: [koordinator, ack, sigs]
    default: koordinator
  version:
    description:
      - Version of the descheduler whose rules apply, V(1.7.0) or V(1.8.0) of Koordinator, V(0.36.0) of sigs.
      - By default that of the descheduler's image, by its tag; if there are no rules of that version, the newest ones
        that are older. If the tag names no version, and for O(state=validated), the first of those above. ACK's
        versions are its own, so O(flavor=ack) always has the first.
      - If it is set and the image has another version, RV(findings) has a warning.
      - A descheduler older than the first with PodMigrationJobs (Koordinator 0.6, ACK v1.2.0-ack.2) is an error, and so
        is Kubernetes before 1.18, except for O(flavor=sigs).
    type: str
  config:
    description:
      - The configuration, a C(DeschedulerConfiguration) or, for O(flavor=sigs), a C(DeschedulerPolicy), as keys and
        values or as the text of its YAML. Use C(lookup('ansible.builtin.file', ...)) to read it from a file,
        C(lookup('ansible.builtin.template', ...)) from a template.
      - It may be the manifest of its ConfigMap, as the documents of ACK print it. O(key) says which of several keys it
        is; name, namespace and key of the manifest are the defaults of O(config_map), O(namespace) and O(key).
      - Required for V(present), V(validated) and V(previewed) of O(state).
    type: raw
  overrides:
    description:
      - Merged into the configuration key by key; lists are replaced. For what differs between clusters that share one file.
      - With them the text of O(config) is written anew, without its comments.
    type: dict
    default: {}
  namespace:
    description: Namespace of the descheduler. The default depends on O(flavor).
    type: str
  deployment:
    description: Name of the Deployment, for O(flavor=sigs) also of a CronJob. The default depends on O(flavor).
    type: str
  config_map:
    description:
      - Name of the ConfigMap that it mounts. The default depends on O(flavor).
      - A ConfigMap that does not exist is created; one that the pods do not mount is an error.
    type: str
  key:
    description: The key in it. The default depends on O(flavor).
    type: str
  validate:
    description:
      - What comes of errors in the configuration. V(strict) writes nothing. V(warn) makes them warnings, for plugins
        and keys of another build that the rules of Koordinator and sigs.k8s.io/descheduler do not know; O(verify) and
        O(rollback) then find out whether it runs. A text that is no YAML, or of another kind, is an error in any case.
    type: str
    choices: [strict, warn]
    default: strict
  restart:
    description:
      - V(rollout) changes the pod template's annotation, as C(kubectl rollout restart) does. With the settings of
        Koordinator's chart the old pods run until the new ones are ready.
      - V(scale) scales to 0, waits until the pods are gone, and scales back to the previous count, as in ACK's
        documentation. Two deschedulers never run at the same time, and for a moment none does.
      - V(none) leaves the pods alone; the configuration applies from their next start.
      - A CronJob needs no restart, because its next run mounts the current ConfigMap.
    type: str
    choices: [rollout, scale, none]
    default: rollout
  verify:
    description:
      - Whether to verify that the new configuration runs. RV(proof) says how that was verified.
      - Without it, a configuration with which the descheduler does not start is neither noticed nor rolled back.
    type: bool
    default: true
  rollback:
    description:
      - Whether to restore ConfigMap and Deployment byte for byte if the new configuration does not run. The call
        still fails, and RV(reason) says why.
    type: bool
    default: true
  force_conflicts:
    description:
      - Whether to take over a field that somebody applies on the server's side, such as a GitOps controller or
        C(kubectl apply --server-side), as C(--force-conflicts) of C(kubectl) does. A warning C(managed_by) then names
        the field manager before anything is written; its next apply conflicts, or brings its own value back.
      - If not, the call fails with V(field_conflict) before anything is written. The fields are the O(key) of the
        ConfigMap, and of the Deployment C(replicas), or of the CronJob C(suspend), where these are changed.
    type: bool
    default: true
  running_jobs:
    description:
      - What to do while PodMigrationJobs are running, which a restart would orphan. V(wait) waits for O(timeout),
        V(refuse) fails at once, both before anything is configured. V(ignore) restarts anyway.
      - A running job that no process will ever end is deleted with its Reservation. Its ttl is over, or it belongs to
        an earlier process of koord-descheduler, or its pod is gone. Paused jobs are left alone.
    type: str
    choices: [wait, refuse, ignore]
    default: wait
  timeout:
    description:
      - Limit of each wait (for running jobs, for pods to terminate, for the new configuration to run, for dry runs).
        Seconds, or a string such as V(90s), V(5m).
      - If a pod has terminated three times, the call stops waiting for it.
    type: str
    default: 5m
seealso:
  - module: kubeops.node_maintenance.node_taint
  - module: kubeops.node_maintenance.node_drain
notes:
  - The required permissions are the roles C(descheduler), C(locks), C(runs) and C(read) of the collection's guide to
    rights.
  - A GitOps controller that owns the ConfigMap would revert it. Configure it there instead, and use
    O(state=restarted), or exclude the ConfigMap's data and the pod template's annotations from its control.
"""

EXAMPLES = r"""
- name: Check a configuration without a cluster
  kubeops.node_maintenance.descheduler_config:
    state: validated
    config: "{{ lookup('ansible.builtin.file', 'koord-descheduler.yaml') }}"

- name: Evict pods that do not tolerate their node's taints, and verify that it runs
  kubeops.node_maintenance.descheduler_config:
    config:
      apiVersion: descheduler/v1alpha2
      kind: DeschedulerConfiguration
      leaderElection:
        resourceName: koord-descheduler
        resourceNamespace: koordinator-system
      deschedulingInterval: 120s
      profiles:
        - name: koord-descheduler
          plugins:
            deschedule:
              enabled:
                - name: RemovePodsViolatingNodeTaints
          pluginConfig:
            - name: RemovePodsViolatingNodeTaints
              args:
                excludedTaints:
                  - deschedule=not-allow

- name: The same on ACK, restarted as in its documentation
  kubeops.node_maintenance.descheduler_config:
    flavor: ack
    config: "{{ lookup('ansible.builtin.file', 'koord-descheduler.yaml') }}"
    restart: scale
    timeout: 3m

- name: A policy for the descheduler of sigs.k8s.io, installed by its chart as release "descheduler"
  kubeops.node_maintenance.descheduler_config:
    flavor: sigs
    config_map: descheduler
    config:
      apiVersion: descheduler/v1alpha2
      kind: DeschedulerPolicy
      profiles:
        - name: default
          pluginConfig:
            - name: DefaultEvictor
              args:
                nodeFit: true
            - name: RemoveDuplicates
          plugins:
            balance:
              enabled:
                - RemoveDuplicates

- name: Stop the descheduler's evictions during a maintenance
  kubeops.node_maintenance.descheduler_config:
    state: paused

- name: Resume it
  kubeops.node_maintenance.descheduler_config:
    state: resumed

- name: Find out which pods a configuration would evict now
  kubeops.node_maintenance.descheduler_config:
    state: previewed
    config: "{{ lookup('ansible.builtin.file', 'koord-descheduler.yaml') }}"

- name: See what would change
  kubeops.node_maintenance.descheduler_config:
    config: "{{ lookup('ansible.builtin.file', 'koord-descheduler.yaml') }}"
  check_mode: true
  diff: true
"""

RETURN = r"""
outcome:
  description:
    - V(restarted) - the configuration was written, and the descheduler runs with it.
    - V(changed) - the configuration was written, and no restart was needed or asked for.
    - V(unchanged) - there was nothing to do.
    - V(valid) - for O(state=validated), the configuration has no errors.
    - V(previewed) - for O(state=previewed), RV(would_evict) says what it would evict; nothing was changed.
    - V(invalid), a failure - the configuration is wrong, and nothing was written.
    - V(rolled_back), a failure - it did not run, and the previous one is restored.
    - V(failed), a failure - it does not run, and nothing was restored.
    - Missing if the call failed as a whole.
  returned: when the call did not fail as a whole
  type: str
  sample: restarted
findings:
  description:
    - Errors and warnings about the configuration, in its order. Or why the call failed as a whole; such a
      finding has C(code) and C(object) instead of C(rule) and C(path).
  returned: always
  type: list
  elements: dict
  contains:
    path: {description: Position in the configuration., type: str, sample: "profiles[0].plugins.deschedule.enabled[0]"}
    rule: {description: "The rule, a code that the guide to the rules explains.", type: str, sample: look_alike}
    severity: {description: "V(error) stops the call, V(warning) does not.", type: str, sample: error}
    message: {description: What is wrong., type: str, sample: There is no plugin RemoveFailedPod.}
    remedy: {description: What to write instead., type: str, sample: It is called RemoveFailedPods.}
    real:
      description:
        - What the descheduler itself does. V(refuses), V(crashes), V(drops) the setting silently, or V(starts)
          but ignores it.
      type: str
      sample: refuses
    code:
      description:
        - V(unknown_deployment), V(not_mounted), V(no_config), V(jobs_running), V(pods_stay), V(changed_meanwhile),
          V(no_dry_run_account), V(missing_permission), V(immutable), V(deployment_paused), V(bad_journal),
          V(not_allowed), V(namespace_missing), V(field_conflict), V(held), V(adopted_by) or V(lock_unsure).
      type: str
    object: {description: The object concerned., type: str}
version:
  description: The version whose rules were applied.
  returned: when the call did not fail as a whole
  type: str
  sample: 1.7.0
image_version:
  description: The version by the tag of the descheduler's image. Empty if the tag names none or was not read.
  returned: when the call did not fail as a whole
  type: str
  sample: 1.7.0
restarted:
  description: Whether the pods were restarted (in check mode, would be).
  returned: when the descheduler was read, or the configuration is wrong
  type: bool
running_config_matches:
  description:
    - Whether the running configuration is the wanted one. True only if the two were compared (RV(proof=configz) or
      RV(proof=log)). False if they differ or the new configuration does not run.
    - Null if they were not compared (RV(proof=lease) or RV(proof=ready), O(verify=false), O(restart=none), a CronJob,
      no replicas, check mode).
  returned: when the descheduler was read, or the configuration is wrong
  type: bool
  sample: true
drifted:
  description:
    - What someone else changed after this configuration had been rolled out. V(config_map) means that the ConfigMap
      holds another configuration. V(template) means that the ConfigMap holds this one, but the pod template's digest is
      of another. V(running) means that the pods run another one than the digest says, or than the ConfigMap holds.
    - The same call repairs it, except for the pods with O(restart=none). What an earlier call wrote with
      O(restart=none) is no drift; C(msg) says that a restart is pending.
  returned: when the descheduler was read, or the configuration is wrong
  type: list
  elements: str
  sample: [config_map, running]
proof:
  description:
    - How it was verified that the wanted configuration runs. V(configz) means the configuration that each pod returns
      at C(/configz), read through a port-forward of the API server; V(log) the one that each pod logged at startup.
      Both are compared with the wanted one value by value, with defaults filled in.
    - V(lease) means that only new pods exist, are ready, and one of them is the leader; V(ready) that only new pods
      exist and are ready. The descheduler of sigs.k8s.io does not expose its configuration, so no stronger verification
      is possible for it.
  returned: when the descheduler was read, or the configuration is wrong
  type: str
  sample: configz
proof_note:
  description: Why no stronger verification was possible, such as a missing permission.
  returned: when the descheduler was read
  type: str
rolled_back:
  description: Whether ConfigMap and Deployment were restored.
  returned: when the descheduler was read, or the configuration is wrong
  type: bool
reason:
  description: Why the new configuration does not run; the container's termination message if it has one.
  returned: when the descheduler was read, or the configuration is wrong
  type: str
  sample: "no matches for kind \"NodeMetric\" in version \"slo.koordinator.sh/v1alpha1\""
digest:
  description: The digest of the configuration's meaning, as in the pod template's annotation.
  returned: when the configuration is valid
  type: str
would_evict:
  description: The pods that the new configuration would evict now. Null in check mode.
  returned: for O(state=previewed)
  type: list
  elements: dict
  contains:
    namespace: {description: Namespace of the pod., type: str}
    pod: {description: Name of the pod., type: str}
    node: {description: Its node., type: str}
    plugin: {description: The plugin that would evict it., type: str}
    reason: {description: "Its reason, often empty.", type: str}
    added: {description: Whether the present configuration would not evict it., type: bool}
would_stay:
  description:
    - The pods that would stay now whatever the plugins find, and why. Koordinator logs this for each pod, and nothing
      else tells it. Pods in neither list stay only if no plugin wants to move them.
    - Null in check mode, for O(flavor=sigs), and where pods or PodMigrationJobs may not be read.
  returned: for O(state=previewed)
  type: list
  elements: dict
  contains:
    namespace: {description: Namespace of the pod., type: str}
    pod: {description: Name of the pod., type: str}
    node: {description: Its node., type: str}
    code:
      description: The cause, as RV(kubeops.node_maintenance.pod_migration_job#module:jobs[].cause) has it.
      type: str
      sample: scheduler
    reason: {description: Why it stays., type: str}
    remedy: {description: "What to do if it is to move, if there is anything.", type: str}
would_evict_before:
  description: The pods that the present configuration would evict now, without C(added). Null if that is unknown.
  returned: for O(state=previewed)
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

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
