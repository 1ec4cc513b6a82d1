# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What becomes of a virtual machine of KubeVirt when its pod is evicted.

From KubeVirt 1.6 on no budget covers such a pod: a webhook on pods/eviction decides by the
machine's eviction strategy and its condition LiveMigratable (kubevirt d923fdb:
``pod-eviction-admitter.go``, ``migrations.VMIEvictionStrategy``). Earlier versions decide the same
way, and keep what is not to go by a budget, too.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)

KINDS = ("virtual_machines", "kubevirts")
"""What has to be read to know it."""
KIND, GROUP = "VirtualMachineInstance", "kubevirt.io"

OnEviction = t.Literal["migrates", "external", "stops", "stays"]
"""``migrates``: to another node, without an interruption. ``external``: another controller is asked
to act. ``stops``: it is shut down, as the eviction is admitted. ``stays``:
the eviction is denied for good.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual machine: ``why`` is what its condition LiveMigratable says,
    where that is not True.
    """

    ref: objects.Ref
    strategy: str
    migratable: bool
    why: str = ""

    @property
    def on_eviction(self) -> OnEviction:
        """What an eviction of its pod leads to."""
        match self.strategy:
            case "External":
                return "external"
            case "LiveMigrate":
                return "migrates" if self.migratable else "stays"
            case "LiveMigrateIfPossible" if self.migratable:
                return "migrates"
        return "stops"


def runs_in(pod: objects.Pod) -> bool:
    """Whether the pod runs a virtual machine."""
    owner = pod.owner
    return owner is not None and owner.kind == KIND and owner.api_version.partition("/")[0] == GROUP


def machine_of(snapshot: snapshots.Snapshot, pod: objects.Pod) -> Machine | None:
    """The machine in the pod; ``None`` if there is none, or it or its strategy cannot be read.

    A strategy that the machine does not name is that of the KubeVirt object,
    and None where that does not name one.
    """
    if not runs_in(pod) or pod.owner is None:
        return None
    raw = snapshot.virtual_machine(pod.owner.uid)
    if raw is None:
        return None
    strategy = (raw.get("spec") or {}).get("evictionStrategy")
    if not strategy and not snapshot.kubevirts:
        return None
    for settings in () if strategy else snapshot.kubevirts:
        strategy = ((settings.get("spec") or {}).get("configuration") or {}).get("evictionStrategy")
    conditions = (raw.get("status") or {}).get("conditions") or ()
    found = next((found for found in conditions if found["type"] == "LiveMigratable"), None)
    migratable = found is not None and found.get("status") == "True"
    condition = found or {}
    why = condition.get("message") or condition.get("reason") or "nothing says that it can be"
    return Machine(pod.owner, strategy or "None", migratable, "" if migratable else why)
