# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``pod_migration_job``."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    migration_jobs,
    run_module,
    targets,
    typed,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

_ONE_WAY = "only one of pods, nodes with or without pod_selector, and name"


def _prepared(params: specs.Params) -> specs.Params:
    """The engine's options: a selection of pods and a specification of their jobs.

    Raises:
        BadOptions: options are invalid; names all of them.
    """
    template: objects.Raw | None = params["reservation_template"]
    faults = [*_targets(params), *_names(params), *_reservation(params)]
    ttl = typed.ttl(params["ttl"])
    if isinstance(ttl, str):
        faults.append(("ttl", params["ttl"], ttl))
    faults += typed.delete_options(params["delete_options"] or {})
    if template is not None:
        faults += typed.template(template)
    selector = None
    try:
        selector = selectors.parse(params["pod_selector"]) if params["pod_selector"] else None
    except ValueError as error:
        faults.append(("pod_selector", params["pod_selector"], str(error)))
    if faults:
        raise option_values.BadOptions(faults)
    return {
        "state": params["state"],
        "selection": targets.Selection(
            _pods(params), params["nodes"], selector, params["namespaces"]
        ),
        "name": params["name"] or "",
        "settings": migration_jobs.JobSettings(
            mode=params["mode"],
            paused=params["paused"],
            ttl=t.cast("float | None", ttl),
            reservation=params["reservation"] or "",
            delete_options=params["delete_options"] or {},
            reason=params["reason"] or "",
            trigger=params["trigger"] or "",
        ),
        "template": template and typed.used(template),
        "koordinator": installation.Location(
            *(params[name] or "" for name in drain_policy.KOORDINATOR)
        ),
        "wait": params["wait"],
        "timeout": params["timeout"],
    }


def _pods(params: specs.Params) -> tuple[objects.Ref, ...]:
    found = [
        objects.Ref("Pod", pod["name"], pod["namespace"], pod.get("uid") or "", "v1")
        for pod in params["pods"] or ()
    ]
    return tuple(dict.fromkeys(found))


def _targets(params: specs.Params) -> t.Iterator[typed.Fault]:
    by_place = bool(params["nodes"] or params["pod_selector"])
    present = params["state"] == "present"
    if params["pods"] and by_place:
        yield "pods", [pod["name"] for pod in params["pods"]], _ONE_WAY
    if params["name"] and by_place:
        yield "name", params["name"], _ONE_WAY
    if params["name"] and params["pods"] and (len(params["pods"]) > 1 or not present):
        yield "name", params["name"], "no pods with it, or one pod with state present"
    if params["namespaces"] and not by_place:
        yield "namespaces", list(params["namespaces"]), "nodes or pod_selector as well"
    if not (params["pods"] or by_place or params["name"] or (params["run"] and not present)):
        more = "" if present else ", or run for all jobs of the run"
        yield "pods", params["pods"], f"one of pods, nodes, pod_selector and name{more}"
    seen: dict[tuple[str, str], str] = {}
    for index, pod in enumerate(params["pods"] or ()):
        key = (pod["namespace"], pod["name"])
        if seen.setdefault(key, pod.get("uid") or "") != (pod.get("uid") or ""):
            yield f"pods[{index}].uid", pod.get("uid"), "each pod only once"


def _names(params: specs.Params) -> t.Iterator[typed.Fault]:
    for option in ("name", "reservation"):
        if params[option]:
            yield from typed.name(option, params[option])
    for index, pod in enumerate(params["pods"] or ()):
        for part in ("namespace", "name"):
            yield from typed.name(f"pods[{index}].{part}", pod[part])


def _reservation(params: specs.Params) -> t.Iterator[typed.Fault]:
    template = params["reservation_template"]
    if params["state"] != "present":
        return
    if params["mode"] == "EvictDirectly" and (params["reservation"] or template is not None):
        yield "mode", params["mode"], "ReservationFirst, because a Reservation is given"
    if params["reservation"] and len(params["pods"] or ()) != 1:
        yield (
            "reservation",
            params["reservation"],
            "exactly one pod in pods, because a Reservation serves one pod",
        )
    if template is None:
        return
    metadata, spec = template.get("metadata"), template.get("spec")
    name = metadata.get("name") if isinstance(metadata, t.Mapping) else None
    if params["reservation"] and name not in (None, "", params["reservation"]):
        yield (
            "reservation_template.metadata.name",
            name,
            f"no name, or {params['reservation']} as in reservation",
        )
    if name and not params["reservation"] and len(params["pods"] or ()) != 1:
        yield (
            "reservation_template.metadata.name",
            name,
            "no name, because each job creates its own Reservation",
        )
    inner = (spec.get("template") or {}) if isinstance(spec, t.Mapping) else {}
    pod_spec = inner.get("spec") if isinstance(inner, t.Mapping) else None
    if isinstance(pod_spec, t.Mapping) and pod_spec.get("nodeName") and not params["reservation"]:
        yield (
            "reservation_template.spec.template.spec.nodeName",
            pod_spec["nodeName"],
            "a nodeSelector or affinity instead, because the controller clears nodeName, or "
            "reservation as well",
        )


SPEC = specs.ClusterModuleSpec(
    name="pod_migration_job",
    options={
        "state": {
            "type": "str",
            "choices": ["present", "approved", "rejected", "absent"],
            "default": "present",
        },
        "pods": {
            "type": "list",
            "elements": "dict",
            "options": {
                "namespace": {"type": "str", "required": True},
                "name": {"type": "str", "required": True},
                "uid": {"type": "str"},
            },
        },
        "nodes": {"type": "list", "elements": "str"},
        "pod_selector": {"type": "str"},
        "namespaces": {"type": "list", "elements": "str"},
        "name": {"type": "str"},
        "mode": {
            "type": "str",
            "choices": list(migration_jobs.MODES),
            "default": "ReservationFirst",
        },
        "paused": {"type": "bool", "default": False},
        "ttl": {"type": "str", "default": "5m"},
        "reservation": {"type": "str"},
        "reservation_template": {"type": "dict"},
        "delete_options": {"type": "dict"},
        "reason": {"type": "str"},
        "trigger": {"type": "str"},
        **arguments_policy.KOORDINATOR,
        "wait": {"type": "bool", "default": True},
        "timeout": {"type": "str"},
        "run": {"type": "str"},
    },
    durations=("timeout",),
    lists=("nodes", "namespaces"),
    lacking=functools.partial(run_permissions.lacking, steps=("read", "jobs")),
    prepare=_prepared,
    engine=specs.engine(run_module.jobs, run_module.JobOptions),
)
