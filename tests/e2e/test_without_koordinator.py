# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster that has nothing of Koordinator."""

from __future__ import annotations

from support.arena import Arena
from support.plays import Player


def test_a_job_in_a_cluster_without_koordinator(arena: Arena, play: Player) -> None:
    run = play.module("pod_migration_job", pods=[{"namespace": arena.name, "name": "web-0"}])
    assert not run.ok
    assert not run.changed
    [finding] = run.answer["findings"]
    assert finding["code"] == "no_crd"
    assert "podmigrationjobs.scheduling.koordinator.sh" in finding["message"]
    assert "backend: eviction" in finding["remedy"]
