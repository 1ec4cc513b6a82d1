# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pause of evictions and a configuration are two intents: neither ends the other."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import What
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    BAD,
    CONFIG,
    HEAD,
    HOME,
    NAME,
    NEW,
    OLD,
    Site,
    config_map,
    means,
    mounting,
)

DRY = "dryRun: true\n"
POLICY = "descheduler-policy-configmap"
SIGS = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: []\n"
WHEN: tuple[What, ...] = ("killed before", "killed after")


@pytest.fixture
def on() -> t.Iterator[Site]:
    """A paused descheduler."""
    node_drain = Site()
    assert node_drain.roll(None, state="paused")["outcome"] == "restarted"
    assert node_drain.text() == f"{OLD}{DRY}"
    yield node_drain
    node_drain.world.close()


def test_a_configuration_that_fails_leaves_the_pause(on: Site) -> None:
    paused = on.kept()
    done = on.roll(BAD)
    assert (done["outcome"], done["reason"]) == ("rolled_back", "no-such-class not found")
    assert on.kept() == paused
    assert on.roll(None, state="resumed")["outcome"] == "restarted"
    assert (on.text(), on.journals(), on.leases()) == (OLD, [], [])


@pytest.mark.parametrize("config", [NEW, means(NEW)], ids=["text", "keys"])
def test_a_configuration_that_runs_leaves_the_pause_and_is_what_is_resumed(on: Site, config: object) -> None:
    done = on.roll(config)
    assert (done["outcome"], done["running_config_matches"]) == ("restarted", True)
    assert "stay paused" in done["msg"]
    assert means(on.text()) == {**means(NEW), "dryRun": True}
    assert on.roll(config)["outcome"] == "unchanged"
    assert on.roll(BAD)["outcome"] == "rolled_back"
    assert on.roll(None, state="paused")["outcome"] == "unchanged"
    assert on.roll(None, state="resumed")["outcome"] == "restarted"
    assert (means(on.text()), on.journals()) == (means(NEW), [])


def test_a_configuration_is_rolled_out_as_evictions_are_resumed(on: Site) -> None:
    done = on.roll(NEW, state="resumed")
    assert (done["outcome"], on.text(), on.journals()) == ("restarted", NEW, [])
    assert on.roll(OLD, state="resumed")["outcome"] == "restarted", "and if nothing is paused"
    assert on.text() == OLD
    assert on.roll(HEAD + "deschedulingInterval: 1\n", state="resumed")["outcome"] == "invalid"


@pytest.mark.parametrize("wanted", [NEW, BAD], ids=["good", "bad"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("write", range(1, 10))
def test_a_rollout_during_a_pause_is_killed_at_any_write(on: Site, when: What, write: int, wanted: str) -> None:
    if not on.killed_at(write, when, wanted):
        return
    on.roll(wanted)
    assert on.text() == (NEW if wanted == NEW else OLD) + DRY
    assert len(on.journals()) == 1
    on.roll(None, state="resumed")
    assert (on.text(), on.journals(), on.leases()) == (NEW if wanted == NEW else OLD, [], [])


@pytest.mark.parametrize("write", range(1, 10))
def test_a_pause_is_resumed_after_a_rollout_that_was_killed(on: Site, write: int) -> None:
    """With what ran before: nobody has seen the other one run."""
    if on.killed_at(write, "killed after", BAD):
        assert on.roll(None, state="resumed")["failed"] is False
        assert (on.text(), on.journals()) == (OLD, [])


def test_a_dry_run_that_is_configured_during_a_pause_outlives_it(on: Site) -> None:
    assert on.roll(f"{NEW}{DRY}")["outcome"] == "restarted"
    on.roll(None, state="resumed")
    assert (on.text(), on.journals()) == (f"{NEW}{DRY}", [])


def test_what_somebody_else_changed_during_a_pause_is_kept_and_resumed(on: Site) -> None:
    on.write_text(f"{NEW}# theirs\n{DRY}")
    done = on.roll(None, state="resumed")
    assert (done["outcome"], "it was kept" in done["msg"]) == ("restarted", True)
    assert (on.text(), on.journals()) == (f"{NEW}# theirs\ndryRun: false\n", [])


def test_a_pause_of_what_somebody_else_applied_resumes_with_that(on: Site) -> None:
    on.write_text(NEW)
    assert on.roll(None, state="paused")["outcome"] == "restarted"
    assert on.text() == f"{NEW}{DRY}"
    on.roll(None, state="resumed")
    assert (on.text(), on.journals()) == (NEW, [])


def test_a_dry_run_of_their_own_is_no_pause_of_ours() -> None:
    node_drain = Site(f"{OLD}{DRY}")
    done = node_drain.roll(None, state="paused")
    assert (done["outcome"], node_drain.journals()) == ("unchanged", [])
    assert "paused already" in done["msg"]
    assert node_drain.roll(None, state="resumed")["outcome"] == "unchanged"
    assert node_drain.text() == f"{OLD}{DRY}"
    node_drain.world.close()


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_the_descheduler_of_sigs_stays_stopped_while_it_is_configured(kind: str) -> None:
    node_drain, place = Site(), "kube-system"
    node_drain.world.delete(kinds.DEPLOYMENTS, NAME, HOME)
    node_drain.world.apply(config_map(POLICY, place, **{"policy.yaml": SIGS}))
    if kind == "Deployment":
        node_drain.world.apply(manifests.deployment("descheduler", 2, namespace=place, volumes=mounting(POLICY)))
    else:
        template = manifests.template("descheduler", volumes=mounting(POLICY))
        spec = {"suspend": False, "schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}
        meta = {"name": "descheduler", "namespace": place}
        node_drain.world.apply({"apiVersion": "batch/v1", "kind": kind, "metadata": meta, "spec": spec})
    node_drain.world.apply(config_map(CONFIG, place, **{CONFIG: OLD}))
    of, field, stopped, on = (
        (kinds.DEPLOYMENTS, "replicas", 0, 2) if kind == "Deployment" else (kinds.CRON_JOBS, "suspend", True, False)
    )
    assert node_drain.roll(None, flavor="sigs", state="paused")["outcome"] == "changed"
    assert node_drain.roll(None, flavor="sigs", state="paused")["outcome"] == "unchanged"
    done = node_drain.roll(f"# new\n{SIGS}", flavor="sigs")
    assert (done["outcome"], done["failed"]) == ("changed", False)
    assert node_drain.world.get(of, "descheduler", place)["spec"][field] == stopped
    assert node_drain.roll(None, state="resumed")["outcome"] == "changed"
    assert node_drain.world.get(of, "descheduler", place)["spec"][field] == on
    assert node_drain.world.get(kinds.CONFIGMAPS, POLICY, place)["data"]["policy.yaml"] == f"# new\n{SIGS}"
    assert node_drain.journals() == []
    node_drain.world.close()


@pytest.mark.parametrize("seed", range(12))
def test_after_any_calls_configuration_and_pause_are_what_was_asked_for_last(seed: int) -> None:
    """Some calls are killed and made again, and somebody edits and restarts before some."""
    chance, node_drain, config, paused = random.Random(seed), Site(), OLD, False
    for _call in range(6):
        given, state = chance.choice(
            [(None, "paused"), (None, "resumed"), (BAD, "present"), *((chance.choice([NEW, OLD]), "present"),) * 3]
        )
        if given == NEW and chance.random() < 0.5:
            node_drain.write_text(HEAD)
            node_drain.restart()
        call: dict[str, t.Any] = {"state": state, "restart": chance.choice(["rollout", "scale"])}
        if chance.random() < 0.5 or node_drain.killed_at(chance.randrange(1, 9), chance.choice(WHEN), given, **call):
            node_drain.roll(given, **call)
        config = given if given not in (None, BAD) else config
        paused = state == "paused" or (paused and state != "resumed")
        node_drain.world.settle()
        pods = [node_drain.descheduler.runs[pod["metadata"]["name"]] for pod in node_drain.world.pods(namespace=HOME)]
        wanted = {**means(config), **({"dryRun": True} if paused else {})}
        assert ([means(pod) for pod in pods], means(node_drain.text())) == ([wanted], wanted)
        assert len(node_drain.journals()) == paused
    node_drain.world.close()
