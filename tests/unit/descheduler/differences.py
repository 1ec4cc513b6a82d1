# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a descheduler starts and we say no, each with the reason; all others are errors of the descheduler itself.

The documentation has the table, and the tests hold it against what the real binaries do with thousands of
configurations: what is not in it does not differ, and what is in it does.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.rules import Fault
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.schemas import Real, Schema


@dataclass(frozen=True, slots=True)
class Difference:
    """What it is, in words for people; ``places`` are paths with ``*``, of arguments the plugin's name and the key."""

    said: str
    places: tuple[str, ...]
    rules: tuple[str, ...]
    real: Real
    reason: str


_KEYS = ("unknown_key", "look_alike", "too_new")
_WORDS = ("not_in_list", "look_alike")
_MC = "MigrationController"
_SELECTOR = ("malformed", "required", "forbidden", *_WORDS)

_TEXT = Difference(
    "a second document in the text",
    ("",),
    ("not_yaml",),
    "drops",
    "It is never read.",
)

_FIT = Difference(
    "``nodeSelector`` of an evictor that is no selector",
    ("DefaultEvictor nodeSelector", f"{_MC} nodeSelector"),
    ("malformed",),
    "starts",
    "It is read when a pod is about to go: no node is ever found to fit.",
)

_AFFINITY = Difference(
    "``nodeAffinityType`` of an unknown kind",
    ("RemovePodsViolatingNodeAffinity nodeAffinityType[]",),
    _WORDS,
    "starts",
    "It is logged in each cycle, and nothing is done for it.",
)

_KIND = Difference(
    "``apiVersion`` or ``kind`` of other arguments, where the plugin is one of sigs.k8s.io",
    ("* kind", "* apiVersion"),
    ("wrong_document",),
    "starts",
    "Nobody asks for them, but they say that these are the arguments of something else.",
)

KOORDINATOR: tuple[Difference, ...] = (
    Difference(
        "a limiter of an unknown kind",
        (f"{_MC} objectLimiters.*",),
        ("unknown_key",),
        "drops",
        "It limits nothing.",
    ),
    Difference(
        "an unknown key among the arguments of DefaultEvictor or of a plugin of sigs.k8s.io",
        ("* *",),
        _KEYS,
        "drops",
        "It is dropped without a word, and the plugin evicts more pods, or other ones, than was asked for.",
    ),
    Difference(
        "an entry of pluginConfig for a plugin that does not exist, or without a name",
        ("profiles[].pluginConfig[]", "profiles[].pluginConfig[].name"),
        ("unknown_plugin", "look_alike", "too_new", "required"),
        "drops",
        "Nobody reads these arguments; the plugin that was meant runs with its defaults.",
    ),
    Difference(
        "an entry of disabled without a name",
        ("profiles[].plugins.*.disabled[].name",),
        ("required",),
        "starts",
        "It disables nothing.",
    ),
    Difference(
        "a plugin of sigs.k8s.io at the other one of deschedule and balance",
        ("profiles[].plugins.deschedule.enabled[]", "profiles[].plugins.balance.enabled[]"),
        ("wrong_point",),
        "starts",
        "Every cycle ends with an error, and the profiles after it have no turn.",
    ),
    Difference(
        "two plugins at filter, or another one than at evict",
        ("profiles[].plugins.filter",),
        ("one_evictor",),
        "starts",
        "Pods that the arguments of one let go are kept by the other one, without a word.",
    ),
    Difference(
        "``nodeSelector`` of a profile, of CustomPriority or of its evictionOrder that is no label selector",
        ("profiles[].nodeSelector.*", "CustomPriority nodeSelector.*", "CustomPriority evictionOrder[].nodeSelector.*"),
        _SELECTOR,
        "starts",
        "It is read in each cycle, which then ends with an error, or does nothing for these nodes.",
    ),
    Difference(
        "numbers of pods, times and bursts below zero",
        (
            f"{_MC} maxMigratingPerWorkload",
            f"{_MC} maxUnavailablePerWorkload",
            f"{_MC} objectLimiters.*",
            f"{_MC} arbitrationArgs.interval",
            "LowNodeLoad *anomalyCondition.timeout",
            "LowNodeLoad detectorCacheTimeout",
            "deschedulingInterval",
        ),
        ("out_of_range",),
        "starts",
        "Nobody means it, and what the descheduler makes of it is written nowhere.",
    ),
    Difference(
        "``objectLimiters.*.maxMigrating`` that is no number and no percentage",
        (f"{_MC} objectLimiters.*.maxMigrating",),
        ("malformed",),
        "starts",
        "It is read as 0: after its first pod the workload has no second one moved.",
    ),
    Difference(
        "``objectLimiters.namespace.maxMigrating`` as a percentage",
        (f"{_MC} objectLimiters.namespace.maxMigrating",),
        ("wrong_type",),
        "starts",
        "Of a namespace there is nothing to take a percentage of: it is read as 0.",
    ),
    Difference(
        "``defaultDeleteOptions`` with words that the API does not know",
        (f"{_MC} defaultDeleteOptions.propagationPolicy", f"{_MC} defaultDeleteOptions.dryRun[]"),
        _WORDS,
        "starts",
        "The API server refuses every eviction.",
    ),
    Difference(
        "``priorityThreshold`` with value and name",
        ("DefaultEvictor priorityThreshold",),
        ("exclusive",),
        "starts",
        "The value is taken, the name is not looked at.",
    ),
    Difference(
        "``priorityThreshold.value`` above 2000000000 together with evictSystemCriticalPods",
        ("DefaultEvictor priorityThreshold.value", f"{_MC} priorityThreshold.value"),
        ("out_of_range",),
        "starts",
        "evictSystemCriticalPods switches the threshold off, so that nobody looks at it.",
    ),
    Difference(
        "null as the first of ``constraints``",
        ("RemovePodsViolatingTopologySpreadConstraint constraints[]",),
        ("not_in_list",),
        "starts",
        "It leaves the default in its place.",
    ),
    Difference(
        "an address whose port is 0 or no number, since 1.8.0",
        ("healthzBindAddress", "metricsBindAddress"),
        ("malformed",),
        "starts",
        "Nobody listens there: the pod never gets ready.",
    ),
    Difference(
        "CustomPriority: thresholds not in 0 to 100, include with exclude, an unknown mode, selectors without a name",
        (
            "CustomPriority evictionOrder[].*Threshold.*",
            "CustomPriority evictableNamespaces",
            "CustomPriority mode",
            "CustomPriority podSelectors[].name",
        ),
        ("out_of_range", "exclusive", "required", *_WORDS),
        "starts",
        "Koordinator has a check for them and never calls it.",
    ),
    _AFFINITY,
    _FIT,
    _KIND,
    _TEXT,
)

SIGS: tuple[Difference, ...] = (
    Difference(
        "an unknown key of the policy, of a profile or of an entry of pluginConfig",
        ("*",),
        _KEYS,
        "drops",
        "It is dropped without a word; dryRun, for example, is a flag and no key: pods are evicted.",
    ),
    Difference("a key that is there twice", ("",), ("duplicate_key",), "drops", "The last one is taken."),
    Difference(
        "a plugin twice in pluginConfig",
        ("profiles[].pluginConfig[]",),
        ("duplicate",),
        "starts",
        "The first one is taken.",
    ),
    Difference(
        "a plugin at presort or sort",
        ("profiles[].plugins.presort.enabled[]", "profiles[].plugins.sort.enabled[]"),
        ("wrong_point",),
        "starts",
        "Nothing runs there.",
    ),
    Difference(
        "no apiVersion or kind, or nothing at all",
        ("apiVersion", "kind", ""),
        ("wrong_document", "wrong_type"),
        "starts",
        "The text does not say what it is; with nothing in it, nothing is done.",
    ),
    Difference(
        "a source of metrics of an unknown kind",
        ("metricsProviders[].source", "LowNodeUtilization metricsUtilization.source"),
        ("required", *_WORDS),
        "starts",
        "No plugin gets metrics from it.",
    ),
    Difference(
        "``prometheus.url`` that is no http or https URL",
        ("metricsProviders[].prometheus.url",),
        ("malformed",),
        "starts",
        "It leads nowhere: every cycle has an error.",
    ),
    Difference(
        "times below zero",
        ("DefaultEvictor minPodAge", "gracePeriodSeconds"),
        ("out_of_range",),
        "starts",
        "No pod is that young; the API server refuses evictions with a grace period below zero.",
    ),
    Difference(
        "``protectedStorageClasses`` without a name while PodsWithPVC is not in extraEnabled",
        ("DefaultEvictor podProtections.config.PodsWithPVC.protectedStorageClasses[].name",),
        ("required",),
        "starts",
        "Nobody looks at it until PodsWithPVC is enabled, and then the descheduler ends.",
    ),
    _AFFINITY,
    _FIT,
    _KIND,
    _TEXT,
)

UNSEEN: tuple[tuple[str, str], ...] = (
    ("``priorityThreshold.name``", "a PriorityClass of that name has to exist, else the descheduler ends"),
    ("``clientConnection.kubeconfig``", "the file has to be there, in the descheduler's own container"),
    ("``healthzBindAddress``, ``metricsBindAddress``", "the port has to be free"),
    (
        "PodMigrationJob, Reservation, NodeMetric",
        "their CRDs have to be there; LowNodeLoad waits for NodeMetric for ever",
    ),
)
"""What no configuration shows: it depends on the cluster."""

_ARGS = re.compile(r"profiles\[(\d+)\]\.pluginConfig\[(\d+)\]\.args\.?(.*)", re.DOTALL)


def of(schema: Schema) -> tuple[Difference, ...]:
    """The differences of a flavor."""
    return SIGS if schema.name == "sigs" else KOORDINATOR


def place(path: str, config: t.Any) -> str:
    """The path as ``places`` have it: the plugin's name before the key of an argument, no indices."""
    found = _ARGS.fullmatch(path)
    if found:
        plugin = config["profiles"][int(found[1])]["pluginConfig"][int(found[2])]["name"]
        path = f"{plugin} {found[3]}"
    return re.sub(r"\[\d+\]", "[]", path)


def explaining(fault: Fault, config: t.Any, schema: Schema) -> Difference | None:
    """The difference that an error is, or nothing where the descheduler says no as well or nobody knows of it."""
    where = place(fault.path, config)
    for difference in of(schema):
        fits = fault.code in difference.rules and fault.real == difference.real
        if fits and any(_like(pattern, where) for pattern in difference.places):
            return difference
    return None


def _like(pattern: str, where: str) -> bool:
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), where, re.DOTALL))
