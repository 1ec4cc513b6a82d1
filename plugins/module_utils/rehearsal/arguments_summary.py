# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the playbook ``rehearse`` hands to the run on the copy, and what it tells of it."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    connection_options,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    notes,
    outcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import call_results

VARIABLES = (
    *("snapshot", "only_save", "hash_key", "lab", "keep"),
    *("stop", "tasks_seconds", "compare", "real", "timeout"),
)
PREFIX = "rehearse_"
INHERITED = (
    *connection_options.VARIABLES.values(),
    *connection_options.HEADER_VARIABLES.values(),
    "KUBECONFIG",
    "ANSIBLE_INVENTORY",
)
"""Variables of the environment that lead to real clusters and hosts."""


def rehearsal_input(
    answers: call_results.Answers,
    *,
    names: t.Iterable[str] = (),
    wanted: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """``wrong``: what is wrong with variables of the playbook, and with the input of the run."""
    wrong = []
    for name in sorted(names):
        if name.removeprefix(PREFIX) not in VARIABLES:
            known = ", ".join(PREFIX + variable for variable in VARIABLES)
            wrong.append(f"{name} is not a variable of this playbook. The variables are {known}.")
    if wanted is not None and answers["copied"].get("names") is not None:
        wrong += outcome.wrong(wanted, answers["copied"]["names"])
    return {"wrong": wrong}


def rehearsal_run(
    answers: call_results.Answers,
    *,
    wanted: t.Mapping[str, t.Any],
    folder: str,
    tasks: str,
    lab: t.Mapping[str, t.Any],
    python: str,
    seconds: float | str = 0,
) -> dict[str, t.Any]:
    """The ``variables``, ``inventory`` and ``environment`` of the run, and what is
    ``not_rehearsed`` of the input.

    ``answers`` has the variables as they were ``given``, and what ``copied`` the cluster.
    """
    names = answers["copied"]["names"]
    made, gaps = outcome.of_copy(answers["given"], wanted, names, report_dir=folder, tasks=tasks)
    work = {"seconds": float(seconds), "reboot": bool(wanted["reboot"]), "lab": dict(lab.items())}
    local = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": python,
    }
    return {
        "variables": {**made, "_maintain_rehearsed": work},
        "inventory": {"all": {"hosts": {name: dict(local) for name in names.values()}}},
        "environment": {**dict.fromkeys(INHERITED, ""), "K8S_AUTH_KUBECONFIG": lab["kubeconfig"]},
        "not_rehearsed": notes.sentences(gaps),
    }


def rehearsal(
    answers: call_results.Answers, *, not_rehearsed: t.Iterable[str] = ()
) -> dict[str, t.Any]:
    """A rehearsal from its ``report``, with the ``lines`` for the terminal."""
    try:
        found = outcome.rehearsed(answers["report"], list(not_rehearsed))
    except outcome.NoReportError as error:
        return {"wrong": str(error), "found": {}, "lines": []}
    return {"wrong": "", "found": found, "lines": outcome.lines(found)}


def comparison(answers: call_results.Answers) -> dict[str, t.Any]:
    """A rehearsal (``before``) beside the ``report`` of the real run."""
    try:
        found = outcome.compared(answers["before"], outcome.rehearsed(answers["report"]))
    except outcome.NoReportError as error:
        return {"wrong": str(error), "found": {}, "lines": []}
    return {"wrong": "", "found": found, "lines": found["lines"]}
