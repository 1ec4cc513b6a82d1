# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the caller allows to be done to pods: the options that planning and draining share."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors, faces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    budgets,
    objects,
    pod_plan,
    selectors,
)

CHOICES: dict[str, t.Any] = {
    "backend": {"type": "str", "choices": ["auto", "eviction", "koordinator"], "default": "auto"},
    "fallback": {"type": "str", "choices": ["eviction", "fail"], "default": "eviction"},
    "force": {"type": "bool", "default": False},
    "delete_emptydir_data": {"type": "bool", "default": False},
    "ignore_daemonsets": {"type": "bool", "default": True},
    "disable_eviction": {"type": "bool", "default": False},
    "allow_interruption": {"type": "bool", "default": False},
    "swap_blocked": {"type": "bool", "default": False},
    "pod_selector": {"type": "str"},
    "namespaces": {"type": "list", "elements": "str"},
    "reactive_budgets": {"type": "list", "elements": "str"},
    "fenced": {"type": "list", "elements": "str"},
}

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def split(own: faces.Own, environ: t.Mapping[str, str]) -> faces.Own:
    """The options with those of ``CHOICES`` gathered into ``choices``.

    Raises:
        BadOption: a selector is none.
    """
    names = {field.name for field in dataclasses.fields(pod_plan.Choices)}
    chosen = {name: value for name, value in own.items() if name in names and value is not None}
    checked("pod_selector", chosen.get("pod_selector", ""))
    chosen["reactive_budgets"] = reactive(chosen.get("reactive_budgets"))
    chosen["namespaces"] = tuple(chosen.get("namespaces", ()))
    chosen["fenced"] = tuple(chosen.get("fenced", ()))
    rest = {name: value for name, value in own.items() if name not in names}
    return {**rest, "choices": pod_plan.Choices(**chosen, self_pod=myself(environ))}


def reactive(given: t.Sequence[str] | None) -> tuple[str, ...]:
    """The presets and selectors of reactive budgets.

    Raises:
        BadOption: one of them is neither.
    """
    for text in given or ():
        if text not in budgets.REACTIVE:
            checked("reactive_budgets", text)
    return tuple(given or ())


def checked(option: str, text: str) -> str:
    """The label selector as it is.

    Raises:
        BadOption: it is none.
    """
    try:
        selectors.parse(text)
    except ValueError as error:
        raise errors.BadOption(option, text, f"a label selector such as app=web,tier in (a, b) ({error})") from None
    return text


def myself(environ: t.Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> objects.Ref | None:
    """The pod that this runs in, as far as its environment tells; ``None`` outside of any cluster.

    The pod's name is its host name unless it uses the host's network; the UID is nowhere to be read.
    """
    if not environ.get("KUBERNETES_SERVICE_HOST") or not environ.get("HOSTNAME"):
        return None
    try:
        namespace = account.read_text().strip()
    except OSError:
        namespace = ""
    return objects.Ref("Pod", environ["HOSTNAME"], namespace, api_version="v1")
