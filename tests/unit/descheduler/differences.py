# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What we reject although the descheduler starts with it, and why; every other error is the descheduler's own.

The documentation shows these tables, and the tests compare them with what the real binaries do with thousands of
configurations: the verdicts differ for everything that is listed, and for nothing else.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import sigs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import Fault, Real, Schema


@dataclass(frozen=True, slots=True)
class Difference:
    """``said`` describes it to people; ``places`` are paths with ``*``; of arguments, plugin and key."""

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
    "an invalid ``nodeSelector`` of an evictor",
    ("DefaultEvictor nodeSelector", f"{_MC} nodeSelector"),
    ("malformed",),
    "starts",
    "It is parsed when a pod is about to be evicted: no node ever fits.",
)

_AFFINITY = Difference(
    "an unknown ``nodeAffinityType``",
    ("RemovePodsViolatingNodeAffinity nodeAffinityType[]",),
    _WORDS,
    "starts",
    "It is logged in each cycle and otherwise ignored.",
)

_KIND = Difference(
    "a wrong ``apiVersion`` or ``kind`` in the arguments of a plugin of sigs.k8s.io",
    ("* kind", "* apiVersion"),
    ("wrong_document",),
    "starts",
    "They are not validated, but they declare the arguments to be those of something else.",
)

KOORDINATOR: tuple[Difference, ...] = (
    Difference(
        "an unknown ``contentType``",
        ("clientConnection.contentType",),
        _WORDS,
        "starts",
        "It can write nothing: it never becomes leader.",
    ),
    Difference(
        "an unknown limiter",
        (f"{_MC} objectLimiters.*",),
        ("unknown_key",),
        "drops",
        "It limits nothing.",
    ),
    Difference(
        "an unknown key in the arguments of DefaultEvictor or of a plugin of sigs.k8s.io",
        ("* *",),
        _KEYS,
        "drops",
        "It is silently dropped, and the plugin evicts more pods, or other ones, than intended.",
    ),
    Difference(
        "an entry of pluginConfig for a plugin that does not exist, or without a name",
        ("profiles[].pluginConfig[]", "profiles[].pluginConfig[].name"),
        ("unknown_plugin", "look_alike", "too_new", "required"),
        "drops",
        "The arguments are not read; the intended plugin runs with its defaults.",
    ),
    Difference(
        "an entry in disabled without a name",
        ("profiles[].plugins.*.disabled[].name",),
        ("required",),
        "starts",
        "It disables nothing.",
    ),
    Difference(
        "a plugin of sigs.k8s.io at the wrong one of deschedule and balance",
        ("profiles[].plugins.deschedule.enabled[]", "profiles[].plugins.balance.enabled[]"),
        ("wrong_point",),
        "starts",
        "Every cycle ends with an error, and the following profiles do not run.",
    ),
    Difference(
        "two plugins at filter, or a different one from evict",
        ("profiles[].plugins.filter",),
        ("one_evictor",),
        "starts",
        "Pods that one plugin lets pass are silently kept by the other.",
    ),
    Difference(
        "an invalid ``nodeSelector`` of a profile, of CustomPriority or of its evictionOrder",
        ("profiles[].nodeSelector.*", "CustomPriority nodeSelector.*", "CustomPriority evictionOrder[].nodeSelector.*"),
        _SELECTOR,
        "starts",
        "It is parsed in each cycle, which then fails or skips these nodes.",
    ),
    Difference(
        "negative numbers of pods, durations and bursts",
        (
            f"{_MC} maxMigratingPerWorkload",
            f"{_MC} maxUnavailablePerWorkload",
            f"{_MC} objectLimiters.*",
            f"{_MC} arbitrationArgs.interval",
            "DefaultEvictor minPodAge",
            "LowNodeLoad *anomalyCondition.timeout",
            "LowNodeLoad detectorCacheTimeout",
            "deschedulingInterval",
        ),
        ("out_of_range",),
        "starts",
        "It is a mistake, and its effect is not documented.",
    ),
    Difference(
        "``objectLimiters.*.maxMigrating`` that is neither a number nor a percentage",
        (f"{_MC} objectLimiters.*.maxMigrating",),
        ("malformed",),
        "starts",
        "It means 0: after its first pod, no second pod of the workload is moved.",
    ),
    Difference(
        "``objectLimiters.namespace.maxMigrating`` as a percentage",
        (f"{_MC} objectLimiters.namespace.maxMigrating",),
        ("wrong_type",),
        "starts",
        "A namespace has no replicas to take a percentage of: it means 0.",
    ),
    Difference(
        "unknown values in ``defaultDeleteOptions``",
        (f"{_MC} defaultDeleteOptions.propagationPolicy", f"{_MC} defaultDeleteOptions.dryRun[]"),
        _WORDS,
        "starts",
        "The API server rejects every eviction.",
    ),
    Difference(
        "``priorityThreshold`` with both value and name",
        ("DefaultEvictor priorityThreshold",),
        ("exclusive",),
        "starts",
        "The value is used, the name is ignored.",
    ),
    Difference(
        "``priorityThreshold.value`` above 2000000000 together with evictSystemCriticalPods",
        ("DefaultEvictor priorityThreshold.value", f"{_MC} priorityThreshold.value"),
        ("out_of_range",),
        "starts",
        "evictSystemCriticalPods disables the threshold, so that it is not read.",
    ),
    Difference(
        "DefaultEvictor since 1.8.0: an unknown word, a protection listed twice, an old flag beside the lists",
        (
            "DefaultEvictor noEvictionPolicy",
            "DefaultEvictor podProtections.*",
            *(f"DefaultEvictor {flag}" for flag in sigs.OLD_FLAGS),
        ),
        ("duplicate", "exclusive", "required", *_WORDS),
        "starts",
        "Its validation is never called: the setting has no effect, and other pods than intended are protected.",
    ),
    Difference(
        "``namespaceLabelSelector`` without matchLabels, since 1.8.0",
        ("DefaultEvictor namespaceLabelSelector.*",),
        _SELECTOR,
        "starts",
        "It is not read.",
    ),
    Difference(
        "null as the first element of ``constraints``",
        ("RemovePodsViolatingTopologySpreadConstraint constraints[]",),
        ("not_in_list",),
        "starts",
        "The default stays in its place.",
    ),
    Difference(
        "an address whose port is 0 or not a number, since 1.8.0",
        ("healthzBindAddress", "metricsBindAddress"),
        ("malformed",),
        "starts",
        "The descheduler does not listen: the pod never becomes ready.",
    ),
    Difference(
        "CustomPriority: thresholds outside 0 to 100, include with exclude, an unknown mode, selectors without a name",
        (
            "CustomPriority evictionOrder[].*Threshold.*",
            "CustomPriority evictableNamespaces",
            "CustomPriority mode",
            "CustomPriority podSelectors[].name",
        ),
        ("out_of_range", "exclusive", "required", *_WORDS),
        "starts",
        "Koordinator has a validation for them, but never calls it.",
    ),
    _AFFINITY,
    _FIT,
    _KIND,
    _TEXT,
)

SIGS: tuple[Difference, ...] = (
    Difference(
        "an unknown key in the policy, in a profile or in an entry of pluginConfig",
        ("*",),
        _KEYS,
        "drops",
        "It is silently dropped; dryRun, for example, is a command-line flag: pods are evicted.",
    ),
    Difference("a duplicate key", ("",), ("duplicate_key",), "drops", "The last one is used."),
    Difference(
        "a duplicate plugin in pluginConfig",
        ("profiles[].pluginConfig[]",),
        ("duplicate",),
        "starts",
        "The first one is used.",
    ),
    Difference(
        "a plugin at presort or sort",
        ("profiles[].plugins.presort.enabled[]", "profiles[].plugins.sort.enabled[]"),
        ("wrong_point",),
        "starts",
        "These extension points never run.",
    ),
    Difference(
        "a missing apiVersion or kind, or an empty text",
        ("apiVersion", "kind", ""),
        ("wrong_document", "wrong_type"),
        "starts",
        "The text does not declare what it is; with an empty text, nothing is done.",
    ),
    Difference(
        "an unknown source of metrics",
        ("metricsProviders[].source", "LowNodeUtilization metricsUtilization.source"),
        ("required", *_WORDS),
        "starts",
        "No plugin gets metrics from it.",
    ),
    Difference(
        "``prometheus.url`` that is not an http or https URL",
        ("metricsProviders[].prometheus.url",),
        ("malformed",),
        "starts",
        "It cannot be reached: every cycle has an error.",
    ),
    Difference(
        "negative durations",
        ("DefaultEvictor minPodAge", "gracePeriodSeconds"),
        ("out_of_range",),
        "starts",
        "No pod is that young; the API server rejects evictions with a negative grace period.",
    ),
    Difference(
        "``protectedStorageClasses`` without a name while PodsWithPVC is not in extraEnabled",
        ("DefaultEvictor podProtections.config.PodsWithPVC.protectedStorageClasses[].name",),
        ("required",),
        "starts",
        "It is not read until PodsWithPVC is enabled, and then the descheduler exits.",
    ),
    _AFFINITY,
    _FIT,
    _KIND,
    _TEXT,
)

UNSEEN: tuple[tuple[str, str], ...] = (
    ("``priorityThreshold.name``", "a PriorityClass of that name must exist, otherwise the descheduler exits"),
    ("``clientConnection.kubeconfig``", "the file must exist in the descheduler's own container"),
    ("``healthzBindAddress``, ``metricsBindAddress``", "the port must be free"),
    (
        "PodMigrationJob, Reservation, NodeMetric",
        "their CRDs must be installed; LowNodeLoad waits for NodeMetric forever",
    ),
)
"""What depends on the cluster, and cannot be seen in a configuration."""

_ARGS = re.compile(r"profiles\[(\d+)\]\.pluginConfig\[(\d+)\]\.args\.?(.*)", re.DOTALL)


def of(schema: Schema) -> tuple[Difference, ...]:
    """The differences of a flavor."""
    return SIGS if schema.name == "sigs" else KOORDINATOR


def place(path: str, config: t.Any) -> str:
    """The path as in ``places``: no indices, and for arguments the plugin's name and the key."""
    found = _ARGS.fullmatch(path)
    if found:
        plugin = config["profiles"][int(found[1])]["pluginConfig"][int(found[2])]["name"]
        path = f"{plugin} {found[3]}"
    return re.sub(r"\[\d+\]", "[]", path)


def explaining(fault: Fault, config: t.Any, schema: Schema) -> Difference | None:
    """The listed difference that explains an error; ``None`` if the descheduler rejects it too, or it is not listed."""
    where = place(fault.path, config)
    for difference in of(schema):
        fits = fault.code in difference.rules and fault.real == difference.real
        if fits and any(_like(pattern, where) for pattern in difference.places):
            return difference
    return None


def _like(pattern: str, where: str) -> bool:
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), where, re.DOTALL))
