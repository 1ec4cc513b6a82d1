# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What renews the locks of a call while the steps of that call add to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import LeaseRenewer


class Nowhere:
    """A cluster that nobody asks."""

    place: Mapping[str, str] = {}
    refusals: Sequence[Any] = ()


class Lock:
    """A lock that is held, and beside which a step adds another one at each look at it."""

    heartbeat, named, behind, node = None, False, False, "n1"

    def __init__(self, locks: dict[str, Any]) -> None:
        self._locks, self.renewed = locks, 0

    def _looked_at(self) -> None:
        if len(self._locks) < 9:
            self._locks[f"n{len(self._locks) + 1}"] = Lock(self._locks)

    @property
    def held(self) -> bool:
        self._looked_at()
        return True

    @property
    def target(self) -> Ref:
        self._looked_at()
        return Ref("Lease", "node-n1", "ns")

    def renew(self) -> bool:
        self.renewed += 1
        return True


class Once:
    """Lets one round begin."""

    def __init__(self) -> None:
        self.rounds = 0

    def wait(self, _seconds: float) -> bool:
        self.rounds += 1
        return self.rounds > 1


@pytest.fixture
def renewer() -> LeaseRenewer:
    made = LeaseRenewer(Context(Nowhere()))  # type: ignore[arg-type]
    made.locks["n1"] = Lock(made.locks)  # type: ignore[assignment]
    return made


def test_a_lock_that_a_step_adds_meanwhile_ends_no_round(renewer: LeaseRenewer) -> None:
    (first,) = renewer.locks.values()
    renewer._stop = Once()  # type: ignore[assignment]
    renewer._renew_all()
    assert len(renewer.locks) > 1
    assert first.renewed == 1  # type: ignore[attr-defined]


def test_a_lock_that_a_step_adds_meanwhile_ends_no_look(renewer: LeaseRenewer) -> None:
    assert renewer.seen_in({}) == {}
    assert len(renewer.locks) > 1
