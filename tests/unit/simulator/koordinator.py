# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Koordinator as far as a drain by jobs meets it: Reservations are placed, PodMigrationJobs pass and are worked off."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import PODS, Controller, key_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key

GROUP = "scheduling.koordinator.sh"


class Reservations(Controller):
    name = "reservations"
    watches = (kinds.RESERVATIONS.resource,)

    def sync(self, key: Key) -> None:
        return


class Migrations(Controller):
    name = "migrations"
    watches = (kinds.PODMIGRATIONJOBS.resource, PODS)

    def keys(self, event: Event) -> t.Iterable[Key]:
        return (key_of(event.raw),) if event.resource != PODS else ()

    def sync(self, key: Key) -> None:
        return
