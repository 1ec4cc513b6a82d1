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
    Cluster,
    config_map,
    means,
    mounting,
)

DRY = "dryRun: true\n"
POLICY = "descheduler-policy-configmap"
SIGS = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: []\n"
WHEN: tuple[What, ...] = ("killed before", "killed after")


@pytest.fixture
def on() -> t.Iterator[Cluster]:
    """A paused descheduler."""
    cluster = Cluster()
    assert cluster.roll(None, state="paused")["outcome"] == "restarted"
    assert cluster.text() == f"{OLD}{DRY}"
    yield cluster
    cluster.world.close()


def test_a_configuration_that_fails_leaves_the_pause(on: Cluster) -> None:
    paused = on.kept()
    done = on.roll(BAD)
    assert (done["outcome"], done["reason"]) == ("rolled_back", "no-such-class not found")
    assert on.kept() == paused
    assert on.roll(None, state="resumed")["outcome"] == "restarted"
    assert (on.text(), on.journals(), on.leases()) == (OLD, [], [])


@pytest.mark.parametrize("config", [NEW, means(NEW)], ids=["text", "keys"])
def test_a_configuration_that_runs_leaves_the_pause_and_is_what_is_resumed(on: Cluster, config: object) -> None:
    done = on.roll(config)
    assert (done["outcome"], done["running_config_matches"]) == ("restarted", True)
    assert "stay paused" in done["msg"]
    assert means(on.text()) == {**means(NEW), "dryRun": True}
    assert on.roll(config)["outcome"] == "unchanged"
    assert on.roll(BAD)["outcome"] == "rolled_back"
    assert on.roll(None, state="paused")["outcome"] == "unchanged"
    assert on.roll(None, state="resumed")["outcome"] == "restarted"
    assert (means(on.text()), on.journals()) == (means(NEW), [])


def test_a_configuration_is_rolled_out_as_evictions_are_resumed(on: Cluster) -> None:
    done = on.roll(NEW, state="resumed")
    assert (done["outcome"], on.text(), on.journals()) == ("restarted", NEW, [])
    assert on.roll(OLD, state="resumed")["outcome"] == "restarted", "and if nothing is paused"
    assert on.text() == OLD
    assert on.roll(HEAD + "deschedulingInterval: 1\n", state="resumed")["outcome"] == "invalid"


@pytest.mark.parametrize("wanted", [NEW, BAD], ids=["good", "bad"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("write", range(1, 10))
def test_a_rollout_during_a_pause_is_killed_at_any_write(on: Cluster, when: What, write: int, wanted: str) -> None:
    if not on.killed_at(write, when, wanted):
        return
    on.roll(wanted)
    assert on.text() == (NEW if wanted == NEW else OLD) + DRY
    assert len(on.journals()) == 1
    on.roll(None, state="resumed")
    assert (on.text(), on.journals(), on.leases()) == (NEW if wanted == NEW else OLD, [], [])


@pytest.mark.parametrize("write", range(1, 10))
def test_a_pause_is_resumed_after_a_rollout_that_was_killed(on: Cluster, write: int) -> None:
    """With what ran before: nobody has seen the other one run."""
    if on.killed_at(write, "killed after", BAD):
        assert on.roll(None, state="resumed")["failed"] is False
        assert (on.text(), on.journals()) == (OLD, [])


def test_a_dry_run_that_is_configured_during_a_pause_outlives_it(on: Cluster) -> None:
    assert on.roll(f"{NEW}{DRY}")["outcome"] == "restarted"
    on.roll(None, state="resumed")
    assert (on.text(), on.journals()) == (f"{NEW}{DRY}", [])


def test_what_somebody_else_changed_during_a_pause_is_kept_and_resumed(on: Cluster) -> None:
    on.write_text(f"{NEW}# theirs\n{DRY}")
    done = on.roll(None, state="resumed")
    assert (done["outcome"], "it was kept" in done["msg"]) == ("restarted", True)
    assert (on.text(), on.journals()) == (f"{NEW}# theirs\ndryRun: false\n", [])


def test_a_pause_of_what_somebody_else_applied_resumes_with_that(on: Cluster) -> None:
    on.write_text(NEW)
    assert on.roll(None, state="paused")["outcome"] == "restarted"
    assert on.text() == f"{NEW}{DRY}"
    on.roll(None, state="resumed")
    assert (on.text(), on.journals()) == (NEW, [])


def test_a_dry_run_of_their_own_is_no_pause_of_ours() -> None:
    cluster = Cluster(f"{OLD}{DRY}")
    done = cluster.roll(None, state="paused")
    assert (done["outcome"], cluster.journals()) == ("unchanged", [])
    assert "paused already" in done["msg"]
    assert cluster.roll(None, state="resumed")["outcome"] == "unchanged"
    assert cluster.text() == f"{OLD}{DRY}"
    cluster.world.close()


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_the_descheduler_of_sigs_stays_stopped_while_it_is_configured(kind: str) -> None:
    cluster, place = Cluster(), "kube-system"
    cluster.world.delete(kinds.DEPLOYMENTS, NAME, HOME)
    cluster.world.apply(config_map(POLICY, place, **{"policy.yaml": SIGS}))
    if kind == "Deployment":
        cluster.world.apply(manifests.deployment("descheduler", 2, namespace=place, volumes=mounting(POLICY)))
    else:
        template = manifests.template("descheduler", volumes=mounting(POLICY))
        spec = {"suspend": False, "schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}
        meta = {"name": "descheduler", "namespace": place}
        cluster.world.apply({"apiVersion": "batch/v1", "kind": kind, "metadata": meta, "spec": spec})
    cluster.world.apply(config_map(CONFIG, place, **{CONFIG: OLD}))
    of, field, stopped, on = (
        (kinds.DEPLOYMENTS, "replicas", 0, 2) if kind == "Deployment" else (kinds.CRON_JOBS, "suspend", True, False)
    )
    assert cluster.roll(None, flavor="sigs", state="paused")["outcome"] == "changed"
    assert cluster.roll(None, flavor="sigs", state="paused")["outcome"] == "unchanged"
    done = cluster.roll(f"# new\n{SIGS}", flavor="sigs")
    assert (done["outcome"], done["failed"]) == ("changed", False)
    assert cluster.world.get(of, "descheduler", place)["spec"][field] == stopped
    assert cluster.roll(None, state="resumed")["outcome"] == "changed"
    assert cluster.world.get(of, "descheduler", place)["spec"][field] == on
    assert cluster.world.get(kinds.CONFIGMAPS, POLICY, place)["data"]["policy.yaml"] == f"# new\n{SIGS}"
    assert cluster.journals() == []
    cluster.world.close()


@pytest.mark.parametrize("seed", range(12))
def test_after_any_calls_configuration_and_pause_are_what_was_asked_for_last(seed: int) -> None:
    """Some calls are killed and made again, and somebody edits and restarts before some."""
    chance, cluster, config, paused = random.Random(seed), Cluster(), OLD, False
    for _call in range(6):
        given, state = chance.choice(
            [(None, "paused"), (None, "resumed"), (BAD, "present"), *((chance.choice([NEW, OLD]), "present"),) * 3]
        )
        if given == NEW and chance.random() < 0.5:
            cluster.write_text(HEAD)
            cluster.restart()
        call: dict[str, t.Any] = {"state": state, "restart": chance.choice(["rollout", "scale"])}
        if chance.random() < 0.5 or cluster.killed_at(chance.randrange(1, 9), chance.choice(WHEN), given, **call):
            cluster.roll(given, **call)
        config = given if given not in (None, BAD) else config
        paused = state == "paused" or (paused and state != "resumed")
        cluster.world.settle()
        pods = [cluster.descheduler.runs[pod["metadata"]["name"]] for pod in cluster.world.pods(namespace=HOME)]
        wanted = {**means(config), **({"dryRun": True} if paused else {})}
        assert ([means(pod) for pod in pods], means(cluster.text())) == ([wanted], wanted)
        assert len(cluster.journals()) == paused
    cluster.world.close()
