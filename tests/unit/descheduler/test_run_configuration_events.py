# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What calls of `descheduler_config` tell while they work, and what their results say."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    BAD,
    CONFIG,
    HOME,
    NAME,
    NEW,
    Cluster,
    config_map,
    mounting,
    writes,
)


@pytest.fixture
def make_cluster() -> t.Iterator[t.Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**options: t.Any) -> Cluster:
        made.append(Cluster(**options))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


def told(done: Raw, what: str) -> list[str]:
    return [event["message"] for event in done["timeline"] if event["what"] == what]


def test_a_restart_is_told_with_its_reason_and_nothing_of_a_call_without_one(
    make_cluster: t.Callable[..., Cluster],
) -> None:
    one = make_cluster()
    done = one.roll()
    assert told(done, "restarted") == ["restarted: the configuration changes"]
    assert (done["restarted"], done["rolled_back"]) == (True, False)
    done = one.roll()
    assert (done["outcome"], done["restarted"], told(done, "restarted")) == ("unchanged", False, [])


def test_a_descheduler_without_pods_is_annotated_and_starts_with_the_new_one(
    make_cluster: t.Callable[..., Cluster],
) -> None:
    one = make_cluster(replicas=0)
    done = one.roll()
    assert told(done, "restarted") == ["annotated: the configuration changes"]
    assert done["restarted"] is False
    assert (one.text(), one.workload()["spec"]["replicas"]) == (NEW, 0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_restart_by_scaling_tells_of_it_and_ends_with_as_many_pods(
    make_cluster: t.Callable[..., Cluster], replicas: int
) -> None:
    one = make_cluster(replicas=replicas)
    done = one.roll(restart="scale")
    assert [line.rpartition(": ")[2] for line in told(done, "scaled")] == ["scaled to 0"]
    assert one.workload()["spec"]["replicas"] == replicas
    one = make_cluster()
    assert told(one.roll(), "scaled") == []


def test_a_deployment_that_names_no_count_has_one_pod(make_cluster: t.Callable[..., Cluster]) -> None:
    one = make_cluster()
    workload = one.workload()
    for raw in (one.world.store.of(kinds.DEPLOYMENTS.resource)[HOME, NAME], workload):
        raw["spec"].pop("replicas", None)
    done = one.roll(restart="scale")
    assert (done["outcome"], done["failed"]) == ("restarted", False)
    assert one.workload()["spec"]["replicas"] == 1


def test_what_was_restored_is_told_and_what_runs_then(make_cluster: t.Callable[..., Cluster]) -> None:
    done = make_cluster().roll(BAD)
    [line] = told(done, "rolled_back")
    assert line.endswith(f"rolled back: ConfigMap and Deployment {HOME}/{NAME} are restored, and the old one runs")
    assert (done["restarted"], done["rolled_back"]) == (True, True)


def test_what_somebody_else_wrote_meanwhile_is_kept_and_its_pods_run(
    make_cluster: t.Callable[..., Cluster],
) -> None:
    one = make_cluster()
    task = one.begin("ann", BAD)
    one.world.machine.run_until(lambda: one.text() == BAD, within=60.0)
    one.write_text(f"{NEW}# theirs\n")
    done = one.end(task)
    assert one.text() == f"{NEW}# theirs\n"
    [line] = told(done, "rolled_back")
    assert line == f"rolled back: Deployment {HOME}/{NAME} is restored, and its pods run"


def test_a_configuration_that_never_runs_is_told_with_the_time_it_had(
    make_cluster: t.Callable[..., Cluster],
) -> None:
    one = make_cluster()
    one.world.patch(kinds.DEPLOYMENTS, NAME, {"spec": {"template": {"spec": {"nodeSelector": {"no": "node"}}}}}, HOME)
    done = one.roll(timeout="30s", rollback=False)
    assert "The new configuration does not run within 30 s." in done["msg"]
    assert "does not run." in make_cluster().roll(BAD, rollback=False)["msg"], "one that crashes needs no time"


@pytest.mark.parametrize(("field", "refused"), [("binaryData", True), ("data", False)])
def test_a_configuration_in_binary_data_cannot_be_written(
    make_cluster: t.Callable[..., Cluster], field: str, refused: bool
) -> None:
    one = make_cluster()
    if refused:
        body = {"data": {CONFIG: None}, "binaryData": {CONFIG: "YTogMQo="}}
        one.world.patch(kinds.CONFIGMAPS, CONFIG, body, HOME)
    done = one.roll()
    assert ([finding["code"] for finding in done["findings"]] == ["immutable"]) == refused
    assert done["failed"] == refused


def test_of_several_missing_rights_all_are_told(make_cluster: t.Callable[..., Cluster]) -> None:
    one = make_cluster()
    one.deny("patch configmaps", "patch deployments.apps")
    done = one.roll()
    [finding] = done["findings"]
    assert "configmaps" in finding["message"]
    assert "deployments" in finding["message"]
    assert finding["object"] == "ClusterRole kubeops-node-maintenance-descheduler"


# -- the lock, and what may not be done ------------------------------------------------------------------

POLICY = "descheduler-policy-configmap"
SIGS = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: []\n"
PLACE = "kube-system"


@pytest.fixture
def sigs(make_cluster: t.Callable[..., Cluster]) -> Cluster:
    """The descheduler of sigs.k8s.io with two pods, and no other one."""
    one = make_cluster()
    one.world.delete(kinds.DEPLOYMENTS, NAME, HOME)
    one.world.apply(config_map(POLICY, PLACE, **{"policy.yaml": SIGS}))
    one.world.apply(manifests.deployment("descheduler", 2, namespace=PLACE, volumes=mounting(POLICY)))
    one.world.settle()
    one.world.log.clear()
    return one


def written(one: Cluster) -> list[str]:
    return [f"{s.request.verb} {s.request.resource}" for s in one.world.log if writes(s.request)]


def test_a_descheduler_is_stopped_and_started_under_its_lock(sigs: Cluster) -> None:
    for state, count in (("paused", 0), ("resumed", 2)):
        sigs.world.log.clear()
        assert sigs.roll(None, flavor="sigs", state=state)["outcome"] == "changed"
        found = written(sigs)
        assert found[0] == f"create {kinds.LEASES.resource}", state
        assert found[-1] == f"delete {kinds.LEASES.resource}", state
        assert sigs.world.get(kinds.DEPLOYMENTS, "descheduler", PLACE)["spec"]["replicas"] == count


@pytest.mark.parametrize("state", ["paused", "resumed"])
def test_who_may_not_scale_it_writes_nothing_not_even_a_lock(sigs: Cluster, state: str) -> None:
    if state == "resumed":
        sigs.roll(None, flavor="sigs", state="paused")
    sigs.deny(f"patch {kinds.DEPLOYMENTS.resource}")
    sigs.world.log.clear()
    done = sigs.roll(None, flavor="sigs", state=state)
    assert (done["failed"], written(sigs)) == (True, [])
    assert "deployments" in done["findings"][0]["message"]


@pytest.mark.parametrize("state", ["paused", "resumed"])
def test_to_stop_and_start_it_needs_no_right_to_its_configuration(sigs: Cluster, state: str) -> None:
    if state == "resumed":
        sigs.roll(None, flavor="sigs", state="paused")
    sigs.deny(f"patch {kinds.CONFIGMAPS.resource} {PLACE}")
    assert sigs.roll(None, flavor="sigs", state=state)["outcome"] == "changed"


def test_who_may_not_roll_out_writes_nothing_not_even_a_lock(make_cluster: t.Callable[..., Cluster]) -> None:
    one = make_cluster()
    one.deny(f"patch {kinds.DEPLOYMENTS.resource}")
    one.world.log.clear()
    assert (one.roll()["failed"], written(one)) == (True, [])


def test_check_mode_shows_the_texts_and_the_count_and_writes_nothing(sigs: Cluster) -> None:
    done = sigs.roll(None, flavor="sigs", state="paused", check=True)
    assert (done["outcome"], written(sigs)) == ("changed", [])
    assert f"Scale Deployment {PLACE}/descheduler from 2 to 0" in done["actions"]
