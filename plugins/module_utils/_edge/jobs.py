# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``pod_migration_job``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors, faces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import (
    check,
    migration_jobs,
    targets,
    typed,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import module

_ONE_WAY = "pods, or nodes and/or pod_selector, or name; not several of them"


def _prepared(own: faces.Own, environ: t.Mapping[str, str]) -> faces.Own:
    """The pods as a selection and all about the job as a wish.

    Raises:
        BadOptions: some of the options are not valid; all of those are named.
    """
    del environ
    template: objects.Raw | None = own["reservation_template"]
    faults = [*_targets(own), *_names(own), *_reservation(own)]
    ttl = check.ttl(own["ttl"])
    if isinstance(ttl, str):
        faults.append(("ttl", own["ttl"], ttl))
    faults += check.delete_options(own["delete_options"] or {})
    if template is not None:
        faults += check.template(template)
    selector = None
    try:
        selector = selectors.parse(own["pod_selector"]) if own["pod_selector"] else None
    except ValueError as error:
        faults.append(("pod_selector", own["pod_selector"], str(error)))
    if faults:
        raise errors.BadOptions(faults)
    return {
        "state": own["state"],
        "selection": targets.Selection(_pods(own), own["nodes"], selector, own["namespaces"]),
        "name": own["name"] or "",
        "wish": migration_jobs.Wish(
            mode=own["mode"],
            paused=own["paused"],
            ttl=t.cast("float | None", ttl),
            reservation=own["reservation"] or "",
            delete_options=own["delete_options"] or {},
            reason=own["reason"] or "",
            trigger=own["trigger"] or "",
        ),
        "template": template,
        "koordinator_namespace": own["koordinator_namespace"] or "",
        "wait": own["wait"],
        "timeout": own["timeout"],
    }


def _pods(own: faces.Own) -> tuple[objects.Ref, ...]:
    found = [objects.Ref("Pod", pod["name"], pod["namespace"], pod.get("uid") or "", "v1") for pod in own["pods"] or ()]
    return tuple(dict.fromkeys(found))


def _targets(own: faces.Own) -> t.Iterator[typed.Fault]:
    by_place = bool(own["nodes"] or own["pod_selector"])
    present = own["state"] == "present"
    if own["pods"] and by_place:
        yield "pods", [pod["name"] for pod in own["pods"]], _ONE_WAY
    if own["name"] and by_place:
        yield "name", own["name"], _ONE_WAY
    if own["name"] and own["pods"] and (len(own["pods"]) > 1 or not present):
        yield "name", own["name"], "the job's name alone, or, with state present, with the one pod it moves"
    if own["namespaces"] and not by_place:
        yield "namespaces", list(own["namespaces"]), "nodes or pod_selector with it"
    if not (own["pods"] or by_place or own["name"] or (own["run"] and not present)):
        more = "" if present else ", or run for all jobs of a run"
        yield "pods", own["pods"], f"one of pods, nodes, pod_selector and name{more}"
    seen: dict[tuple[str, str], str] = {}
    for index, pod in enumerate(own["pods"] or ()):
        key = (pod["namespace"], pod["name"])
        if seen.setdefault(key, pod.get("uid") or "") != (pod.get("uid") or ""):
            yield f"pods[{index}].uid", pod.get("uid"), "each pod once"


def _names(own: faces.Own) -> t.Iterator[typed.Fault]:
    for option in ("name", "reservation"):
        if own[option]:
            yield from check.name(option, own[option])
    for index, pod in enumerate(own["pods"] or ()):
        for part in ("namespace", "name"):
            yield from check.name(f"pods[{index}].{part}", pod[part])


def _reservation(own: faces.Own) -> t.Iterator[typed.Fault]:
    template = own["reservation_template"]
    if own["state"] != "present":
        return
    if own["mode"] == "EvictDirectly" and (own["reservation"] or template is not None):
        yield "mode", own["mode"], "ReservationFirst with a Reservation or its template"
    if own["reservation"] and len(own["pods"] or ()) != 1:
        yield "reservation", own["reservation"], "one pod in pods with it: a Reservation serves one"
    if template is None:
        return
    metadata, spec = template.get("metadata"), template.get("spec")
    name = metadata.get("name") if isinstance(metadata, t.Mapping) else None
    if own["reservation"] and name not in (None, "", own["reservation"]):
        yield "reservation_template.metadata.name", name, f"{own['reservation']}, as in reservation, or nothing"
    if name and not own["reservation"] and len(own["pods"] or ()) != 1:
        yield "reservation_template.metadata.name", name, "no name: each job makes a Reservation of its own"
    inner = (spec.get("template") or {}) if isinstance(spec, t.Mapping) else {}
    pod_spec = inner.get("spec") if isinstance(inner, t.Mapping) else None
    if isinstance(pod_spec, t.Mapping) and pod_spec.get("nodeName") and not own["reservation"]:
        yield (
            "reservation_template.spec.template.spec.nodeName",
            pod_spec["nodeName"],
            "a nodeSelector or affinity (the controller clears nodeName), or reservation as well",
        )


FACE = faces.ClusterFace(
    name="pod_migration_job",
    options={
        "state": {"type": "str", "choices": ["present", "approved", "rejected", "absent"], "default": "present"},
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
        "mode": {"type": "str", "choices": list(migration_jobs.MODES), "default": "ReservationFirst"},
        "paused": {"type": "bool", "default": False},
        "ttl": {"type": "str", "default": "5m"},
        "reservation": {"type": "str"},
        "reservation_template": {"type": "dict"},
        "delete_options": {"type": "dict"},
        "reason": {"type": "str"},
        "trigger": {"type": "str"},
        "koordinator_namespace": {"type": "str"},
        "wait": {"type": "bool", "default": True},
        "timeout": {"type": "str"},
        "run": {"type": "str"},
    },
    durations=("timeout",),
    lists=("nodes", "namespaces"),
    prepare=_prepared,
    engine=lambda ctx, own: module.jobs(ctx, faces.built(module.JobOptions, own)),
)
