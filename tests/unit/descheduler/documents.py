# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that the deschedulers start with, and a way to change one word of them."""

from __future__ import annotations

import copy
import itertools
import re
import typing as t

import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, schema_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import Fault

Raw = dict[str, t.Any]

GONE = object()
"""Instead of a value: the key is removed."""

KOORD = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
leaderElection:
  resourceLock: leases
  resourceName: koord-descheduler
  resourceNamespace: kube-system
dryRun: false
deschedulingInterval: 120s
nodeSelector:
  matchLabels:
    deschedule: allow
maxNoOfPodsToEvictPerNode: 10
profiles:
- name: koord-descheduler
  plugins:
    deschedule:
      enabled:
      - name: RemovePodsViolatingNodeTaints
      - name: PodLifeTime
    balance:
      disabled:
      - name: "*"
      enabled:
      - name: LowNodeLoad
      - name: LowNodeUtilization
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
        include: [namespace1, namespace2]
      labelSelector:
        matchLabels:
          accelerator: nvidia-tesla-p100
  - name: MigrationController
    args:
      apiVersion: descheduler/v1alpha2
      kind: MigrationControllerArgs
      evictLocalStoragePods: false
      maxMigratingPerNode: 1
      maxMigratingPerNamespace: 1
      maxMigratingPerWorkload: 10%
      objectLimiters:
        workload:
          duration: 5m
          maxMigrating: 1
      evictQPS: "10"
      evictionPolicy: Eviction
  - name: PodLifeTime
    args:
      maxPodLifeTimeSeconds: 86400
  - name: LowNodeLoad
    args:
      evictableNamespaces:
        exclude: [kube-system]
      lowThresholds: {cpu: 20, memory: 30}
      highThresholds: {cpu: 50.5, memory: 60}
      anomalyCondition: {consecutiveAbnormalities: 3}
      nodePools:
      - name: blue
        nodeSelector: {matchLabels: {pool: blue}}
        lowThresholds: {cpu: 20}
        highThresholds: {cpu: 50}
        anomalyCondition: {consecutiveAbnormalities: 5}
  - name: LowNodeUtilization
    args:
      thresholds: {cpu: 20}
      targetThresholds: {cpu: 50}
"""

SIGS = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: pool=a,tier!=db
maxNoOfPodsToEvictPerNode: 5
metricsProviders:
- source: KubernetesMetrics
- source: Prometheus
  prometheus:
    url: https://prometheus.example.com
    authToken:
      secretReference: {namespace: descheduler, name: token}
profiles:
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args:
      nodeFit: true
      nodeSelector: pool=a
      minReplicas: 2
      minPodAge: 5m
      podProtections:
        extraEnabled: [PodsWithPVC]
        config:
          PodsWithPVC:
            protectedStorageClasses: [{name: fast}]
  - name: RemovePodsViolatingNodeTaints
    args:
      excludedTaints: [reserved]
  - name: PodLifeTime
    args:
      maxPodLifeTimeSeconds: 86400
      states: [Pending, ImagePullBackOff]
  - name: LowNodeUtilization
    args:
      thresholds: {MetricResource: 20}
      targetThresholds: {MetricResource: 50}
      metricsUtilization: {source: Prometheus, prometheus: {query: up}}
  - name: RemoveDuplicates
  plugins:
    deschedule:
      enabled: [RemovePodsViolatingNodeTaints, PodLifeTime]
    balance:
      enabled: [LowNodeUtilization, RemoveDuplicates]
"""


_PARSED: dict[str, Raw] = {text: yaml.safe_load(text) for text in (KOORD, SIGS)}


def koord() -> Raw:
    return copy.deepcopy(_PARSED[KOORD])


def sigs() -> Raw:
    return copy.deepcopy(_PARSED[SIGS])


def changed(document: Raw, changes: t.Mapping[str, t.Any]) -> Raw:
    """A copy with other values at paths such as ``profiles[0].name``; `RemovePods…/key` is in a plugin's args."""
    made = copy.deepcopy(document)
    for path, value in changes.items():
        plugin, slash, rest = path.partition("/")
        place: t.Any = args_of(made, plugin) if slash else made
        steps = [int(i) if i else k for k, i in re.findall(r"([^.\[\]]+)|\[(\d+)\]", rest if slash else path)]
        for step, following in itertools.pairwise(steps):
            if isinstance(step, str) and place.get(step) is None:
                place[step] = [] if isinstance(following, int) else {}
            place = place[step]
        last = steps[-1]
        if value is GONE:
            del place[last]
        elif isinstance(last, int) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return made


JUNK: tuple[t.Any, ...] = (None, 0, -1, 1.5, "x", "", True, [], [None], [0], [[]], {}, {"x": None}, {1: {True: 2}})


def found(changes: t.Mapping[str, t.Any], version: str = "1.7.0") -> tuple[Fault, ...]:
    """What is said of koord-descheduler's configuration with these changes."""
    return check(changed(koord(), changes), schema_of("koordinator", version))


def spoiled(document: Raw) -> t.Iterator[Raw]:
    """The document with junk in the place of each of its values, one at a time."""
    for steps in _places(document, ()):
        for junk in JUNK:
            made = copy.deepcopy(document)
            place: t.Any = made
            for step in steps[:-1]:
                place = place[step]
            place[steps[-1]] = copy.deepcopy(junk)
            yield made


def _places(value: t.Any, path: tuple[t.Any, ...]) -> t.Iterator[tuple[t.Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, below in inner:
        yield (*path, step)
        yield from _places(below, (*path, step))


def args_of(document: Raw, plugin: str) -> Raw:
    entries = document["profiles"][0]["pluginConfig"]
    entry = next((entry for entry in entries if entry["name"] == plugin), None)
    if entry is None:
        entry = {"name": plugin}
        entries.append(entry)
    return t.cast("Raw", entry.setdefault("args", {}))
