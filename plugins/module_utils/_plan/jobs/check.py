# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is wrong with the options for a job, checked before any write.

The CRD takes any text for ``ttl`` and ``mode`` and anything at all in the Reservation's template. A ttl or a
template that cannot be decoded stops the controller for every job in the cluster, a misspelt mode is taken for
ReservationFirst; so all of it is checked here.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import typed

TTL_WORDS = 'a duration as Go writes it, such as "90s", "5m" or "1h30m", or whole seconds; 0 for none'
SHORTEST_TTL = 1.0

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME_WORDS = "a name of small letters, digits, '-' and '.', 253 characters at most"


def ttl(value: t.Any) -> float | str | None:
    """The ttl in seconds, ``None`` for none (0), or the text that says what would be right."""
    if isinstance(value, bool):
        return TTL_WORDS
    text = str(value).strip()
    length = float(text) if text.isascii() and text.isdigit() else typed.duration(text)
    if length is None or length < 0 or 0 < length < SHORTEST_TTL:
        return TTL_WORDS
    return length or None


def name(option: str, value: str) -> t.Iterator[typed.Fault]:
    """What is wrong with the name of a job or a Reservation."""
    if len(value) > 253 or not _NAME.fullmatch(value):
        yield option, value, _NAME_WORDS


def delete_options(value: t.Mapping[str, t.Any], path: str = "delete_options") -> t.Iterator[typed.Fault]:
    """What is wrong with the options of the eviction."""
    yield from typed.faults("DeleteOptions", value, path)
    grace = value.get("gracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        yield f"{path}.gracePeriodSeconds", grace, "0 or more"
    policy = value.get("propagationPolicy")
    if isinstance(policy, str) and policy not in ("Orphan", "Background", "Foreground"):
        yield f"{path}.propagationPolicy", policy, "Orphan, Background or Foreground"
    preconditions = value.get("preconditions")
    if isinstance(preconditions, t.Mapping) and preconditions.get("uid"):
        yield f"{path}.preconditions.uid", preconditions["uid"], "nothing: it is always the pod's own, see pods[].uid"
    if value.get("dryRun"):
        yield f"{path}.dryRun", value["dryRun"], "nothing: the job would wait for the pod's end until its ttl"


def template(value: t.Mapping[str, t.Any], path: str = "reservation_template") -> t.Iterator[typed.Fault]:
    """What is wrong with a Reservation's ``metadata`` and ``spec``, as a job's template or to create one beforehand."""
    rest = {key: item for key, item in value.items() if key not in ("apiVersion", "kind")}
    yield from typed.faults("ReservationTemplateSpec", rest, path)
    spec = value.get("spec")
    if not spec:
        yield path, value, "metadata and spec of a Reservation; spec is missing"
    if not isinstance(spec, t.Mapping):
        return
    metadata = value.get("metadata")
    if isinstance(metadata, t.Mapping) and isinstance(metadata.get("name"), str):
        yield from name(f"{path}.metadata.name", metadata["name"])
    yield from _reservation(spec, f"{path}.spec")


def _reservation(spec: t.Mapping[str, t.Any], path: str) -> t.Iterator[typed.Fault]:
    if spec.get("ttl") is not None and spec.get("expires") is not None:
        yield f"{path}.expires", spec["expires"], "ttl or expires, not both"
    if spec.get("allocateOnce") is False:
        yield f"{path}.allocateOnce", False, "true: the job would take an earlier owner for its pod"
    policy = spec.get("allocatePolicy")
    if isinstance(policy, str) and policy not in ("", "Aligned", "Restricted"):
        yield f"{path}.allocatePolicy", policy, "Aligned or Restricted"
    owners = spec.get("owners")
    for index, owner in enumerate(owners if isinstance(owners, list) else ()):
        here = f"{path}.owners[{index}]"
        if isinstance(owner, t.Mapping):
            yield from _owner(owner, here)


def _owner(owner: t.Mapping[str, t.Any], path: str) -> t.Iterator[typed.Fault]:
    if not owner:
        yield path, dict(owner), "controller or labelSelector"
    if set(owner) == {"object"}:
        yield path, dict(owner), "controller or labelSelector; with an object alone the job ends without moving it"
    controller = owner.get("controller")
    if isinstance(controller, t.Mapping):
        missing = [key for key in ("apiVersion", "kind", "name", "uid") if not controller.get(key)]
        if missing:
            yield f"{path}.controller", dict(controller), f"{', '.join(missing)} as well"
