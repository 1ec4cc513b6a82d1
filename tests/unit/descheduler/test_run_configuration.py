# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `descheduler_config` writes, in which order, and that a call killed at any request is finished by the next."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.rollout import DIGEST
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import API_VERSION
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    BAD,
    CONFIG,
    HOME,
    NAME,
    NEW,
    OLD,
    Cluster,
    config_map,
    configures,
    means,
    mounting,
    writes,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes, put

Make = t.Callable[..., Cluster]
POLICY = "descheduler-policy-configmap"
WHEN: tuple[What, ...] = ("killed before", "killed after")


@pytest.fixture
def make_cluster() -> t.Iterator[Make]:
    """Makes clusters with a descheduler; their threads end with the test."""
    made: list[Cluster] = []

    def make(*args: t.Any, **options: t.Any) -> Cluster:
        made.append(Cluster(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


def patches(resource: str) -> t.Callable[[Request], bool]:
    return lambda request: (request.verb, request.resource) == ("patch", resource)


def running_job() -> Raw:
    meta = {"name": "j"}
    return {"apiVersion": API_VERSION, "kind": "PodMigrationJob", "metadata": meta, "spec": {"podRef": {}}}


def cron_job(namespace: str) -> Raw:
    template = manifests.template("descheduler", volumes=mounting(POLICY))
    spec = {"suspend": False, "schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}
    meta = {"name": "descheduler", "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec}


@pytest.mark.parametrize(
    ("operation", "key", "told"),
    [("Apply", CONFIG, True), ("Update", CONFIG, False), ("Apply", "other", False)],
)
def test_whose_text_is_taken_over_is_told_before_it_is_written(
    make_cluster: Make, operation: str, key: str, told: bool
) -> None:
    on = make_cluster(ours=False)
    entry = {"manager": "argocd-controller", "operation": operation, "fieldsV1": {"f:data": {f"f:{key}": {}}}}
    on.world.patch(kinds.CONFIGMAPS, CONFIG, {"metadata": {"managedFields": [entry]}}, HOME)
    found = [one for one in on.roll()["findings"] if one["rule"] == "managed_by"]
    assert ["argocd-controller" in one["message"] for one in found] == [True] * told
    assert not [one for one in on.roll()["findings"] if one["rule"] == "managed_by"], "nothing is written again"


def applied(*path: str) -> Raw:
    """What the server keeps of fields that a GitOps controller applies."""
    fields: Raw = {}
    for part in reversed(path):
        fields = {f"f:{part}": fields}
    return {"metadata": {"managedFields": [{"manager": "argocd", "operation": "Apply", "fieldsV1": fields}]}}


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize(
    ("what", "path", "call"),
    [
        (kinds.CONFIGMAPS, ("data", CONFIG), {}),
        (kinds.DEPLOYMENTS, ("spec", "replicas"), {"restart": "scale"}),
        (kinds.CONFIGMAPS, ("data", CONFIG), {"config": None, "state": "paused"}),
    ],
)
def test_what_others_apply_is_taken_over_only_if_that_is_allowed(
    make_cluster: Make, what: kinds.Kind, path: tuple[str, ...], call: Raw, forced: bool
) -> None:
    on = make_cluster()
    on.world.patch(what, {kinds.CONFIGMAPS: CONFIG, kinds.DEPLOYMENTS: NAME}[what], applied(*path), HOME)
    before = on.kept()
    on.world.log.clear()
    done = on.roll(force_conflicts=forced, **call)
    (told,) = [one for one in done["findings"] if "argocd" in one["message"]]
    assert (done["failed"], ".".join(path) in told["message"]) == (not forced, True)
    if forced:
        assert told["rule"] == "managed_by"
        order = [event["what"] for event in done["timeline"]]
        assert order.index("note") < order.index("written"), "it is told before it is taken"
        return
    assert (told["code"], "force_conflicts: true" in told["remedy"]) == ("field_conflict", True)
    assert on.kept() == before
    assert not [sent for sent in on.world.log if writes(sent.request)]


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("cron", [True, False])
def test_a_count_that_others_apply_is_taken_over_only_if_that_is_allowed(
    make_cluster: Make, cron: bool, forced: bool
) -> None:
    on = make_cluster()
    on.world.apply(config_map(POLICY, "kube-system", **{"policy.yaml": "kind: DeschedulerPolicy"}))
    workload = manifests.deployment("descheduler", 1, namespace="kube-system", volumes=mounting(POLICY))
    body = cron_job("kube-system") if cron else workload
    body["metadata"] |= applied("spec", "suspend" if cron else "replicas")["metadata"]
    on.world.apply(body)
    on.world.settle()
    on.world.log.clear()
    done = on.roll(None, flavor="sigs", state="paused", force_conflicts=forced)
    assert (done["failed"], done["changed"]) == (not forced, forced)
    assert [one for one in done["findings"] if "argocd" in one["message"]]
    assert bool([sent for sent in on.world.log if writes(sent.request)]) == forced


def test_the_order_of_writes_and_a_second_run_without_any(make_cluster: Make) -> None:
    on = make_cluster(ours=False)
    done = on.roll()
    assert (done["outcome"], done["proof"], done["changed"]) == ("restarted", "configz", True)
    first = on.asked()
    assert first == [
        "create namespaces",
        "create configmaps",
        "patch configmaps",
        "patch deployments.apps",
        "delete configmaps",
    ]
    assert on.text() == NEW
    again = on.roll()
    assert (again["outcome"], again["changed"], again["proof"]) == ("unchanged", False, "configz")
    assert on.asked() == first


def test_without_a_digest_the_pods_are_asked(make_cluster: Make) -> None:
    assert make_cluster(NEW).roll()["outcome"] == "unchanged"
    foreign = make_cluster(NEW)
    (name,) = foreign.descheduler.runs
    foreign.descheduler.runs[name] = f"{NEW}maxNoOfPodsToEvictTotal: 3\n"
    assert foreign.roll()["outcome"] == "restarted", "something runs that nobody asks for"


def test_pods_that_have_just_started_are_waited_for_and_asked(make_cluster: Make) -> None:
    on = make_cluster(NEW)
    (pod,) = on.world.pods(namespace=HOME)
    on.world.delete(kinds.PODS, pod["metadata"]["name"], HOME)
    done = on.roll()
    assert (done["outcome"], done["changed"], done["proof"]) == ("unchanged", False, "configz")
    assert on.asked() == []


def test_a_digest_that_lies_is_found_out(make_cluster: Make) -> None:
    on = make_cluster()
    assert on.roll()["outcome"] == "restarted"
    (pod,) = on.world.pods(namespace=HOME)
    on.descheduler.runs[pod["metadata"]["name"]] = OLD
    done = on.roll()
    assert done["outcome"] == "restarted"
    assert "deschedulingInterval" in done["actions"][0]
    assert done["proof"] == "configz"


def test_text_is_written_as_text_and_keys_by_their_meaning(make_cluster: Make) -> None:
    on = make_cluster()
    on.roll()
    assert on.roll({**means(NEW), "profiles": None})["outcome"] == "unchanged"
    comment = on.roll(f"# why\n{NEW}")
    assert (comment["outcome"], comment["restarted"]) == ("changed", False)
    assert on.text() == f"# why\n{NEW}"


def test_check_mode_says_what_a_real_run_does_and_writes_nothing(make_cluster: Make) -> None:
    on = make_cluster()
    before = on.kept()
    told = on.roll(check=True)
    assert (on.kept(), on.journals(), on.asked()) == (before, [], [])
    assert told["actions"] == on.roll()["actions"]
    assert told["restarted"]
    assert told["running_config_matches"] is None


@pytest.mark.parametrize("restart", ["rollout", "scale"])
def test_what_does_not_run_is_taken_back(make_cluster: Make, restart: str) -> None:
    on = make_cluster()
    before = on.kept()
    done = on.roll(BAD, restart=restart)
    assert (done["failed"], done["outcome"], done["rolled_back"]) == (True, "rolled_back", True)
    assert done["reason"] == "no-such-class not found"
    assert (on.kept(), on.journals()) == (before, [])


def test_without_rollback_it_is_left_and_the_next_call_still_knows_what_was_before(make_cluster: Make) -> None:
    on = make_cluster()
    before = on.kept()
    assert on.roll(BAD, rollback=False)["outcome"] == "failed"
    assert on.text() == BAD
    assert on.roll(BAD)["outcome"] == "rolled_back"
    assert (on.kept(), on.journals()) == (before, [])


def test_a_config_map_that_was_made_goes_again(make_cluster: Make) -> None:
    on = make_cluster(None, replicas=0)
    done = on.roll()
    assert done["outcome"] == "changed"
    assert on.text() == NEW
    assert on.journals() == []


@pytest.mark.parametrize("wanted", [NEW, BAD], ids=["good", "bad"])
@pytest.mark.parametrize("restart", ["rollout", "scale"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("write", range(1, 13))
def test_a_call_killed_at_any_write_is_finished_by_the_next(
    make_cluster: Make, when: What, write: int, restart: str, wanted: str
) -> None:
    on = make_cluster(replicas=2)
    before = on.kept()
    if not on.killed_at(write, when, wanted, restart=restart):
        assert sum(writes(sent.request) for sent in on.world.log) < write
        return
    done = on.roll(wanted, restart=restart)
    assert on.journals() == []
    assert on.workload()["spec"]["replicas"] == 2
    if wanted == NEW:
        assert (done["failed"], done["proof"], on.text()) == (False, "configz", NEW)
        assert on.roll(wanted)["outcome"] == "unchanged"
    else:
        assert done["outcome"] == "rolled_back"
        assert on.kept() == before
    assert on.roll(f"# next\n{OLD}", restart=restart)["failed"] is False
    assert (on.journals(), on.leases()) == ([], []), "a lock that was left hinders nobody"


def test_a_killed_rollout_is_given_up_for_another_one(make_cluster: Make) -> None:
    """What is gone back to is what ran before both, not what the killed one wrote."""
    on = make_cluster()
    before = on.kept()
    assert on.killed_at(3, "killed after")
    assert on.roll(BAD)["outcome"] == "rolled_back"
    assert on.kept() == before


def test_somebody_elses_write_is_neither_overwritten_nor_taken_back(make_cluster: Make) -> None:
    on = make_cluster()
    on.world.process("ann").faults.overtaken(patches("configmaps"), lambda: on.write_text("theirs: 1\n"))
    done = on.roll()
    assert done["findings"][0]["code"] == "changed_meanwhile"
    assert on.text() == "theirs: 1\n"


def test_an_answer_that_is_lost_is_looked_up(make_cluster: Make) -> None:
    on = make_cluster()
    faults = on.world.process("ann").faults
    for resource in ("configmaps", "deployments.apps"):
        faults.when(patches(resource), Fault("lost"))
    done = on.roll()
    assert (done["outcome"], len(done["actions"])) == ("restarted", 2)
    assert [request.resource for _ordinal, request, _fault in faults.met] == ["configmaps", "deployments.apps"]


def test_jobs_that_run_are_waited_for_before_the_first_write(make_cluster: Make) -> None:
    on = make_cluster()
    put(on.world, running_job(), phase="Running")
    assert on.roll(running_jobs="refuse")["findings"][0]["code"] == "jobs_running"
    assert on.asked() == []
    on.world.machine.after(20.0, lambda: becomes(on.world, "j", phase="Succeeded"), "the job ends")
    began = on.world.machine.now
    assert on.roll()["outcome"] == "restarted"
    first = next(sent.arrived for sent in on.world.log if configures(sent.request))
    assert first >= began + 20.0
    on = make_cluster()
    put(on.world, running_job(), phase="Running")
    assert on.roll(timeout="60s")["findings"][0]["code"] == "jobs_running"
    assert on.asked() == []
    assert on.roll(running_jobs="ignore")["outcome"] == "restarted"


def test_a_deployment_without_pods_gets_the_configuration_and_no_restart(make_cluster: Make) -> None:
    on = make_cluster(replicas=0)
    done = on.roll()
    assert (done["outcome"], done["running_config_matches"]) == ("changed", None)
    assert on.workload()["spec"]["replicas"] == 0
    assert DIGEST in on.workload()["spec"]["template"]["metadata"]["annotations"]
    assert on.roll()["outcome"] == "unchanged"


def test_a_restart_that_is_not_wanted(make_cluster: Make) -> None:
    on = make_cluster()
    done = on.roll(restart="none")
    assert (done["outcome"], done["running_config_matches"]) == ("changed", None)
    assert on.roll()["outcome"] == "restarted", "the next call without it sees what is missing"


def test_a_configuration_is_noted_before_it_is_written_also_without_a_restart(make_cluster: Make) -> None:
    on = make_cluster()
    on.roll(restart="none")
    assert on.asked() == ["create configmaps", "patch configmaps", "delete configmaps"]


@pytest.mark.parametrize(("there", "verb"), [(True, "Change"), (False, "Write")])
def test_the_change_of_a_configuration_says_whether_there_was_one(make_cluster: Make, there: bool, verb: str) -> None:
    on = make_cluster(OLD if there else None, replicas=0)
    done = on.roll(restart="none", check=True)
    assert f"{verb} the configuration in ConfigMap {HOME}/{CONFIG}, key {CONFIG}" in done["actions"]


def test_only_a_configuration_that_meets_a_pause_speaks_of_it(make_cluster: Make) -> None:
    on = make_cluster()
    assert "paused" not in on.roll()["msg"]
    assert "is paused already" not in on.roll(None, state="paused")["msg"]
    assert "resume them" not in on.roll(None, state="paused")["msg"]
    assert "Its evictions stay paused" in on.roll(f"{NEW}maxNoOfPodsToEvictTotal: 3\n")["msg"]


def test_what_is_waited_for_is_told_once(make_cluster: Make) -> None:
    on = make_cluster()
    on.world.patch(kinds.NODES, "infra", {"spec": {"unschedulable": True}})
    assert on.roll(timeout="20s")["outcome"] == "rolled_back"
    told = [event.message for event in on.world.process("ann").told if event.message.startswith("waiting: ")]
    assert told
    assert len(told) == len(set(told))


def test_scaling_ends_the_old_pods_before_the_new_ones_start(make_cluster: Make) -> None:
    on = make_cluster()
    (old,) = on.descheduler.runs
    on.roll(restart="scale")
    counts = [
        sent.request.body["spec"]["replicas"]
        for sent in on.world.log
        if patches(kinds.DEPLOYMENTS.resource)(sent.request) and sent.request.body
    ]
    assert counts == [0, 1]
    assert old not in [pod["metadata"]["name"] for pod in on.world.pods(namespace=HOME)]


def test_evictions_are_paused_and_given_back(make_cluster: Make) -> None:
    on = make_cluster()
    before = on.text()
    assert on.roll(None, state="paused")["outcome"] == "restarted"
    assert on.text() == f"{OLD}dryRun: true\n"
    assert on.roll(None, state="paused")["outcome"] == "unchanged"
    assert on.journals()
    assert on.roll(None, state="resumed")["outcome"] == "restarted"
    assert (on.text(), on.journals()) == (before, [])
    assert on.roll(None, state="resumed")["outcome"] == "unchanged"


@pytest.mark.parametrize("write", range(1, 9))
def test_a_pause_and_its_end_killed_at_any_write(make_cluster: Make, write: int) -> None:
    for state in ("paused", "resumed"):
        on = make_cluster()
        if state == "resumed":
            on.roll(None, state="paused")
        on.killed_at(write, "killed after", None, state=state)
        on.roll(None, state=state)
        if state == "paused":
            assert "dryRun: true" in on.text()
            on.roll(None, state="resumed")
        assert (on.text(), on.journals()) == (OLD, [])


def test_what_somebody_configured_during_a_pause_is_kept(make_cluster: Make) -> None:
    on = make_cluster()
    on.roll(None, state="paused")
    on.write_text(NEW)
    assert "kept" in on.roll(None, state="resumed")["msg"]
    assert (on.text(), on.journals()) == (NEW, [])


def test_a_cron_job_is_never_restarted_and_paused_by_suspending(make_cluster: Make) -> None:
    on = make_cluster()
    policy = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: []\n"
    place = "kube-system"
    on.world.delete(kinds.DEPLOYMENTS, NAME, HOME)
    on.world.apply(config_map(POLICY, place, **{"policy.yaml": policy}), cron_job(place))
    done = on.roll(f"# new\n{policy}", flavor="sigs")
    assert (done["outcome"], done["restarted"], done["failed"]) == ("changed", False, False)
    assert "next run" in done["msg"]
    assert on.roll(f"# new\n{policy}", flavor="sigs")["outcome"] == "unchanged"
    assert on.roll(None, flavor="sigs", state="paused")["outcome"] == "changed"
    assert on.world.get(kinds.CRON_JOBS, "descheduler", place)["spec"]["suspend"] is True
    assert on.roll(None, state="resumed")["outcome"] == "changed"
    assert on.world.get(kinds.CRON_JOBS, "descheduler", place)["spec"]["suspend"] is False
    assert on.journals() == []


def test_nobody_may_see_the_pods_configuration(make_cluster: Make) -> None:
    on = make_cluster()
    on.deny("get pods/portforward")
    assert on.roll()["proof"] == "log"
    on.deny("get pods/log")
    done = on.roll(NEW.replace("60s", "61s"))
    assert done["proof"] == "ready"
    assert "pods/log" in done["proof_note"]


@pytest.mark.parametrize(
    "refused",
    [
        f"patch configmaps {HOME}",
        f"patch deployments.apps {HOME}",
        f"create configmaps {names.NAMESPACE}",
        f"delete configmaps {names.NAMESPACE}",
        f"patch configmaps {names.NAMESPACE}",
    ],
)
def test_a_permission_that_is_missing_stops_before_the_first_write(make_cluster: Make, refused: str) -> None:
    on = make_cluster()
    on.deny(refused)
    done = on.roll()
    assert done["findings"][0]["code"] == "missing_permission"
    assert on.asked() == []
    assert on.roll(OLD)["outcome"] == "unchanged", "who has nothing to write needs no right to"


def test_permissions_that_are_missing_are_named_together(make_cluster: Make) -> None:
    on = make_cluster()
    on.deny(f"patch deployments.apps {HOME}", f"create configmaps {names.NAMESPACE}")
    done = on.roll()
    assert f"may not patch deployments.apps in namespace {HOME}" in done["msg"]
    assert f"may not create configmaps in namespace {names.NAMESPACE}" in done["msg"]


def test_what_cannot_be_written_or_restarted_stops_before_the_first_write(make_cluster: Make) -> None:
    on = make_cluster()
    on.world.patch(kinds.CONFIGMAPS, CONFIG, {"immutable": True}, HOME)
    assert on.roll()["findings"][0]["code"] == "immutable"
    on = make_cluster()
    on.world.patch(kinds.DEPLOYMENTS, NAME, {"spec": {"paused": True}}, HOME)
    assert on.roll()["findings"][0]["code"] == "deployment_paused"
    assert on.asked() == []
    assert on.roll(restart="none")["outcome"] == "changed"


def test_pods_that_are_ready_for_a_moment_prove_nothing(make_cluster: Make) -> None:
    """Where nobody can read what runs; the descheduler of sigs.k8s.io looks at some of its policy later."""
    on = make_cluster()
    on.deny("get pods/portforward", "get pods/log")
    on.descheduler.well = 6.0
    before = on.kept()
    done = on.roll()
    assert done["outcome"] == "rolled_back"
    assert done["reason"] == "no-such-class not found"
    assert on.kept() == before


def test_names_that_are_not_there(make_cluster: Make) -> None:
    on = make_cluster()
    typo = on.roll(deployment="koord-desheduler")
    assert typo["findings"][0]["code"] == "unknown_deployment"
    assert "Did you mean deployment: koord-descheduler?" in typo["msg"]
    assert "Did you mean config_map: koord-descheduler-config?" in on.roll(config_map="koord-config")["msg"]
    assert on.asked() == []
