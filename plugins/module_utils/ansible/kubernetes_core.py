# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Tasks written for ``kubernetes.core.k8s_drain`` or ``k8s_taint`` in which only the name of
the module was changed.

An option with the same meaning here is accepted. For any other, the call fails before its first
request and says what to write instead. The connection options are the same.
"""

from __future__ import annotations

import typing as t
from contextlib import suppress

from ansible.module_utils.parsing import convert_bool

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    connection_options,
    option_values,
)

with suppress(ImportError):
    import yaml

Arguments = t.Mapping[str, t.Any]


# The same in kubernetes.core 3.3 to 6.5 and its development version of August 2026.
OURS: t.Mapping[str, str] = {
    "state": "",
    "pod_selectors": "pod_selector",
    "label_selectors": "pod_selector",
    "delete_options.terminate_grace_period": "grace_period",
    "delete_options.force": "force",
    "delete_options.ignore_daemonsets": "ignore_daemonsets",
    "delete_options.delete_emptydir_data": "delete_emptydir_data",
    "delete_options.disable_eviction": "disable_eviction",
    "delete_options.wait_timeout": "timeout",
    "delete_options.wait_sleep": "",
}
"""What ``k8s_drain`` has and ``node_drain`` calls otherwise; empty: it has nothing for it.
The guide explains each.
"""
STATES: t.Mapping[str, tuple[tuple[str, Arguments], ...]] = {
    "cordon": (("node_cordon", {"state": "cordoned"}),),
    "drain": (
        ("node_cordon", {"state": "cordoned"}),
        ("pdb_guard", {"state": "present"}),
        ("node_drain", {}),
    ),
    "uncordon": (("pdb_guard", {"state": "absent"}), ("node_cordon", {"state": "uncordoned"})),
}
"""The tasks in place of each state of ``k8s_drain``: modules,
and their arguments besides ``nodes``.
"""

INNER = "delete_options"


def of_drain(arguments: Arguments) -> str:
    """What to write instead of a task for ``k8s_drain``; empty if the task can stay as it is."""
    given = _flat(arguments)
    # Another state is one of node_cordon.
    state = str(given.get("state")) if str(given.get("state")) in STATES else ""
    found = [
        f"state: {state}" if name == "state" else name
        for name in given
        if (name in OURS and (name != "state" or state)) or name == INNER
    ]
    if not found:
        return ""
    nodes = list(option_values.names(arguments.get("nodes", arguments.get("name"))))
    tasks = []
    for module, own in STATES[state or "drain"]:
        moved = _moved(given) if module == "node_drain" else {}
        tasks.append(_task(module, {"nodes": nodes, **own, **moved}))
    kept = ", with the same connection options" if connection_options.given(arguments) else ""
    lines = "\n".join(tasks)
    return (
        f"Written for kubernetes.core.k8s_drain: {', '.join(found)}. Instead of this task "
        f"write{kept}:\n{lines}"
    )


def of_taint(arguments: Arguments) -> str:
    """What to write instead of an option of ``k8s_taint``; empty if the task can stay as it is."""
    if "replace" not in arguments:
        return ""
    replaces = convert_bool.boolean(arguments["replace"], strict=False)
    found = f"Written for kubernetes.core.k8s_taint: replace: {str(replaces).lower()}."
    if replaces and arguments.get("state") != "absent":
        return f"{found} Instead of it write:\nstate: exact"
    return f"{found} Leave it out."


def _flat(arguments: Arguments) -> dict[str, t.Any]:
    """The arguments, with those of ``delete_options`` under their full names."""
    inner = arguments.get(INNER)
    if not inner or not isinstance(inner, t.Mapping):
        return dict(arguments)
    outer = {name: value for name, value in arguments.items() if name != INNER}
    return {**outer, **{f"{INNER}.{name}": value for name, value in inner.items()}}


def _moved(given: Arguments) -> dict[str, t.Any]:
    """Their arguments under our names, for ``node_drain``."""
    moved = {ours: given[name] for name, ours in OURS.items() if ours and name in given}
    if isinstance(moved.get("pod_selector"), (list, tuple)):
        moved["pod_selector"] = ",".join(map(str, moved["pod_selector"]))
    if str(moved.get("timeout")) == "0":
        del moved["timeout"]
    return moved


def _task(module: str, arguments: Arguments) -> str:
    """The task on one line."""
    text = yaml.safe_dump(
        dict(arguments), default_flow_style=True, sort_keys=False, width=float("inf")
    )
    return f"- kubeops.node_maintenance.{module}: {text.strip()}"
