# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`descheduler_config` on the real descheduler while others work on the same one, before, meanwhile or at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from support import koordinator, rollouts
from support.lab import Lab
from support.plays import Player
from support.rollouts import MODULE, roll, slower


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.fixture(scope="module")
def chart(lab: Lab) -> str:
    """The configuration that the lab brings."""
    text: str = lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
    return text


@pytest.fixture(autouse=True)
def as_found(lab: Lab, chart: str) -> Iterator[None]:
    with rollouts.as_found(lab, chart):
        yield


@pytest.mark.whole
def test_what_somebody_else_applied_and_started_is_repaired_in_one_run(lab: Lab, play: Player, chart: str) -> None:
    new = slower(chart, 110)
    assert roll(play, new)["drifted"] == []
    for name, seen in (("", ["config_map", "running"]), ("blind", ["config_map"])):
        lab.api.patch(koordinator.CONFIG, {"data": {koordinator.KEY: chart}})
        rollouts.restart_by_hand(lab)
        with rollouts.somebody(lab, name) if name else contextlib.nullcontext():
            env = play.impersonating(name) if name else {}
            run = play.module_start(MODULE, env=env, config=new, timeout="60s").wait()
        done = run.answer
        assert (done.get("outcome"), done.get("drifted")) == ("restarted", seen), run.text
        assert done["running_config_matches"] is (None if name else True)
        again = roll(play, new)
        assert (again["outcome"], again["drifted"], again["proof"]) == ("unchanged", [], "configz")
