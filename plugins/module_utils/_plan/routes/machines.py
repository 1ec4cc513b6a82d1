# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is to be said of pods that run KubeVirt's virtual machines, by what their eviction leads to."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    budgets,
    operators,
    option,
    reasons,
    virtual_machines,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import cases

ASKS = "sets evacuationNodeName of the machine once its eviction is tried, and another controller acts on that"
"""For the strategy External."""


def machine_of(case: cases.Case) -> virtual_machines.Machine | None:
    """The machine, where its eviction is asked for and what that leads to can be known."""
    if case.choices.disable_eviction:
        return None
    return virtual_machines.machine_of(case.context.snapshot, case.pod)


def denied(case: cases.Case) -> reasons.Reason | None:
    """That KubeVirt denies the eviction for good; no consent changes that."""
    machine = machine_of(case)
    if machine is None or machine.fate != "stays":
        return None
    message = (
        f"KubeVirt denies its eviction: {machine.ref} has the eviction strategy LiveMigrate and cannot be migrated "
        f"({machine.why.rstrip('.')})."
    )
    remedy = (
        "Make it migratable, or stop it by hand, or set its evictionStrategy to LiveMigrateIfPossible: then "
        f"{option.options(allow_interruption=True)} shuts it down."
    )
    return reasons.Reason("not_migratable", message, remedy)


def waited_for(case: cases.Case) -> budgets.Verdict | None:
    """That the pod stays until KubeVirt, or who acts on its behalf, has moved the machine."""
    machine = machine_of(case)
    if machine is None or machine.fate not in ("migrates", "external"):
        return None
    preset = operators.PRESETS["kubevirt"]
    acts = preset.acts if machine.fate == "migrates" else ASKS
    return budgets.of_operator(case.pod, None, operators.Operator(preset.project, acts, machine.ref))


def shut_down(case: cases.Case) -> str:
    """Why its eviction shuts the machine down; empty if it does not, or if that cannot be known."""
    machine = machine_of(case)
    if machine is None or machine.fate != "stops":
        return ""
    why = f" and it cannot be migrated ({machine.why.rstrip('.')})" if machine.strategy != "None" else ""
    return f"{machine.ref} is shut down by an eviction: its eviction strategy is {machine.strategy}{why}."


def unread(case: cases.Case) -> str:
    """What would tell more of the pod, as the end of a remedy."""
    if case.choices.disable_eviction or not virtual_machines.runs_in(case.pod) or machine_of(case):
        return ""
    return (
        " Whether KubeVirt would migrate it instead is known where list on virtualmachineinstances.kubevirt.io and "
        "kubevirts.kubevirt.io is granted."
    )
