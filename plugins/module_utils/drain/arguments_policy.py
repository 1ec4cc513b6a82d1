# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a call may do to pods: the options that planning and draining share."""

from __future__ import annotations

import dataclasses
import os
import typing as t
from pathlib import Path

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    operators,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    pod_rules,
)

KOORDINATOR: dict[str, t.Any] = {
    name: {"type": "str", "no_log": False} for name in drain_policy.KOORDINATOR
}
"""The names of koord-descheduler's objects, where they are not to be found by what its pods run."""

CHOICES: dict[str, t.Any] = {
    "backend": {"type": "str", "choices": ["auto", "eviction", "koordinator"], "default": "auto"},
    "fallback": {"type": "str", "choices": ["eviction", "fail"], "default": "eviction"},
    "job_wait": {"type": "str", "default": "1m"},
    "force": {"type": "bool", "default": False},
    "delete_emptydir_data": {"type": "bool", "default": False},
    "ignore_daemonsets": {"type": "bool", "default": True},
    "disable_eviction": {"type": "bool", "default": False},
    "allow_interruption": {"type": "bool", "default": False},
    "node_autoscaler": {"type": "bool", "default": False},
    "operator_budget_wait": {"type": "str", "default": "10m"},
    "load_balancer_wait": {"type": "str", "default": "0"},
    "pod_selector": {"type": "str"},
    "namespaces": {"type": "list", "elements": "str"},
    "fenced": {"type": "list", "elements": "str"},
    **specs.RULES,
    **KOORDINATOR,
    **specs.BUDGETS,
}
DURATIONS = ("job_wait", "operator_budget_wait", "load_balancer_wait")
LISTS = ("namespaces", "fenced")
"""Which of ``CHOICES`` are what a spec calls so."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def combined(params: specs.Params) -> specs.Params:
    """The options, with those of ``CHOICES`` combined into one ``choices``.

    Raises:
        BadOption: a selector or a rule cannot be parsed, or ``job_wait`` is 0.
    """
    names = {field.name for field in dataclasses.fields(drain_policy.DrainPolicy)}
    chosen = {name: value for name, value in params.items() if name in names and value is not None}
    option_values.label_selector("pod_selector", chosen.get("pod_selector", ""))
    if chosen.get("job_wait") == 0:
        raise option_values.BadOption(
            "job_wait", 0, "more than 0 seconds; backend: eviction uses no jobs"
        )
    chosen["reactive_budgets"] = reactive_budgets(chosen.get("reactive_budgets"))
    chosen["rules"] = pod_rules_of(chosen.get("rules"))
    chosen["namespaces"] = tuple(chosen.get("namespaces", ()))
    chosen["fenced"] = tuple(chosen.get("fenced", ()))
    rest = {name: value for name, value in params.items() if name not in names}
    return {**rest, "choices": drain_policy.DrainPolicy(**chosen, self_pod=own_pod(os.environ))}


def reactive_budgets(
    given: t.Sequence[str] | None, option: str = "reactive_budgets"
) -> tuple[str, ...]:
    """The presets and label selectors of pods whose operators let them go.

    Raises:
        BadOption: an item is neither.
    """
    for text in given or ():
        if text not in operators.PRESETS:
            option_values.label_selector(option, text)
    return tuple(given or ())


def pod_rules_of(given: t.Sequence[t.Any] | None) -> tuple[pod_rules.Rule, ...]:
    """The rules of how pods are moved.

    Raises:
        BadOptions: names everything that is wrong with them.
    """
    rules, faults = pod_rules.read(given or ())
    if faults:
        raise option_values.BadOptions(faults)
    return rules


def notice(params: specs.Params) -> None:
    """Raise BadOption for a notice that nobody would get."""
    if params["planned_notice"] and not params["node_conditions"]:
        right = (
            "left out, or node_conditions: true, which sets the condition MaintenancePlanned "
            "that it waits after"
        )
        raise option_values.BadOption("planned_notice", params["planned_notice"], right)


def own_pod(environ: t.Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> objects.Ref | None:
    """The pod that this process runs in, according to its environment; ``None`` outside a cluster.

    The pod's name is its host name, unless it uses the host's network.
    Its UID cannot be read from inside.
    """
    if not environ.get("KUBERNETES_SERVICE_HOST") or not environ.get("HOSTNAME"):
        return None
    try:
        namespace = account.read_text().strip()
    except OSError:
        namespace = ""
    return objects.Ref("Pod", environ["HOSTNAME"], namespace, api_version="v1")
