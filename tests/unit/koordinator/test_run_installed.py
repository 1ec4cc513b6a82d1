# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""koord-descheduler is found by what it does, whatever its names are, and its limits are those with which it runs."""

from __future__ import annotations

import contextlib
import typing as t

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import rollout
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.installation import Location
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import run_installed
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_installed import Koordinator
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, workloads
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.answers import Refused
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.programs import Program
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import still_world

IMAGE = "mirror.example/infra/koord-descheduler@sha256:0123"
COMMAND = {"image": "mirror.example/k:1", "command": ["/bin/sh", "-c", "exec /koord-descheduler --config=/etc/d/conf"]}
ARGS = {"image": IMAGE, "args": ["--config=/etc/d/conf"]}


def text(per_node: int) -> str:
    """A configuration with this limit."""
    plugin = {"name": "MigrationController", "args": {"maxMigratingPerNode": per_node}}
    profile = {"name": "koord-descheduler", "pluginConfig": [plugin]}
    return yaml.safe_dump({"kind": "DeschedulerConfiguration", "profiles": [profile]})


def release(world: World, namespace: str, name: str, per_node: int = 3, **container: t.Any) -> None:
    """A Deployment whose container reads the key `file` of ConfigMap `<name>-settings`."""
    mount = {"name": "settings", "mountPath": "/etc/d"}
    source = {"name": f"{name}-settings", "items": [{"key": "file", "path": "conf"}]}
    pod: Raw = {
        "namespace": namespace,
        "containers": [{"name": "c", "volumeMounts": [mount], **ARGS, **container}],
        "volumes": [{"name": "other", "emptyDir": {}}, {"name": "settings", "configMap": source}],
    }
    meta = {"name": f"{name}-settings", "namespace": namespace}
    with contextlib.suppress(Refused):
        world.apply(manifests.namespace(namespace))
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"file": text(per_node)}})
    world.apply(manifests.deployment(name, 1, **pod))
    world.settle()


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world(manifests.node("infra")) as made:
        yield made


def look(world: World, **given: str) -> Koordinator:
    names = {"namespace": "", "deployment": "", "config_map": "", "key": "", **given}
    return world.process("me").run(lambda ctx: run_installed.look(ctx, Location(**names), reserves=True))


def limit(found: Koordinator) -> int | None:
    return found.controller.max_migrating_per_node if found.controller else None


def codes(found: Koordinator) -> list[str]:
    return [finding.code for finding in found.missing]


@pytest.mark.parametrize("container", [ARGS, COMMAND, {"image": "x", "command": ["/opt/koord-descheduler"]}])
def test_a_release_is_found_by_its_image_or_command_and_its_file(world: World, container: Raw) -> None:
    release(world, "infra", "desched", **{"args": ARGS["args"], **container})
    found = look(world)
    assert (codes(found), limit(found), found.source) == ([], 3, "ConfigMap infra/desched-settings")


def test_another_program_with_its_name_in_a_flag_is_not_it(world: World) -> None:
    release(world, "infra", "desched", image="x", args=["--leader-elect-resource-name=koord-descheduler"])
    found = look(world)
    assert codes(found) == ["no_controller"]
    assert "There is no Deployment that runs koord-descheduler" in found.missing[0].message


def test_two_at_work_are_named_with_the_option_that_tells_them_apart(world: World) -> None:
    release(world, "blue", "desched", 3)
    release(world, "green", "desched", 4)
    found = look(world)
    assert codes(found) == ["several_koordinators"]
    assert "blue/desched and green/desched" in found.missing[0].message
    assert "koordinator_namespace" in found.missing[0].remedy
    assert limit(look(world, namespace="green")) == 4
    release(world, "green", "second", 5)
    assert "koordinator_deployment" in look(world, namespace="green").missing[0].remedy
    assert limit(look(world, deployment="second")) == 5


def renewing(world: World, namespace: str, name: str, holder: str) -> None:
    """A leader that renews its Lease every two seconds."""
    leader, count = world.process(holder), iter(range(1, 1000))
    spec = {"holderIdentity": f"{holder}_0", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    meta = {"name": name, "namespace": namespace}
    world.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    def lead() -> None:
        while True:
            leader.clock.sleep(2.0)
            world.patch(kinds.LEASES, name, {"spec": {"leaseTransitions": next(count)}}, namespace)

    leader.spawn(lead)


def test_of_two_the_one_whose_leader_renews_its_lease_is_at_work(world: World) -> None:
    elects = ["--config=/etc/d/conf", "--leader-elect-resource-namespace"]
    for namespace, per_node in (("blue", 3), ("green", 4)):
        release(world, namespace, "desched", per_node, args=[*elects, namespace])
    renewing(world, "green", "koord-descheduler", "desched-7d9f-abcde")
    began = world.machine.now
    found = look(world)
    assert (codes(found), limit(found)) == ([], 4)
    assert world.machine.now - began < 5.0, "nobody waits for a Lease that is not there"


def test_of_two_with_one_lease_the_holders_is_at_work(world: World) -> None:
    for name, per_node in (("desched", 3), ("desched-new", 4)):
        release(world, "infra", name, per_node, args=[*ARGS["args"], "--leader-elect-resource-namespace=infra"])
    renewing(world, "infra", "koord-descheduler", "desched-new-7d9f-abcde")
    assert limit(look(world)) == 4


def test_a_leader_that_has_ended_is_waited_for_as_long_as_its_lease_lasts(world: World) -> None:
    for name, seconds in (("blue", 4), ("green", None)):
        args = ["--config=/etc/d/conf", "--leader-elect-resource-namespace", name]
        release(world, name, "desched", args=args)
        renewing(world, name, "koord-descheduler", f"desched-{name}-abcde")
        world.actors[f"desched-{name}-abcde"].process.kill()
        lease = {"spec": {"leaseDurationSeconds": seconds}}
        world.patch(kinds.LEASES, "koord-descheduler", lease, name)
    taken = []
    for deleted in ("", "green"):
        if deleted:
            world.delete(kinds.LEASES, "koord-descheduler", deleted)
        began = world.machine.now
        assert codes(look(world)) == ["several_koordinators"]
        taken.append(world.machine.now - began)
    assert 15.0 <= taken[0] < 17.0, "a Lease that does not say lasts as long as most"
    assert 4.0 <= taken[1] < 6.0


@pytest.mark.parametrize("alive", [True, False])
def test_a_lease_that_is_renewed_shows_one_that_is_no_deployment(world: World, alive: bool) -> None:
    release(world, "infra", "koord-descheduler-config", image="x")
    meta = {"name": "koord-descheduler-config", "namespace": "koordinator-system"}
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {meta["name"]: text(7)}})
    renewing(world, "koordinator-system", "koord-descheduler", "master-1")
    if not alive:
        world.actors["master-1"].process.kill()
    found = look(world)
    assert (codes(found), limit(found)) == (([], 7) if alive else (["no_controller"], None))


def test_names_that_are_given_are_not_searched(world: World) -> None:
    release(world, "infra", "desched", 3, image="unknown", args=["--config=/elsewhere"])
    meta = {"name": "mine", "namespace": "infra"}
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"file": text(6)}})
    found = look(world, namespace="infra", deployment="desched", config_map="mine", key="file")
    assert (codes(found), limit(found)) == ([], 6)
    lost = look(world, namespace="infra", deployment="lost")
    assert (codes(lost), lost.missing[0].message.split(":")[0]) == (
        ["no_controller"],
        "There is no Deployment lost in namespace infra",
    )


def test_without_a_deployment_a_configuration_that_elects_no_leader_shows_nothing(world: World) -> None:
    meta = {"name": "koord-descheduler-config", "namespace": "koordinator-system"}
    data = {meta["name"]: text(7) + "leaderElection: {leaderElect: false}\n"}
    world.apply(manifests.namespace("koordinator-system"))
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    assert codes(look(world)) == ["no_controller"]


class Running(Program):
    """A koord-descheduler that runs with this limit, as /configz tells in Go's names."""

    def __init__(self, per_node: int) -> None:
        evict = {"Evict": {"Enabled": [{"Name": "MigrationController"}], "Disabled": None}}
        args = {"MaxMigratingPerNode": per_node, "ObjectLimiters": {"workload": {"Duration": "5m0s", "Burst": 0}}}
        plugin = {"Name": "MigrationController", "Args": args}
        profile = {"Name": "koord-descheduler", "Plugins": evict, "PluginConfig": [plugin]}
        self.config: Raw = {"Profiles": [profile]}

    def page(self, pod: Raw) -> Raw:
        return {"componentconfig": self.config}


def test_an_edit_without_a_restart_is_told_and_the_running_limits_count(world: World) -> None:
    world.server.program = Running(3)
    release(world, "infra", "desched", 3)
    assert [one.message for one in look(world).unsure] == []
    world.patch(kinds.CONFIGMAPS, "desched-settings", {"data": {"file": text(9)}}, "infra")
    found = look(world)
    assert (limit(found), [one.code for one in found.unsure]) == (3, ["limits_not_running"])
    assert "maxMigratingPerNode is 3, not 9" in found.unsure[0].message
    world.server.denied.add(("get", kinds.CONFIGMAPS.resource))
    assert (limit(look(world)), look(world).doubt) == (3, ""), "what runs needs no ConfigMap"


def test_what_cannot_be_asked_is_believed_by_its_digest_or_not_without_a_word(world: World) -> None:
    release(world, "infra", "desched", 3)
    found = look(world)
    assert (limit(found), [(one.code, one.severity) for one in found.unsure]) == (3, [("limits_unproven", "info")])
    assert "pods/portforward" in found.unsure[0].remedy
    note = {rollout.DIGEST: rollout.digest(yaml.safe_load(text(3)))}
    template = {"spec": {"template": {"metadata": {"annotations": note}}}}
    world.patch(kinds.DEPLOYMENTS, "desched", template, "infra")
    world.settle()
    assert look(world).unsure == ()
    world.patch(kinds.CONFIGMAPS, "desched-settings", {"data": {"file": text(9)}}, "infra")
    found = look(world)
    assert [(one.code, one.severity) for one in found.unsure] == [("limits_unproven", "warning")]
    assert "was changed since its pods started" in found.unsure[0].message


def test_where_deployments_may_not_be_listed_the_charts_names_are_tried(world: World) -> None:
    release(world, "kube-system", "ack-koord-descheduler", 4)
    world.server.denied.add(("list", kinds.DEPLOYMENTS.resource))
    assert limit(look(world)) == 4
    world.server.denied.add(("get", kinds.DEPLOYMENTS.resource))
    assert codes(look(world)) == [], "what may not be read is believed"


def test_a_chart_in_another_namespace_is_found_by_its_name_where_that_is_given(world: World) -> None:
    release(world, "mine", "koord-descheduler", 4)
    world.server.denied.add(("list", kinds.DEPLOYMENTS.resource))
    assert limit(look(world, namespace="mine")) == 4


@pytest.mark.parametrize("listed", [True, False])
def test_a_scheduler_without_a_ready_pod_is_missing_also_where_deployments_may_not_be_listed(
    world: World, listed: bool
) -> None:
    release(world, "koordinator-system", "koord-descheduler")
    world.apply(manifests.deployment("koord-scheduler", 1, namespace="koordinator-system", image="koord-scheduler"))
    world.settle()
    world.controller(workloads.Deployments).stop()
    if not listed:
        world.server.denied.add(("list", kinds.DEPLOYMENTS.resource))
    assert codes(look(world)) == []
    world.patch(
        kinds.DEPLOYMENTS, "koord-scheduler", {"status": {"readyReplicas": None}}, "koordinator-system", "status"
    )
    world.log.clear()
    assert codes(look(world)) == ["no_scheduler"]
    read = [sent.request for sent in world.log if (sent.request.verb, sent.request.name) == ("get", "koord-scheduler")]
    assert len(read) == (not listed)
    found = world.process("me").run(lambda ctx: run_installed.look(ctx, Location("", "", "", ""), reserves=False))
    assert codes(found) == [], "nothing is reserved"


def test_a_cluster_without_reservations_lacks_that_kind_and_is_asked_for_one_object(world: World) -> None:
    look(world)
    [request] = [sent.request for sent in world.log if sent.request.resource == kinds.RESERVATIONS.resource]
    assert ("limit", "1") in request.query
    world.server.absent.add(kinds.RESERVATIONS.resource)
    [finding] = look(world).missing
    assert finding.message.startswith(f"The cluster has no {kinds.RESERVATIONS.resource}:")


@pytest.mark.parametrize("asked", [True, False])
def test_a_descheduler_without_the_migration_controller_works_on_no_job(world: World, asked: bool) -> None:
    release(world, "infra", "desched")
    if asked:
        world.server.program = program = Running(3)
        program.config["Profiles"][0]["Plugins"] = {"Evict": {"Enabled": [{"Name": "DefaultEvictor"}]}}
    else:
        only = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
        points = {"evict": only, "filter": only}
        config = {"kind": "DeschedulerConfiguration", "profiles": [{"name": "koord-descheduler", "plugins": points}]}
        world.patch(kinds.CONFIGMAPS, "desched-settings", {"data": {"file": yaml.safe_dump(config)}}, "infra")
    found = look(world)
    assert (codes(found), limit(found)) == (["no_controller"], None)
    assert "no profile has the plugin MigrationController" in found.missing[0].message


class Mixed(Running):
    """Pods of which those after the first were started with another limit."""

    def __init__(self) -> None:
        super().__init__(3)
        self.pods: list[str] = []

    def start(self, pod: Raw) -> str:
        self.pods.append(pod["metadata"]["name"])
        return ""

    def page(self, pod: Raw) -> Raw:
        return Running(3 + self.pods.index(pod["metadata"]["name"])).page(pod)


@pytest.mark.parametrize("leader", [0, 1])
def test_of_two_pods_the_leaders_limits_count(world: World, leader: int) -> None:
    world.server.program = program = Mixed()
    release(world, "infra", "desched", 3, args=[*ARGS["args"], "--leader-elect-resource-namespace", "infra"])
    world.patch(kinds.DEPLOYMENTS, "desched", {"spec": {"replicas": 2}}, "infra")
    world.settle()
    renewing(world, "infra", "koord-descheduler", program.pods[leader])
    assert limit(look(world)) == 3 + leader
