# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`descheduler_config` on the real descheduler while others work on the same one, before, meanwhile or at once."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support import koordinator, processes, rollouts
from support.lab import Lab
from support.plays import Player, Running
from support.rollouts import MODULE, roll, slower
from support.waiting import until
from witness.log import Json

INTERLEAVINGS = int(os.environ.get("INTERLEAVINGS", "12"))
"""How many pairs of rollouts; the n-th is always the same pair, as far as the machine's speed lets it be."""


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


@pytest.mark.whole
def test_somebody_edits_while_a_bad_configuration_fails(lab: Lab, play: Player, chart: str) -> None:
    """Theirs is kept, the Deployment goes back to its old ReplicaSet, and the container's own words are told."""
    before, theirs = lab.api.get(koordinator.DEPLOYMENT)["spec"], slower(chart, 77)
    running = play.module_start(MODULE, config=rollouts.refused_class(chart), timeout="20s")
    until(lambda: any(map(restarts, koordinator.descheduler_pods(lab))), 40, "the new pod has crashed")
    lab.api.patch(koordinator.CONFIG, {"data": {koordinator.KEY: theirs}})
    run = running.wait()
    answer = run.answer
    assert (answer.get("outcome"), answer["running_config_matches"]) == ("rolled_back", False), run.text
    assert 'priorityclasses.scheduling.k8s.io "no-such-class" not found' in answer["reason"]
    assert "Someone else changed the ConfigMap meanwhile; that was kept." in answer["msg"]
    assert lab.api.get(koordinator.CONFIG)["data"] == {koordinator.KEY: theirs}
    assert lab.api.get(koordinator.DEPLOYMENT)["spec"] == before
    assert (rollouts.journals(lab), rollouts.locks(lab)) == ([], [])


def restarts(pod: Json) -> int:
    """How often the pod's containers have been started again."""
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))


@pytest.mark.whole
def test_a_configuration_that_fails_during_a_pause_leaves_it(lab: Lab, play: Player, chart: str) -> None:
    paused, new = chart.replace("dryRun: false", "dryRun: true"), slower(chart, 66)
    assert play.module(MODULE, state="paused", timeout="60s").answer["outcome"] == "restarted"
    assert roll(play, rollouts.refused_class(chart), timeout="12s")["outcome"] == "rolled_back"
    assert lab.api.get(koordinator.CONFIG)["data"] == {koordinator.KEY: paused}
    assert roll(play, new)["proof"] == "configz"
    assert lab.api.get(koordinator.CONFIG)["data"] == {koordinator.KEY: new.replace("dryRun: false", "dryRun: true")}
    assert play.module(MODULE, state="resumed", timeout="60s").answer["proof"] == "configz"
    assert lab.api.get(koordinator.CONFIG)["data"] == {koordinator.KEY: new}


@pytest.mark.whole
def test_two_rollouts_at_once_end_as_one_after_the_other(lab: Lab, play: Player, chart: str) -> None:
    """Begun at any distance, one of them stopped for a while in some; who is refused or overtaken tries again."""
    bad, seen = rollouts.refused_class(chart), collections.Counter[str]()
    for seed in range(INTERLEAVINGS):
        chance, before = random.Random(seed), lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
        good = [slower(chart, 1000 + 2 * seed), slower(chart, 1001 + 2 * seed)]
        both: list[Any] = chance.choice([good, [good[0], bad], [bad, good[0]], [bad, bad]])
        begun = []
        for config in both:
            begun.append(start(play, config))
            time.sleep(chance.choice([0.0, chance.uniform(0.0, 12.0)]))
        if chance.random() < 0.4:
            stopped = processes.freeze_tree(begun[chance.randrange(2)].process.pid)
            time.sleep(chance.uniform(3.0, 25.0))
            processes.thaw(stopped)
            seen["stopped"] += 1
        for config, running in zip(both, begun, strict=True):
            answer = running.wait().answer
            for _again in range(10):
                if answer.get("outcome"):
                    break
                seen[answer["findings"][0]["code"]] += 1
                answer = start(play, config).wait().answer
            seen[answer["outcome"]] += 1
            expected = ("rolled_back", "failed") if config is bad else ("restarted", "unchanged")
            assert answer["outcome"] in expected, (seed, answer["msg"])
        now = lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
        assert now in ([config for config in both if config is not bad] or [before]), seed
        last = roll(play, now)
        assert (last["outcome"], last["proof"], last["drifted"]) == ("unchanged", "configz", []), (seed, last)
        assert (rollouts.journals(lab), rollouts.locks(lab)) == ([], []), seed
        print(f"{seed + 1} of {INTERLEAVINGS} interleavings: {dict(seen)}", flush=True)


def start(play: Player, config: Any) -> Running:
    return play.module_start(MODULE, config=config, timeout="12s" if isinstance(config, dict) else "60s")


@pytest.mark.whole
def test_two_replicas_of_which_one_leads(lab: Lab, play: Player, chart: str) -> None:
    """As Koordinator's chart has it: a good configuration, a bad one, and calls that are killed."""
    lab.api.patch(koordinator.DEPLOYMENT, {"spec": {"replicas": 2}})
    until(lambda: ready(lab) == 2, 60, "both replicas are ready")
    new, bad = slower(chart, 88), rollouts.refused_class(chart)
    old = pods(lab)
    done = roll(play, new)
    assert (done["outcome"], done["proof"], done["running_config_matches"]) == ("restarted", "configz", True)
    assert (len(pods(lab)), pods(lab) & old) == (2, set())
    assert roll(play, new)["outcome"] == "unchanged"
    before, spec = pods(lab), lab.api.get(koordinator.DEPLOYMENT)["spec"]
    failed = roll(play, bad, timeout="12s")
    assert (failed["outcome"], "no-such-class" in failed["reason"]) == ("rolled_back", True)
    assert (pods(lab), lab.api.get(koordinator.DEPLOYMENT)["spec"]) == (before, spec), "both ran all the time"
    running = play.module_start(MODULE, config=bad, timeout="60s")
    running.until_says("restarted:")
    running.kill_all()
    assert roll(play, bad, timeout="12s")["outcome"] == "rolled_back"
    assert (pods(lab), lab.api.get(koordinator.DEPLOYMENT)["spec"]) == (before, spec)
    running = play.module_start(MODULE, config=slower(chart, 99), restart="scale", timeout="60s")
    running.until_says("scaled to 0")
    running.kill_all()
    done = roll(play, slower(chart, 99), restart="scale")
    assert (done["outcome"], done["proof"], ready(lab)) == ("restarted", "configz", 2)
    assert (rollouts.journals(lab), rollouts.locks(lab)) == ([], [])


def pods(lab: Lab) -> set[str]:
    return {pod["metadata"]["name"] for pod in koordinator.descheduler_pods(lab)}


def ready(lab: Lab) -> int:
    found: int = lab.api.get(koordinator.DEPLOYMENT)["status"].get("readyReplicas", 0)
    return found
