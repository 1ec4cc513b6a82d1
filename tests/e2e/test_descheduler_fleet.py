# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook `descheduler` over several clusters with a real koord-descheduler each."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from support import koordinator, sampling
from support.lab import Lab, lab_playbook, started
from support.plays import Player, Run
from support.waiting import until
from witness.log import Json

SERIAL = [1, 2] if sampling.ALL else [1, 1]
"""The canary, then so many at a time."""
CLUSTERS = 5 if sampling.ALL else 3
"""At least one that comes after both."""
LATE = sum(SERIAL)
"""The first that comes after both."""
SMALL = {"lab_nodes": 1, "lab_metrics": False, "lab_koordinator": "v1.7.0", "lab_start_timeout": 300}
INTERVAL = "33s"
"""What the inventory says of one cluster alone."""


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lab]]:
    """Small clusters, started two at a time; they go as soon as these tests end."""
    stem = "-".join(filter(None, (os.environ.get("LAB_NAME", "e2e"), "fleet", os.environ.get("PYTEST_XDIST_WORKER"))))
    names = [f"{stem}-{number}" for number in range(1, CLUSTERS + 1)]
    folders = {name: tmp_path_factory.mktemp(name) for name in names}
    with ThreadPoolExecutor(2) as pool:
        try:
            made = list(pool.map(lambda name: started(folders[name], name, **SMALL), names))
            for lab in made:
                until(functools.partial(koordinator.leads, lab), 90, f"the descheduler of {lab.name} leads")
            yield made
        finally:
            list(pool.map(lambda name: lab_playbook(folders[name], name, "absent"), names))


@pytest.fixture
def lab(labs: list[Lab]) -> Lab:
    return labs[0]


def config_of(lab: Lab) -> str:
    text: str = lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
    return text


def states(labs: Sequence[Lab]) -> list[tuple[str, list[str]]]:
    """Each cluster's configuration and the descheduler's pods."""
    return [(config_of(lab), [pod["metadata"]["name"] for pod in koordinator.descheduler_pods(lab)]) for lab in labs]


def fleet(labs: Sequence[Lab]) -> dict[str, Json]:
    """The inventory: each cluster with credentials of its own, the last one with an interval of its own."""
    hosts: dict[str, Json] = {
        f"cluster-{number}": {"descheduler_environment": {"K8S_AUTH_KUBECONFIG": str(lab.operator)}}
        for number, lab in enumerate(labs, 1)
    }
    hosts[f"cluster-{len(labs)}"]["descheduler_overrides"] = {"deschedulingInterval": INTERVAL}
    return hosts


def options(labs: Sequence[Lab], config: Json) -> Json:
    return {
        "inventory": fleet(labs),
        "descheduler_config": config,
        "descheduler_timeout": "60s",
        "descheduler_serial": SERIAL,
    }


def lines_of(run: Run) -> list[str]:
    """What the last play says of each cluster."""
    (told,) = [found.result["msg"] for found in run.results if found.task == "Show the result of each cluster"]
    return [str(line) for line in told]


@pytest.mark.whole
def test_a_bad_configuration_starts_on_the_canary_alone(labs: list[Lab], play: Player) -> None:
    before = states(labs)
    bad = yaml.safe_load(config_of(labs[0]))
    koordinator.migration_args(bad)["priorityThreshold"] = {"name": "no-such-class"}
    run = play("descheduler", **{**options(labs, bad), "descheduler_timeout": "10s"})
    assert not run.ok
    lines = lines_of(run)
    assert lines[0].startswith("cluster-1 failed. ")
    assert "no-such-class" in lines[0]
    assert lines[1:] == [
        f"cluster-{number} not started. An earlier cluster failed." for number in range(2, CLUSTERS + 1)
    ]
    assert states(labs) == before, "the canary is as before, and nobody else was touched"


@pytest.mark.whole
def test_what_is_wrong_by_the_schema_starts_nowhere(labs: list[Lab], play: Player) -> None:
    before = states(labs)
    wrong = yaml.safe_load(config_of(labs[0])) | {"dryrun": True}
    run = play("descheduler", **options(labs, wrong))
    assert not run.ok
    assert "Write dryRun." in run.text
    nameless: dict[str, Json] = {name: {} for name in fleet(labs)}
    stranger = play("descheduler", **{**options(labs, wrong), "inventory": nameless})
    assert not stranger.ok
    assert "no credentials" in stranger.text
    assert states(labs) == before


def test_a_good_one_reaches_all_even_when_it_is_killed_in_between(labs: list[Lab], play: Player) -> None:
    good = yaml.safe_load(config_of(labs[0])) | {"deschedulingInterval": "77s"}
    untouched = config_of(labs[LATE])
    running = play.start("descheduler", **options(labs, good))
    until(lambda: "77s" in config_of(labs[1]), 60, "the second cluster has begun")
    running.kill_all()
    assert config_of(labs[LATE]) == untouched
    canary = states(labs[:1])
    again = play("descheduler", **options(labs, good))
    assert again.ok, again.text
    assert states(labs[:1]) == canary, "what was right already is not restarted"
    wanted = ["77s"] * (CLUSTERS - 1) + [INTERVAL]
    assert [yaml.safe_load(config_of(lab))["deschedulingInterval"] for lab in labs] == wanted
    lines = lines_of(again)
    assert [line.split(".")[0] for line in lines[LATE:]] == [
        f"cluster-{number} changed, verified by configz" for number in range(LATE + 1, CLUSTERS + 1)
    ]
    before = states(labs)
    third = play("descheduler", **options(labs, good))
    assert third.ok
    assert not any(answer["changed"] for answer in third.of("descheduler_config"))
    expected = [f"cluster-{number} unchanged, verified by configz" for number in range(1, CLUSTERS + 1)]
    assert [line.split(".")[0] for line in lines_of(third)] == expected
    assert states(labs) == before
