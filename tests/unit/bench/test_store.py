# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which groups the published results are put together of."""

from __future__ import annotations

import json
from pathlib import Path

from bench import store, targets
from bench.trials import OURS, Trial


def measured(
    group: str, boot: str = "now", date: str = "2026-11-20", rounds: int = 3, **versions: str
) -> store.Measured:
    known = [
        Trial(targets.SURGE, OURS, number, "drained", {"requests": 5}, {"get": 5}, 0.1) for number in range(rounds)
    ]
    return store.Measured(group, date, boot, {"cores": 2, "load_at_start": 0.5}, versions, known)


def test_groups_come_back_as_they_were_kept_in_the_order_of_the_run(tmp_path: Path) -> None:
    surge, rolls = measured("surge", kubectl="v1"), measured("rolls")
    for one in (rolls, surge):
        store.keep(tmp_path, one)
    assert store.kept(tmp_path, {}, ("surge", "waits", "rolls"), "now") == [surge, rolls]


def test_a_group_that_is_measured_again_takes_its_own_place(tmp_path: Path) -> None:
    store.keep(tmp_path, measured("surge", rounds=3))
    store.keep(tmp_path, again := measured("surge", rounds=5))
    assert store.kept(tmp_path, store.published([measured("surge")], {}), ("surge",), "now") == [again]


def test_a_group_that_was_not_measured_since_the_machine_was_booted_stays_as_it_was_published(tmp_path: Path) -> None:
    store.keep(tmp_path, measured("surge", boot="before", rounds=4))
    store.keep(tmp_path, rolls := measured("rolls"))
    surge = measured("surge", boot="long ago")
    before = json.loads(json.dumps(store.published([surge, measured("gone")], {})))
    assert store.kept(tmp_path, before, ("surge", "rolls"), "now") == [surge, rolls]


def test_only_what_was_measured_between_the_same_starts_of_a_machine_is_compared() -> None:
    surge, rolls, drains = measured("surge"), measured("rolls", boot="before"), measured("drains")
    assert store.by_boot([surge, rolls, drains]) == [[surge, drains], [rolls]]


def test_the_days_name_their_groups() -> None:
    known = [measured("surge"), measured("rolls", date="2026-11-21"), measured("drains")]
    assert store.days(known) == "2026-11-20: surge, drains; 2026-11-21: rolls"


def test_the_caption_says_when_and_how_often() -> None:
    assert store.caption([measured("surge")]) == "2026-11-20, 2 cores, medians of 3 rounds, least to most"
    several = [measured("surge", date="2026-11-21"), measured("rolls", rounds=5)]
    expected = "2026-11-20 to 2026-11-21, 2 cores, medians of 3 to 5 rounds, least to most"
    assert store.caption(several) == expected
