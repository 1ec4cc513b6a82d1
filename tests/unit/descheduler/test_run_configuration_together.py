# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two rollouts to one descheduler, or a rollout and somebody who edits: one at a time, and nobody's work is lost."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.rollout import DIGEST, digest
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import API_VERSION
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import arguments
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices, Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    BAD,
    HEAD,
    HOME,
    NEW,
    OLD,
    Cluster,
    configures,
    means,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes, put

OTHER = f"{HEAD}deschedulingInterval: 44s\n"
THEIRS = f"{HEAD}deschedulingInterval: 7s\n"


@pytest.fixture
def on() -> t.Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.world.close()


def mark(on: Cluster) -> str | None:
    found: str | None = (on.workload()["spec"]["template"]["metadata"].get("annotations") or {}).get(DIGEST)
    return found


def runs(on: Cluster, text: str) -> bool:
    """Whether it is what is configured, rolled out and running, with nothing left of any call."""
    pods = [on.descheduler.runs[pod["metadata"]["name"]] for pod in on.world.pods(namespace=HOME)]
    return (on.text(), mark(on), pods, on.journals(), on.leases()) == (text, digest(means(text)), [text], [], [])


def at(on: Cluster, task: t.Any, seen: t.Callable[[], bool]) -> None:
    """Up to there, if the call comes so far."""
    on.world.machine.run_until(lambda: seen() or not task.alive, within=600.0)


def patched(resource: str) -> t.Callable[[Request], bool]:
    return lambda request: (request.verb, request.resource) == ("patch", resource)


def nth(write: int) -> t.Callable[[Request], bool]:
    """That write, from 1; those of the lock do not count."""
    count = iter(range(1, 10**6))
    return lambda request: configures(request) and next(count) == write


def test_a_second_rollout_is_refused_by_who_works_and_since_when(on: Cluster) -> None:
    put(on.world, running_job(), phase="Running")
    first = on.begin("ann", NEW)
    at(on, first, lambda: bool(on.leases()))
    refused = on.end(on.begin("bob", OTHER))
    (finding,) = refused["findings"]
    assert (refused["failed"], finding["code"]) == (True, "held")
    assert f"Deployment {HOME}/koord-descheduler is held by run" in finding["message"]
    assert "of ann@sim since" in finding["message"]
    assert "run again" in finding["remedy"]
    becomes(on.world, "j", phase="Succeeded")
    assert on.end(first)["outcome"] == "restarted"
    assert runs(on, NEW)


def test_a_good_configuration_after_another_good_one_is_rolled_out_with_its_digest(on: Cluster) -> None:
    first = on.begin("ann", NEW)
    at(on, first, lambda: on.text() == NEW)
    second = on.begin("bob", OTHER)
    done = on.end(first, second)
    assert (first.value()["outcome"], done["outcome"]) == ("restarted", "restarted")
    assert runs(on, OTHER)


def test_a_bad_configuration_does_not_take_a_good_one_away(on: Cluster) -> None:
    bad = on.begin("bob", BAD)
    at(on, bad, lambda: on.text() == BAD)
    done = on.end(bad, on.begin("ann", NEW))
    assert (bad.value()["outcome"], done["outcome"]) == ("rolled_back", "restarted")
    assert runs(on, NEW)


@pytest.mark.parametrize("first", [NEW, BAD], ids=["good", "bad"])
@pytest.mark.parametrize("write", range(1, 8))
@pytest.mark.parametrize("what", ["frozen", "frozen sent"])
def test_a_rollout_that_was_frozen_until_another_one_took_over_writes_nothing_more(
    on: Cluster, what: t.Any, write: int, first: str
) -> None:
    ann = on.world.process("ann")
    ann.faults.when(nth(write), Fault(what, 200.0))
    slow = on.begin("ann", first)
    at(on, slow, lambda: ann.process.frozen)
    if slow.alive:
        assert on.end(on.begin("bob", OTHER))["outcome"] == "restarted"
        assert runs(on, OTHER)
        until = on.world.machine.now
        on.end(slow)
        assert [sent for sent in on.world.log if sent.arrived > until and configures(sent.request)] == []
        assert runs(on, OTHER)


def test_a_rollout_that_was_overtaken_while_it_verified_says_so_at_once(on: Cluster) -> None:
    """The other one's configuration runs: that says nothing about its own."""
    ann = on.world.process("ann")
    slow = on.begin("ann", NEW)
    at(on, slow, lambda: mark(on) is not None)
    on.world.machine.run_for(0.5)
    ann.process.freeze()
    assert on.end(on.begin("bob", OTHER))["outcome"] == "restarted"
    ann.process.thaw()
    thawed = on.world.machine.now
    assert on.end(slow)["findings"][0]["code"] == "adopted_by"
    assert on.world.machine.now - thawed < 10.0
    assert runs(on, OTHER)


def test_a_journal_that_another_rollout_has_written_meanwhile_is_not_overwritten(on: Cluster) -> None:
    """The lock rules that out, unless its holder was frozen in between."""

    def foreign() -> None:
        body: Raw = {"metadata": {"name": on.journal_name, "namespace": names.NAMESPACE}, "data": {"journal": "theirs"}}
        on.world.apply({"apiVersion": "v1", "kind": "ConfigMap", **body})

    on.world.process("ann").faults.overtaken(
        lambda request: (request.verb, request.resource) == ("create", "configmaps"), foreign
    )
    done = on.roll()
    assert done["findings"][0]["code"] == "changed_meanwhile"
    assert on.world.get(kinds.CONFIGMAPS, on.journal_name, names.NAMESPACE)["data"] == {"journal": "theirs"}
    assert on.text() == OLD


@pytest.mark.parametrize("restart", ["rollout", "scale"])
def test_somebody_edits_while_a_bad_rollout_fails(on: Cluster, restart: str) -> None:
    """Theirs is kept, the Deployment is restored, and what the container said is told."""
    before = on.workload()["spec"]
    call = on.begin("ann", BAD, restart=restart)
    at(on, call, lambda: BAD in on.descheduler.runs.values())
    on.write_text(THEIRS)
    done = on.end(call)
    assert (done["failed"], done["outcome"], done["reason"]) == (True, "rolled_back", "no-such-class not found")
    assert "Someone else changed the ConfigMap meanwhile; that was kept." in done["msg"]
    assert f"{HOME}/koord-descheduler is restored" in done["msg"]
    assert "ConfigMap and" not in done["msg"]
    assert (on.text(), on.workload()["spec"], on.journals(), on.leases()) == (THEIRS, before, [], [])
    assert on.roll()["outcome"] == "restarted"
    assert runs(on, NEW)


def test_somebody_edits_just_as_it_is_rolled_back(on: Cluster) -> None:
    before = on.workload()["spec"]
    call = on.begin("ann", BAD)
    at(on, call, lambda: mark(on) is not None)
    on.world.process("ann").faults.overtaken(patched("configmaps"), lambda: on.write_text(THEIRS))
    done = on.end(call)
    assert (done["outcome"], done["reason"]) == ("rolled_back", "no-such-class not found")
    assert (on.text(), on.workload()["spec"], on.journals()) == (THEIRS, before, [])


def test_a_rollback_that_is_refused_keeps_the_reason(on: Cluster) -> None:
    call = on.begin("ann", BAD)
    at(on, call, lambda: mark(on) is not None)
    on.deny(f"patch configmaps {HOME}")
    done = on.end(call)
    assert (done["failed"], done["outcome"], done["reason"]) == (True, "failed", "no-such-class not found")
    assert "no-such-class not found. The rollback was not finished:" in done["msg"]
    on.permit_all()
    assert on.roll(BAD)["outcome"] == "rolled_back"
    assert (on.text(), on.journals()) == (OLD, [])


@pytest.mark.parametrize("seed", range(40))
def test_any_interleaving_ends_as_one_after_the_other(seed: int) -> None:
    """Who is refused tries again; the result is that of one of the two orders."""
    chance = random.Random(seed)
    on = Cluster()
    on.world.machine.choices = Choices(chance=chance)
    first, second = chance.choice([(NEW, OTHER), (NEW, BAD), (BAD, NEW), (OTHER, OLD), (BAD, BAD)])
    calls = {"ann": first, "bob": second}

    tasks: dict[str, Task] = {}
    for who, config in calls.items():
        on.world.machine.run_for(chance.uniform(0.0, 20.0) if tasks else 0.0)
        if chance.random() < 0.3:
            fault = Fault("frozen", chance.uniform(1.0, 60.0))
            on.world.process(who).faults.when(nth(chance.randrange(1, 6)), fault)
        tasks[who] = on.begin(who, config, restart=chance.choice(["rollout", "scale"]))
    open_ones = dict(tasks)
    for _again in range(20):
        on.end(*open_ones.values())
        results = {who: t.cast("Raw", task.value()) for who, task in open_ones.items()}
        again = [who for who, done in results.items() if not done.get("outcome") or "taken over" in done["msg"]]
        if not again:
            break
        open_ones = {who: on.begin(who, calls[who]) for who in again}
    good = [text for text in (first, second) if text != BAD]
    assert on.text() in (good or [OLD])
    if good:
        assert runs(on, on.text())
    else:
        assert (on.journals(), on.leases(), mark(on)) == ([], [], None)
    on.world.close()


def test_a_lock_that_was_left_is_listed_and_removed_and_a_living_one_stays(on: Cluster) -> None:
    otto = on.world.process("otto")
    call = on.begin("ann", NEW)
    at(on, call, lambda: on.text() == NEW)
    on.world.process("ann").process.kill()
    (trace,) = [trace for trace in traces(on) if trace["object"].startswith("Lease")]
    assert trace["object"] == f"Lease {names.NAMESPACE}/{on.journal_name}"
    assert (trace["what"], trace["by"], trace["nodes"]) == ("the lock of a rollout to a descheduler", "ann@sim", [])
    assert not otto.run(lambda ctx: arguments.state(ctx, arguments.StateOptions("undone"))).failed
    assert on.leases() == []
    put(on.world, running_job(), phase="Running")
    call = on.begin("bob", NEW)
    at(on, call, lambda: bool(on.leases()))
    assert [trace["alive"] for trace in traces(on) if trace["object"].startswith("Lease")] == [True]
    assert not otto.run(lambda ctx: arguments.state(ctx, arguments.StateOptions("undone"))).failed
    assert on.leases() == [on.journal_name]
    becomes(on.world, "j", phase="Succeeded")
    assert on.end(call)["outcome"] == "restarted"
    assert runs(on, NEW)


def traces(on: Cluster) -> list[Raw]:
    found: list[Raw] = (
        on.world.process("otto").run(lambda ctx: arguments.state(ctx, arguments.StateOptions("listed"))).data["traces"]
    )
    return found


def running_job() -> Raw:
    meta = {"name": "j"}
    return {"apiVersion": API_VERSION, "kind": "PodMigrationJob", "metadata": meta, "spec": {"podRef": {}}}
