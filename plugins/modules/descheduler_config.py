# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: descheduler_config
short_description: Roll out the configuration of a descheduler
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Checks a configuration of koord-descheduler, of ACK's ack-koord-descheduler or of the descheduler of
    sigs.k8s.io, writes it to its ConfigMap, restarts the descheduler, waits until the new configuration really runs,
    and takes everything back where it does not.
  - The check knows every plugin and argument. Errors stop the call before the first write; that includes what the
    descheduler itself would drop silently. Warnings are told in RV(findings). The rules and all plugins are in this
    collection's pages about descheduler configuration.
  - The ConfigMap is written only where it differs. A configuration given as keys and values is compared by what it
    means; given as text, it is written as that text, comments included.
  - A restart is decided by state. The pod template carries a digest of what the configuration means, in the annotation
    C(maintenance.kubeops.io/descheduler-config); pods that started with another digest are restarted. Where there is no
    digest yet, the pods are asked for the configuration that they run. If all is as wanted already, nothing is written
    and nothing restarts.
  - A restart of koord-descheduler strands PodMigrationJobs that run, so the call waits for them first.
  - What was before is kept in a ConfigMap of the namespace C(kubeops-node-maintenance) until the new configuration is
    proven to run. A call that was killed at any point is finished, or taken back, by running it again.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(present) brings the configuration in.
      - V(validated) only checks O(config). No cluster is asked and no credentials are needed.
      - V(restarted) restarts the descheduler in any case, each time; with O(config) it brings that in first.
      - V(paused) lets the descheduler evict nothing on its own, until V(resumed) gives back what was before, or
        V(present) brings in another configuration. The one of Koordinator gets C(dryRun=true) and a restart;
        PodMigrationJobs that others make are still carried out. The Deployment of O(flavor=sigs) is scaled to 0, its
        CronJob suspended.
      - V(resumed) without O(namespace) and O(deployment) gives back every descheduler of the cluster that is paused.
    type: str
    choices: [present, validated, restarted, paused, resumed]
    default: present
  flavor:
    description:
      - Which descheduler it is. It decides what is valid, and the names that are not given.
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
      - Version of the descheduler whose rules count, V(1.7.0) or V(1.8.0) of Koordinator, V(0.36.0) of sigs.
      - The first of them unless given.
    type: str
  config:
    description:
      - The configuration, a C(DeschedulerConfiguration) or for O(flavor=sigs) a C(DeschedulerPolicy), as keys and
        values or as the text of its YAML. With C(lookup('ansible.builtin.file', ...)) it comes from a file, with
        C(lookup('ansible.builtin.template', ...)) from a template.
      - Needed for V(present) and V(validated) of O(state).
    type: raw
  namespace:
    description:
      - Where the descheduler is. Unset means as O(flavor) says.
    type: str
  deployment:
    description:
      - Name of the Deployment, for O(flavor=sigs) also of a CronJob. Unset means as O(flavor) says.
    type: str
  config_map:
    description:
      - Name of the ConfigMap that it mounts. Unset means as O(flavor) says.
      - A ConfigMap that does not exist is made; one that the pods do not mount is an error.
    type: str
  key:
    description:
      - The key in it. Unset means as O(flavor) says.
    type: str
  restart:
    description:
      - V(rollout) changes the pod template's annotation, as C(kubectl rollout restart) does. With the settings of
        Koordinator's chart the old pods run until the new ones are ready.
      - V(scale) scales to 0, waits until the pods are gone, and scales to as many as before, as ACK's documentation
        does it. Never do two deschedulers run at once, and for a moment none does.
      - V(none) leaves the pods alone; the configuration counts from their next start.
      - A CronJob needs no restart, its next run mounts what the ConfigMap holds.
    type: str
    choices: [rollout, scale, none]
    default: rollout
  verify:
    description:
      - Whether to wait until the new configuration runs. RV(proof) tells by what that was proven.
      - Without it a configuration that does not start is not noticed and not taken back.
    type: bool
    default: true
  rollback:
    description:
      - Whether to restore ConfigMap and Deployment byte for byte where the new configuration does not run. The call
        fails all the same, and RV(reason) says why.
    type: bool
    default: true
  running_jobs:
    description:
      - What to do while PodMigrationJobs run, which a restart would strand. V(wait) waits for O(timeout), V(refuse)
        fails at once, both before anything is written. V(ignore) restarts all the same.
    type: str
    choices: [wait, refuse, ignore]
    default: wait
  timeout:
    description:
      - How long to wait for running jobs, for pods to end, and for the new configuration to run, each of them.
        Seconds, or a text such as V(90s), V(5m).
      - Pods that end again and again (three times) are not waited for any longer.
    type: str
    default: 5m
  run:
    description:
      - The run on whose behalf this is done, for the API server's audit log; see
        M(kubeops.node_maintenance.maintenance_state).
    type: str
seealso:
  - module: kubeops.node_maintenance.node_taint
  - module: kubeops.node_maintenance.node_drain
notes:
  - The permissions that are needed are the roles C(descheduler), C(runs) and C(read) of the collection's guide to
    rights.
  - A GitOps controller that owns the ConfigMap would write it back. Give the configuration to it instead, and use
    O(state=restarted), or exempt the ConfigMap's data and the pod template's annotations from its care.
"""

EXAMPLES = r"""
- name: Check a configuration without a cluster
  kubeops.node_maintenance.descheduler_config:
    state: validated
    config: "{{ lookup('ansible.builtin.file', 'koord-descheduler.yaml') }}"

- name: Evict pods that do not tolerate their node's taints, and see that it runs
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

- name: The same on ACK, restarted as its documentation says
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

- name: Let the descheduler evict nothing while nodes are away
  kubeops.node_maintenance.descheduler_config:
    state: paused

- name: Give back what was paused
  kubeops.node_maintenance.descheduler_config:
    state: resumed

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
    - V(invalid), a failure - the configuration is wrong, and nothing was written.
    - V(rolled_back), a failure - it did not run, and what was before is restored.
    - V(failed), a failure - it does not run, and nothing was restored.
    - A call that failed as a whole has none.
  returned: when the call did not fail as a whole
  type: str
  sample: restarted
findings:
  description:
    - What is wrong with the configuration or worth knowing, in its order. Or why the call failed as a whole; such a
      finding has C(code) and C(object) instead of C(rule) and C(path).
  returned: always
  type: list
  elements: dict
  contains:
    path:
      description: Where in the configuration.
      type: str
      sample: profiles[0].plugins.deschedule.enabled[0]
    rule:
      description: The rule, a word that the page about the rules explains.
      type: str
      sample: look_alike
    severity:
      description: V(error) stops the call, V(warning) does not.
      type: str
      sample: error
    message:
      description: What is wrong.
      type: str
      sample: There is no plugin RemoveFailedPod.
    remedy:
      description: What to write instead.
      type: str
      sample: It is called RemoveFailedPods.
    real:
      description:
        - What the descheduler itself does with it. V(refuses), V(crashes), V(drops) the words silently, or V(starts)
          and does not do what they say.
      type: str
      sample: refuses
    code:
      description:
        - V(unknown_deployment), V(not_mounted), V(no_config), V(jobs_running), V(pods_stay), V(changed_meanwhile),
          V(missing_permission), V(immutable), V(deployment_paused), V(bad_journal) or V(namespace_missing).
      type: str
    object:
      description: What that is about.
      type: str
restarted:
  description: Whether the pods were restarted (in check mode, would be).
  returned: when the descheduler was looked at, or the configuration is wrong
  type: bool
running_config_matches:
  description:
    - Whether the configuration that runs is the wanted one. Null where nothing was waited for (O(verify=false),
      O(restart=none), a CronJob, no replicas, check mode).
  returned: when the descheduler was looked at, or the configuration is wrong
  type: bool
  sample: true
proof:
  description:
    - What proves that. V(configz) is the configuration that each pod shows at C(/configz), read through a
      port-forward by the API server; V(log) the one that each pod logged when it started. Both are compared with the
      wanted one value by value, with defaults filled in.
    - V(lease) says that new pods alone are there, ready, and one of them leads; V(ready) that they are ready. The
      descheduler of sigs.k8s.io shows its configuration nowhere, so these are all that can be had of it.
  returned: when the descheduler was looked at, or the configuration is wrong
  type: str
  sample: configz
proof_note:
  description: Why there is no stronger proof, such as a missing permission.
  returned: when the descheduler was looked at
  type: str
rolled_back:
  description: Whether ConfigMap and Deployment were restored.
  returned: when the descheduler was looked at, or the configuration is wrong
  type: bool
reason:
  description: Why the new configuration does not run; the container's own last words where it has any.
  returned: when the descheduler was looked at, or the configuration is wrong
  type: str
  sample: "no matches for kind \"NodeMetric\" in version \"slo.koordinator.sh/v1alpha1\""
digest:
  description: The digest of what the configuration means, as in the pod template's annotation.
  returned: when the configuration is valid
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
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import descheduler, module


def main() -> None:
    module.run_module(descheduler.FACE)


if __name__ == "__main__":
    main()
