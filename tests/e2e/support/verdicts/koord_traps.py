# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Handmade configurations of koord-descheduler."""

from __future__ import annotations

ROOT = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
clientConnection:
  kubeconfig: KUBECONFIG
  acceptContentTypes: ""
  contentType: application/vnd.kubernetes.protobuf
  qps: 50
  burst: 100
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
  resourceLock: leases
  resourceName: koord-descheduler
  resourceNamespace: kube-system
enableProfiling: true
enableContentionProfiling: false
healthzBindAddress: 127.0.0.1:PORT
metricsBindAddress: 127.0.0.1:PORT
deschedulingInterval: 120s
dryRun: false
nodeSelector:
  matchLabels: {deschedule: allow}
maxNoOfPodsToEvictPerNode: 10
maxNoOfPodsToEvictPerNamespace: 10
maxNoOfPodsToEvictTotal: 10
profiles:
- name: koord-descheduler
  nodeSelector:
    matchLabels: {pool: a}
  plugins:
    deschedule:
      enabled: [{name: RemovePodsViolatingNodeTaints}]
      disabled: [{name: "*"}]
    balance:
      enabled: [{name: RemoveDuplicates}]
      disabled: [{name: "*"}]
    evict:
      enabled: [{name: MigrationController}]
      disabled: [{name: "*"}]
    filter:
      enabled: [{name: MigrationController}]
      disabled: [{name: "*"}]
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args: {excludedTaints: [deschedule=not-allow]}
"""
"""Every key of the document, few plugins."""

HEAD = """apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
clientConnection: {kubeconfig: KUBECONFIG}
healthzBindAddress: 127.0.0.1:PORT
metricsBindAddress: 127.0.0.1:PORT
"""

TEXTS: dict[str, str] = {
    "a policy's shape": "profiles:\n- name: a\n  plugins:\n    deschedule: {enabled: [PodLifeTime]}\n",
    "a time over two lines": "deschedulingInterval: >\n  120s\n",
    "a time of other digits": "deschedulingInterval: \uff11\uff12s\n",
    "a name that looks like a date": "profiles:\n- name: 2026-01-01\n",
    "a name that is a number": "profiles:\n- name: 1\n",
    "an alias as a name": "profiles:\n- plugins: {evict: {disabled: [{name: *}]}}\n",
    "no list": "profiles:\n  name: a\n",
    "profiles that are null": "profiles: [null]\n",
    "two profiles": "profiles: [{name: a}, {name: b}]\n",
    "two profiles of a name": "profiles: [{name: a}, {name: a}]\n",
    "two profiles, one without a name": "profiles: [{name: a}, {}]\n",
    "two profiles without a name": "profiles: [{}, {}]\n",
    "two profiles, one null": "profiles: [{name: a}, null]\n",
    "plugins that are null": "profiles: [{plugins: null}]\n",
    "points that are null": "profiles: [{plugins: {evict: null, filter: null, deschedule: {enabled: null}}}]\n",
    "an enabled null": "profiles: [{plugins: {deschedule: {enabled: [null]}}}]\n",
    "an enabled one without a name": "profiles: [{plugins: {deschedule: {enabled: [{}]}}}]\n",
    "an enabled one of an empty name": 'profiles: [{plugins: {deschedule: {enabled: [{name: ""}]}}}]\n',
    "a disabled null": "profiles: [{plugins: {deschedule: {disabled: [null]}}}]\n",
    "a disabled one that nobody knows": "profiles: [{plugins: {deschedule: {disabled: [{name: Mine}]}}}]\n",
    "a star as enabled": 'profiles: [{plugins: {deschedule: {enabled: [{name: "*"}]}}}]\n',
    "a configured null": "profiles: [{pluginConfig: [null]}]\n",
    "a configured one without a name": "profiles: [{pluginConfig: [{args: {}}]}]\n",
    "two configured ones without a name": "profiles: [{pluginConfig: [{args: {}}, {}]}]\n",
    "a configured one that nobody knows": "profiles: [{pluginConfig: [{name: Mine, args: {a: 1}}]}]\n",
    "a configured one twice": "profiles: [{pluginConfig: [{name: PodLifeTime}, {name: PodLifeTime}]}]\n",
    "the evictor configured twice": """profiles:
- pluginConfig: [{name: MigrationController}, {name: MigrationController}]
""",
    "leaders: as long as the renewal": "leaderElection: {leaseDuration: 10s, renewDeadline: 10s}\n",
    "leaders: a lease of 12 seconds": "leaderElection: {leaseDuration: 12s}\n",
    "leaders: a lease shorter than the renewal": "leaderElection: {leaseDuration: 5s}\n",
    "leaders: many retries": "leaderElection: {retryPeriod: 9s}\n",
    "leaders: at the limit": "leaderElection: {renewDeadline: 12s, retryPeriod: 10s}\n",
    "leaders: nothing counts": "leaderElection: {leaderElect: false, leaseDuration: -5s, resourceLock: none}\n",
    "leaders: zeros": "leaderElection: {leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s}\n",
    "leaders: negative": "leaderElection: {retryPeriod: -1s}\n",
    "leaders: no names": 'leaderElection: {resourceName: "", resourceNamespace: "", resourceLock: ""}\n',
    "leaders: another lock": "leaderElection: {resourceLock: endpointsleases}\n",
    "leaders: a null": "leaderElection: {leaseDuration: null}\n",
    "leaders: null": "leaderElection: null\n",
    "an interval of null": "deschedulingInterval: null\n",
    "an address of every interface": 'healthzBindAddress: ":PORT"\nmetricsBindAddress: ":PORT"\n',
    "an address in brackets": 'healthzBindAddress: "[::1]:PORT"\nmetricsBindAddress: "[::1]:PORT"\n',
    "an address without a closing bracket": 'healthzBindAddress: "[::1:PORT"\n',
    "an address with too many": 'healthzBindAddress: "127.0.0.1:PORT:1"\n',
    "an address with a sign": 'healthzBindAddress: "127.0.0.1:+PORT"\n',
    "an address with a zero": 'healthzBindAddress: "127.0.0.01:PORT"\n',
    "the example of the document": """deschedulingInterval: 120s
dryRun: false
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
""",
    "the second example, as it is printed": """nodeSelector:
  deschedule: allow
""",
    "the second example without its first mistake": """profiles:
- name: koord-descheduler
  plugins:
    deschedule:
      enabled:
        - name: RemovePodsViolatingNodeTaints
    balance:
      disabled:
        - name: "*"
    evict:
      enabled:
        - name: MigrationController
    filter:
      enabled:
        - name: MigrationController
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args:
      excludedTaints:
      - deschedule=not-allow
      - reserved
      includePreferNoSchedule: false
      namespaces:
        include:
          - "namespace1"
          - "namespace2"
      labelSelector:
        accelerator: nvidia-tesla-p100
  - name: MigrationController
    args:
      apiVersion: descheduler/v1alpha2
      kind: MigrationControllerArgs
      evictLocalStoragePods: false
      maxMigratingPerNode: 1
      maxMigratingPerNamespace: 1
      maxMigratingPerWorkload: 1
      maxUnavailablePerWorkload: 2
      objectLimiters:
        workload:
          duration: 5m
          maxMigrating: 1
      evictionPolicy: Eviction
""",
}
"""Appended to a short DeschedulerConfiguration."""

CONNECTIONS: tuple[str, ...] = (
    "acceptContentTypes: text/plain",
    "acceptContentTypes: text/plain, contentType: application/json",
    "acceptContentTypes: '*/*'",
    "acceptContentTypes: 'text/plain, application/json;q=0.9', contentType: application/json",
    "acceptContentTypes: 'application/*', contentType: application/json",
    "acceptContentTypes: APPLICATION/JSON",
    "contentType: text/plain",
    "contentType: application/yaml",
)

TEXTS |= {
    f"a connection with {given}": f"clientConnection: {{kubeconfig: KUBECONFIG, {given}}}\n" for given in CONNECTIONS
}

ARGS: dict[str, tuple[str, ...]] = {
    "MigrationController": (
        "priorityThreshold: {name: system-cluster-critical}",
        "priorityThreshold: {name: system-node-critical}",
        "priorityThreshold: {value: 5, name: system-node-critical}",
        "priorityThreshold: {value: 2000000000}",
        "priorityThreshold: {value: 2000000001}",
        "priorityThreshold: {value: 2000000001}\nevictSystemCriticalPods: true",
        "priorityThreshold: {value: -1}",
        "priorityThreshold: {}",
        "evictSystemCriticalPods: true\npriorityThreshold: {name: system-node-critical}",
        "objectLimiters: {}",
        "objectLimiters: {workload: null}",
        "objectLimiters: {workload: {duration: null}}",
        "objectLimiters: {workload: {duration: -5m}}",
        'objectLimiters: {namespace: {duration: 5m, maxMigrating: "10%"}}',
        "objectLimiters: {node: {duration: 5m}}",
        "namespaces: {include: [a], exclude: []}",
        "namespaces: {include: [a], exclude: [null]}",
        "namespaces: {include: [null]}",
        "defaultDeleteOptions: {propagationPolicy: Sideways}",
        "defaultDeleteOptions: {gracePeriodSeconds: -1, dryRun: [Some]}",
        "defaultDeleteOptions: {grace: 5}",
        "skipEvictionGates: [PVC]",
        "skipEvictionGates: [Everything]",
        "skipEvictionGates: []",
        "evictionPolicy: Soft",
        "evictionPolicy: eviction",
        'evictionPolicy: ""',
        'defaultJobMode: ""',
        "maxMigratingPerWorkload: 100%",
        "maxMigratingPerWorkload: 5 %",
        "maxMigratingPerWorkload: 99999999999%",
        "arbitrationArgs: {interval: 0s}",
        "arbitrationArgs: {}",
        "apiVersion: descheduler/v1alpha1",
        "apiVersion: descheduler/v1alpha2",
        "kind: MigrationControllerArgs",
        "kind: MigrationController",
        "kind: LowNodeLoadArgs",
        "a: 1\na: 1",
        "schedulerNames: [null]",
        "defaultDeleteOptions: {ignoreStoreReadErrorWithClusterBreakingPotential: true}",
    ),
    "LowNodeLoad": (
        "nodePools: [null]",
        "nodePools: [{}]",
        "nodePools: [{anomalyCondition: null}]",
        "nodePools: [{anomalyCondition: {}}]",
        "nodePools: [{anomalyCondition: {consecutiveAbnormalities: 0}}]",
        "nodePools: [{anomalyCondition: {consecutiveAbnormalities: 1}}]",
        "nodePools: [{anomalyCondition: {consecutiveAbnormalities: 1, consecutiveNormalities: 0}}]",
        "nodePools: [{anomalyCondition: {consecutiveNormalities: 1}}]",
        "anomalyCondition: {}",
        "anomalyCondition: {consecutiveAbnormalities: 0}",
        "anomalyCondition: {timeout: 1m}",
        "highThresholds: {cpu: 50}\nlowThresholds: {memory: 60}",
        "highThresholds: {cpu: 50}\nlowThresholds: {cpu: 50}",
        "highThresholds: {cpu: 50}\nlowThresholds: {cpu: 50.001}",
        "highThresholds: {cpu: 500}",
        "highThresholds: {cpu: null}",
        "highThresholds: {cpu: null}\nlowThresholds: {cpu: 1}",
        "prodLowThresholds: {cpu: 50}\nhighThresholds: {cpu: 40}",
        "detectorCacheTimeout: 0s",
        "podSelectors: [{name: a, selector: {matchLabels: {a b: c}}}]",
        "podSelectors: [null]",
        "nodeSelector: {matchLabels: {a b: c}}",
        "evictableNamespaces: {'include the following:': [a]}",
        "kind: MigrationControllerArgs",
        "resourceWeights: {cpu: 0, memory: -1}",
        "highThresholds: {cpu: 60}\nnodePools: [{lowThresholds: {cpu: 70}}]",
        "highThresholds: {cpu: 60}\nnodePools: [{lowThresholds: {cpu: 60}}]",
        "highThresholds: {cpu: 60}\nnodePools: [{highThresholds: null, lowThresholds: {cpu: 70}}]",
        "highThresholds: {cpu: 60}\nnodePools: [{highThresholds: {}, lowThresholds: {cpu: 70}}]",
        "highThresholds: {cpu: 60}\nlowThresholds: {cpu: 30}\nnodePools: [{highThresholds: {cpu: 20}}]",
        "highThresholds: {cpu: 60}\nprodHighThresholds: {cpu: 50}\nnodePools: [{highThresholds: {cpu: 40}}]",
        "highThresholds: {cpu: 60}\nnodePools: [{prodHighThresholds: {cpu: 70}}]",
        "prodHighThresholds: {cpu: 50}\nnodePools: [{prodLowThresholds: {cpu: 60}}]",
    ),
    "DefaultEvictor": (
        "priorityThreshold: {value: 5, name: system-cluster-critical}",
        "priorityThreshold: {value: 2000000001}",
        "priorityThreshold: {value: 2000000001}\nevictSystemCriticalPods: true",
        "priorityThreshold: {name: system-node-critical}",
        "priorityThreshold: {name: system-node-critical}\nevictSystemCriticalPods: true",
        "minReplicas: 2",
        "evictDaemonSetPods: true",
        "kind: Nonsense",
        "minReplicas: -1",
        "minPodAge: 5m",
        "minPodAge: -5m",
        "noEvictionPolicy: Mandatory",
        "noEvictionPolicy: Sometimes",
        "podProtections: {extraEnabled: [PodsWithPVC], defaultDisabled: [PodsWithLocalStorage]}",
        "podProtections: {extraEnabled: [PodsWithPVC], defaultDisabled: [Nonsense]}",
        "podProtections: {extraEnabled: [PodsWithPVC, PodsWithPVC]}",
        "podProtections: {extraEnabled: [PodsWithPVC]}\nevictLocalStoragePods: true",
        "podProtections: {defaultDisabled: [SystemCriticalPods]}\npriorityThreshold: {value: 2000000001}",
        "podProtections: {extraEnabled: [PodsWithPVC]}\nevictSystemCriticalPods: true\n"
        "priorityThreshold: {value: 2000000001}",
        "podProtections: {extraEnabled: [PodsWithPVC], config: {PodsWithPVC: {protectedStorageClasses: [{}]}}}",
        "namespaceLabelSelector: {matchExpressions: [{key: a}]}",
        "namespaceLabelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a}]}",
        "namespaceLabelSelector: {matchLabels: {a: b}}",
        "apiVersion: v1",
        "labelSelector: {matchLabels: {a b: c}}",
    ),
    "LowNodeUtilization": (
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 20}",
        "thresholds: {cpu: 21}\ntargetThresholds: {cpu: 20}",
        "thresholds: {cpu: 21}\ntargetThresholds: {cpu: 20}\nuseDeviationThresholds: true",
        "thresholds: {cpu: 20}\ntargetThresholds: {memory: 20}",
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 20, memory: 20}",
        "thresholds: {cpu: 20}",
        "thresholds: {nonsense: 20}\ntargetThresholds: {nonsense: 30}",
        "thresholds: {cpu: null}\ntargetThresholds: {cpu: 30}",
        "evictableNamespaces: {include: []}\nthresholds: {cpu: 1}\ntargetThresholds: {cpu: 30}",
        "evictableNamespaces: {include: [null]}\nthresholds: {cpu: 1}\ntargetThresholds: {cpu: 30}",
        "numberOfNodes: -1\nthresholds: {cpu: 1}\ntargetThresholds: {cpu: 30}",
    ),
    "PodLifeTime": (
        "maxPodLifeTimeSeconds: null",
        "maxPodLifeTimeSeconds: 0",
        "maxPodLifeTimeSeconds: 5\nstates: [Succeeded]",
        "maxPodLifeTimeSeconds: 5\nstates: [null]",
        'maxPodLifeTimeSeconds: 5\nstates: [""]',
        "maxPodLifeTimeSeconds: 5\npodStatusPhases: [Running]",
        "states: [Running]",
    ),
    "RemovePodsViolatingNodeAffinity": (
        "nodeAffinityType: [nonsense]",
        "nodeAffinityType: [null]",
        "nodeAffinityType: []",
    ),
    "RemovePodsViolatingTopologySpreadConstraint": (
        "constraints: [Always]",
        "constraints: []",
        "includeSoftConstraints: true",
        "topologyBalanceNodeFit: null",
    ),
    "RemovePodsHavingTooManyRestarts": (
        "podRestartThreshold: 0",
        "podRestartThreshold: null",
        "podRestartThreshold: 1\nstates: [Failed]",
        "podRestartThreshold: 1\nstates: [null]",
    ),
    "RemovePodsViolatingNodeTaints": (
        "excludedTaints: [a=b, c, null, '', a=b=c, 'a b']",
        "includedTaints: [a]\nexcludedTaints: [b]",
        "excludedTaints: a",
    ),
}
"""Arguments of plugins, enabled where they work."""
