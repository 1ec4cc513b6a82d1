# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Handmade policies of the sigs descheduler."""

from __future__ import annotations

ROOT = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: pool=a,tier!=db
maxNoOfPodsToEvictPerNode: 5
maxNoOfPodsToEvictPerNamespace: 5
maxNoOfPodsToEvictTotal: 5
evictionFailureEventNotification: true
metricsCollector: {enabled: false}
metricsProviders:
- source: KubernetesMetrics
gracePeriodSeconds: 30
profiles:
- name: default
  plugins:
    deschedule: {enabled: [RemovePodsViolatingNodeTaints], disabled: [PodLifeTime]}
    balance: {enabled: [RemoveDuplicates]}
    filter: {enabled: [DefaultEvictor]}
    preevictionfilter: {enabled: [DefaultEvictor]}
    presort: {enabled: []}
    sort: {enabled: []}
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args: {excludedTaints: [deschedule=not-allow]}
  - name: RemoveDuplicates
"""
"""Every key of the document, few plugins."""

HEAD = """apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
"""

TEXTS: dict[str, str] = {
    "no profiles": "profiles: []\n",
    "a null profile": "profiles: [null]\n",
    "a profile of nothing": "profiles: [{}]\n",
    "two profiles of a name": "profiles: [{name: a}, {name: a}]\n",
    "koordinator's shape": "profiles: [{plugins: {deschedule: {enabled: [{name: PodLifeTime}]}}}]\n",
    "enabled without configuration": "profiles: [{plugins: {deschedule: {enabled: [PodLifeTime]}}}]\n",
    "enabled without arguments": "profiles: [{pluginConfig: [{name: PodLifeTime}]}]\n",
    "arguments that may be missing": """profiles:
- pluginConfig: [{name: RemoveDuplicates}]
  plugins: {balance: {enabled: [RemoveDuplicates]}}
""",
    "arguments that are null": """profiles:
- pluginConfig: [{name: RemoveDuplicates, args: null}]
  plugins: {balance: {enabled: [RemoveDuplicates]}}
""",
    "the same plugin twice": """profiles:
- pluginConfig: [{name: RemoveDuplicates}]
  plugins: {balance: {enabled: [RemoveDuplicates, RemoveDuplicates]}}
""",
    "the same configuration twice": """profiles:
- pluginConfig: [{name: RemoveDuplicates}, {name: RemoveDuplicates}]
  plugins: {balance: {enabled: [RemoveDuplicates]}}
""",
    "an enabled null": "profiles: [{plugins: {balance: {enabled: [null]}}}]\n",
    "an enabled empty text": 'profiles: [{plugins: {balance: {enabled: [""]}}}]\n',
    "a configured null": "profiles: [{pluginConfig: [null]}]\n",
    "a configured one without a name": "profiles: [{pluginConfig: [{args: {}}]}]\n",
    "a configured one that nobody knows": "profiles: [{pluginConfig: [{name: Mine}]}]\n",
    "an evictor": "profiles: [{plugins: {evict: {enabled: [DefaultEvictor]}}}]\n",
    "another spelling of a point": "profiles: [{plugins: {preEvictionFilter: {enabled: [DefaultEvictor]}}}]\n",
    "a sort plugin": "profiles: [{plugins: {sort: {enabled: [RemoveDuplicates]}}}]\n",
    "a presort plugin of no kind": "profiles: [{plugins: {presort: {enabled: [Mine]}}}]\n",
    "two sources of a kind": "metricsProviders: [{source: KubernetesMetrics}, {source: KubernetesMetrics}]\n",
    "a source of no kind": "metricsProviders: [{source: Graphite}]\n",
    "two sources of no kind": "metricsProviders: [{source: Graphite}, {source: Graphite}]\n",
    "a source without a name": "metricsProviders: [{}]\n",
    "a null source": "metricsProviders: [null]\n",
    "prometheus without a url": "metricsProviders: [{source: Prometheus, prometheus: {}}]\n",
    "prometheus without itself": "metricsProviders: [{source: Prometheus}]\n",
    "prometheus of another source": "metricsProviders: [{source: KubernetesMetrics, prometheus: {}}]\n",
    "prometheus with a bad url": 'metricsProviders: [{source: Prometheus, prometheus: {url: "http://a b"}}]\n',
    "prometheus with a url of no scheme": 'metricsProviders: [{source: Prometheus, prometheus: {url: "::1"}}]\n',
    "prometheus with an address": "metricsProviders: [{source: Prometheus, prometheus: {url: '10.0.0.1:9090'}}]\n",
    "prometheus with a name": "metricsProviders: [{source: Prometheus, prometheus: {url: 'prometheus:9090'}}]\n",
    "prometheus with a word": "metricsProviders: [{source: Prometheus, prometheus: {url: prometheus}}]\n",
    "prometheus with a port of letters": """metricsProviders:
- {source: Prometheus, prometheus: {url: "http://a:b"}}
""",
    "prometheus with a long url": """metricsProviders:
- {source: Prometheus, prometheus: {url: "https://[fd00::1]:9090/a/b?c=d%20e"}}
""",
    "prometheus with a bad escape": "metricsProviders: [{source: Prometheus, prometheus: {url: 'http://a/%zz'}}]\n",
    "prometheus with half a secret": """metricsProviders:
- source: Prometheus
  prometheus: {url: "https://example.com", authToken: {secretReference: {name: a}}}
""",
    "prometheus with no secret": """metricsProviders:
- source: Prometheus
  prometheus: {url: "https://example.com", authToken: {}}
""",
    "a collector and a provider": """metricsCollector: {enabled: true}
metricsProviders: [{source: KubernetesMetrics}]
""",
    "the first version's shape": "strategies: {RemoveDuplicates: {enabled: true}}\n",
    "flags as keys": "dryRun: true\ndeschedulingInterval: 5m\nleaderElection: {leaderElect: true}\n",
    "a selector as koordinator has it": "nodeSelector: {matchLabels: {a: b}}\n",
    "a grace period below zero": "gracePeriodSeconds: -1\n",
}
"""Appended to a short DeschedulerPolicy."""

ARGS: dict[str, tuple[str, ...]] = {
    "DefaultEvictor": (
        "priorityThreshold: {value: 5, name: system-cluster-critical}",
        "priorityThreshold: {value: 2000000001}",
        "priorityThreshold: {name: system-node-critical}",
        "priorityThreshold: {name: system-cluster-critical}",
        "priorityThreshold: {}",
        "minReplicas: 1",
        "minReplicas: -1",
        "minPodAge: -5m",
        "minPodAge: null",
        "noEvictionPolicy: preferred",
        "evictLocalStoragePods: true\npodProtections: {extraEnabled: [PodsWithPVC]}",
        "evictLocalStoragePods: true\npodProtections: {config: {}}",
        "evictLocalStoragePods: false\npodProtections: {extraEnabled: [PodsWithPVC]}",
        "podProtections: {extraEnabled: [PodsWithLocalStorage]}",
        "podProtections: {defaultDisabled: [PodsWithPVC]}",
        "podProtections: {defaultDisabled: [DaemonSetPods, DaemonSetPods]}",
        "podProtections: {extraEnabled: [PodsWithoutPDB]}",
        "podProtections: {config: {PodsWithPVC: {protectedStorageClasses: [{name: ''}]}}}",
        """podProtections:
  extraEnabled: [PodsWithPVC]
  config: {PodsWithPVC: {protectedStorageClasses: [{name: ''}]}}""",
        """podProtections:
  extraEnabled: [PodsWithPVC]
  config: {PodsWithPVC: {protectedStorageClasses: [{name: none-of-ours}]}}""",
        "podProtections: {extraEnabled: [null]}",
        "nodeSelector: a=b=c",
        "nodeSelector: a=b=c\nnodeFit: true",
        "labelSelector: {matchLabels: {a b: c}}",
        "namespaceLabelSelector: {matchLabels: {a b: c}}",
        "kind: Nonsense",
        "kind: DefaultEvictorArgs\napiVersion: descheduler/v1alpha2",
        "kind: DefaultEvictorArgs\napiVersion: v1",
        "a: 1\na: 1",
    ),
    "LowNodeUtilization": (
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 20}",
        "thresholds: {cpu: 21}\ntargetThresholds: {cpu: 20}",
        "thresholds: {cpu: 20}\ntargetThresholds: {memory: 20}",
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 30}\nmetricsUtilization: {source: KubernetesMetrics}",
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 30}\nmetricsUtilization: {metricsServer: true}",
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 30}\nmetricsUtilization: {source: Graphite}",
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 30}\nmetricsUtilization: {source: Prometheus}",
        """thresholds: {MetricResource: 20}
targetThresholds: {MetricResource: 30}
metricsUtilization: {source: Prometheus, prometheus: {query: up}}""",
        """thresholds: {cpu: 20}
targetThresholds: {cpu: 30}
metricsUtilization: {source: Prometheus, prometheus: {query: up}}""",
        """thresholds: {cpu: 20}
targetThresholds: {cpu: 30}
metricsUtilization: {source: KubernetesMetrics, metricsServer: true}""",
        """thresholds: {cpu: 20}
targetThresholds: {cpu: 30}
metricsUtilization: {source: KubernetesMetrics, prometheus: {}}""",
        "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 30}\nevictionLimits: {node: -1}",
    ),
    "HighNodeUtilization": (
        "thresholds: {cpu: 20}\nevictionModes: [Nonsense]",
        "thresholds: {cpu: 101}",
        "thresholds: {}",
        "thresholds: {nonsense: 20}",
    ),
    "PodLifeTime": (
        "states: [Sleeping]",
        "states: []",
        "conditions: [{}]",
        "conditions: [null]",
        "conditions: [{type: Ready}]",
        "exitCodes: [1]",
        "maxPodLifeTimeSeconds: 0",
        "ownerKinds: {include: [Job], exclude: [ReplicaSet]}\nexitCodes: [1]",
        "maxPodLifeTimeSeconds: 5\npodStatusPhases: [Running]",
    ),
    "RemovePodsViolatingNodeTaints": (
        "includedTaints: [a]\nexcludedTaints: [b]",
        "includedTaints: [a]\nexcludedTaints: []",
        "excludeTaints: [a]",
    ),
    "RemovePodsViolatingNodeAffinity": ("nodeAffinityType: [nonsense]", "{}"),
    "RemovePodsHavingTooManyRestarts": ("podRestartThreshold: 0", "podRestartThreshold: 1\nstates: [Failed]"),
}
"""Arguments of plugins, enabled where they work."""
