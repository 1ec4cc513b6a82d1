# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What somebody else changed after a rollout is found, reported and repaired by the next call."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.rollout import DIGEST
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    HEAD,
    HOME,
    NAME,
    NEW,
    OLD,
    Cluster,
)

FOREIGN = f"{HEAD}deschedulingInterval: 33s\n"
MORE = f"{NEW}maxNoOfPodsToEvictTotal: 3\n"
ELECTING = NEW.replace("{leaderElect: false}", "{leaderElect: false, leaseDuration: 30s}")
UNREADABLE = ("get pods/portforward", "get pods/log")


@pytest.fixture
def on() -> t.Iterator[Cluster]:
    """A descheduler to which NEW was rolled out."""
    cluster = Cluster()
    assert cluster.roll()["outcome"] == "restarted"
    yield cluster
    cluster.world.close()


def running(on: Cluster) -> list[str]:
    """What the pods run that are there."""
    return [on.descheduler.runs[pod["metadata"]["name"]] for pod in on.world.pods(namespace=HOME)]


@pytest.mark.parametrize("foreign", [FOREIGN, MORE, ELECTING], ids=["value", "additional", "election"])
@pytest.mark.parametrize("readable", [True, False])
def test_somebody_elses_configuration_that_runs_is_replaced_in_one_run(
    on: Cluster, foreign: str, readable: bool
) -> None:
    on.write_text(foreign)
    on.restart()
    assert running(on) == [foreign]
    on.deny(*(() if readable else UNREADABLE))
    told = on.roll(check=True)
    done = on.roll()
    assert (done["outcome"], done["restarted"], done["actions"]) == ("restarted", True, told["actions"])
    seen = ["running"] if readable and foreign != ELECTING else []
    assert (done["drifted"], told["drifted"]) == (["config_map", *seen], ["config_map", *seen])
    assert done["running_config_matches"] is (True if readable else None)
    assert (running(on), on.text(), on.journals()) == ([NEW], NEW, [])
    again = on.roll()
    assert (again["outcome"], again["changed"], again["drifted"]) == ("unchanged", False, [])
    assert again["running_config_matches"] is (True if readable else None)


@pytest.mark.parametrize("readable", [True, False])
def test_an_edit_that_never_ran_is_undone_without_a_restart_if_the_pods_say_so(on: Cluster, readable: bool) -> None:
    on.write_text(FOREIGN)
    on.deny(*(() if readable else UNREADABLE))
    done = on.roll()
    assert (done["drifted"], done["restarted"]) == (["config_map"], not readable)
    assert (done["running_config_matches"], on.text(), running(on)) == (True if readable else None, NEW, [NEW])


def test_pods_that_run_something_else_are_a_drift_though_the_config_map_is_right(on: Cluster) -> None:
    on.write_text(FOREIGN)
    on.restart()
    on.write_text(NEW)
    done = on.roll()
    assert (done["outcome"], done["drifted"], running(on)) == ("restarted", ["running"], [NEW])


def test_a_template_that_names_an_older_configuration_is_a_drift(on: Cluster) -> None:
    """As after `kubectl rollout undo`, whose pods read the ConfigMap all the same."""
    on.world.patch(kinds.DEPLOYMENTS, NAME, {"spec": {"template": {"metadata": {"annotations": {DIGEST: "x"}}}}}, HOME)
    on.world.settle()
    done = on.roll()
    assert (done["outcome"], done["drifted"]) == ("restarted", ["template"])
    assert on.roll()["drifted"] == []


def test_a_pause_that_was_reverted_is_a_drift(on: Cluster) -> None:
    """As by a GitOps controller, which restarts the pods too."""
    paused = f"{NEW}dryRun: true\n"
    on.deny(*UNREADABLE)
    assert on.roll(None, state="paused")["drifted"] == []
    on.write_text(NEW)
    on.restart()
    done = on.roll(None, state="paused")
    assert (done["outcome"], done["drifted"], running(on)) == ("restarted", ["config_map"], [paused])
    on.permit_all()
    on.write_text(NEW)
    on.restart()
    on.write_text(paused)
    done = on.roll(None, state="paused")
    assert (done["outcome"], done["drifted"], running(on)) == ("restarted", ["running"], [paused])
    assert on.roll(None, state="resumed")["outcome"] == "restarted"
    assert (on.text(), running(on), on.journals()) == (NEW, [NEW], [])


def test_a_new_configuration_is_no_drift(on: Cluster) -> None:
    assert on.roll(OLD)["drifted"] == []


def test_what_was_not_compared_is_not_said_to_match(on: Cluster) -> None:
    on.deny(*UNREADABLE)
    done = on.roll(OLD)
    assert (done["outcome"], done["proof"], done["running_config_matches"]) == ("restarted", "ready", None)
    on.permit_all()
    done = on.roll(NEW, verify=False)
    assert (done["outcome"], done["proof"], done["running_config_matches"]) == ("restarted", "", None)


@pytest.mark.parametrize("readable", [True, False])
def test_a_restart_that_was_left_out_is_pending_and_no_drift(on: Cluster, readable: bool) -> None:
    on.deny(*(() if readable else UNREADABLE))
    assert on.roll(OLD, restart="none")["outcome"] == "changed"
    left = on.roll(OLD, restart="none")
    assert (left["outcome"], left["changed"], left["drifted"]) == ("unchanged", False, [])
    assert "pending" in left["msg"]
    done = on.roll(OLD)
    assert (done["outcome"], done["drifted"], running(on)) == ("restarted", [], [OLD])
    on.world.patch(kinds.DEPLOYMENTS, NAME, {"spec": {"template": {"metadata": {"annotations": {DIGEST: "x"}}}}}, HOME)
    on.world.settle()
    assert on.roll(OLD)["drifted"] == ["template"], "it is not what was left out by then"


@pytest.mark.parametrize("readable", [True, False])
def test_pods_that_somebody_restarted_after_a_restart_that_was_left_out(on: Cluster, readable: bool) -> None:
    on.roll(OLD, restart="none")
    on.restart()
    on.deny(*(() if readable else UNREADABLE))
    done = on.roll(OLD)
    assert (done["drifted"], done["restarted"], running(on)) == ([], not readable, [OLD])


def test_what_somebody_else_wrote_after_a_restart_that_was_left_out_is_written_over(on: Cluster) -> None:
    on.roll(OLD, restart="none")
    on.write_text(FOREIGN)
    on.restart()
    done = on.roll(OLD)
    assert (done["outcome"], on.text(), running(on)) == ("restarted", OLD, [OLD])
    assert on.roll(OLD)["changed"] is False
