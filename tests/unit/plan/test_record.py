# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.node_records import Record

DRAINED = Record("r1", "n1", "tina@here", "", "2026-11-21T01:00:00.000Z", "drained", "u", "ns/l", {})


@pytest.mark.parametrize(
    ("run", "nonce", "really", "foreseen", "parked"),
    [
        pytest.param("r1", "n1", False, False, False, id="this start"),
        pytest.param("r2", "n1", False, False, False, id="a run that took the node up"),
        pytest.param("r1", "n2", True, False, False, id="a later start of the run"),
        pytest.param("", "n1", False, False, False, id="this start, whatever the run"),
        pytest.param("", "n2", True, False, False, id="another start, whatever the run"),
        pytest.param("", "", True, False, False, id="a call by hand"),
        pytest.param("r1", "", True, False, False, id="a call by hand that names the run"),
        pytest.param("r2", "", True, True, False, id="another run by its id"),
        pytest.param("r2", "n2", True, True, False, id="another run"),
    ],
)
def test_whose_a_node_is(run: str, nonce: str, really: bool, foreseen: bool, parked: bool) -> None:
    """In check mode a start of the same run would have adopted the node, and any run a parked one."""
    assert DRAINED.foreign_to(run, nonce) is really
    assert DRAINED.foreign_to(run, nonce, check=True) is foreseen
    assert DRAINED.at("parked").foreign_to(run, nonce, check=True) is parked


@pytest.mark.parametrize(
    ("run", "nonce", "foreign"),
    [("", "", False), ("r1", "", False), ("r2", "", True), ("r1", "n1", True), ("", "n1", True)],
)
def test_records_made_by_hand_are_of_calls_by_hand(run: str, nonce: str, foreign: bool) -> None:
    assert replace(DRAINED, nonce="").foreign_to(run, nonce) is foreign
