# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes and claims against nodes: each rule at its boundary, as the scheduler's volume plugins have it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import storage
from ansible_collections.kubeops.node_maintenance.tests.unit.support.placed import (
    HOST,
    ZONE,
    Raw,
    claim,
    guest,
    mounts,
    node,
    pod,
    scheduler,
    volume,
)

OLD_ZONE, OLD_REGION = storage.ZONES[:2]
DRIVER = "csi.example.com"


def late(**more: t.Any) -> Raw:
    """A class whose claims wait for a pod, and for which nothing is provisioned."""
    made = {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
    return {**made, "provisioner": "kubernetes.io/no-provisioner", **more}


def waiting(name: str, size: str = "1Gi", **more: t.Any) -> Raw:
    made = claim(name, cls="late")
    made["spec"].update({"resources": {"requests": {"storage": size}}, **more})
    return made


def free(name: str, size: str = "1Gi", on: str = "", **more: t.Any) -> Raw:
    made = volume(name, on=on)
    made["spec"].update({"storageClassName": "late", "accessModes": ["ReadWriteOnce"], **more})
    made["spec"]["capacity"] = {"storage": size}
    return {**made, "status": {"phase": "Available"}}


def two(*names: str) -> Raw:
    return {"volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]}


def why(new: Raw, *raws: Raw, **kinds: list[Raw]) -> dict[str, int]:
    return dict(scheduler(*raws, **kinds).answer(guest(new)).reasons)


def fits(claims: list[Raw], volumes: list[Raw], cls: Raw | None = None) -> bool:
    names = [raw["metadata"]["name"] for raw in claims]
    asked = scheduler(node("n1"), claims=claims, volumes=volumes, storage_classes=[cls or late()])
    return bool(asked.answer(guest(pod("p", **two(*names)))).nodes)


@pytest.mark.parametrize(
    ("sizes", "volumes", "enough"),
    [
        (["1Gi", "1Gi"], ["1Gi", "1Gi"], True),
        (["1Gi", "1Gi"], ["1Gi"], False),
        (["3Gi", "1Gi"], ["3Gi", "1Gi"], True),
        (["1Gi", "3Gi"], ["2Gi", "1Gi"], False),
        (["2Gi", "1Gi"], ["1Gi", "2Gi"], True),
    ],
    ids=["one each", "one for two", "large and small", "none large enough", "the smallest that does"],
)
def test_each_claim_takes_a_volume_of_its_own(sizes: list[str], volumes: list[str], enough: bool) -> None:
    claims = [waiting(f"c{n}", size) for n, size in enumerate(sizes)]
    assert fits(claims, [free(f"v{n}", size) for n, size in enumerate(volumes)]) is enough


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, True),
        ({"volumeMode": "Block"}, False),
        ({"storageClassName": "other"}, False),
        ({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}, True),
        ({"accessModes": []}, False),
        ({"claimRef": {"namespace": "shop", "name": "c"}}, True),
        ({"claimRef": {"namespace": "shop", "name": "d"}}, False),
        ({"claimRef": {"namespace": "bank", "name": "c"}}, False),
        ({"capacity": {"storage": "1Mi"}, "claimRef": {"namespace": "shop", "name": "c"}}, False),
    ],
    ids=[
        "as wanted",
        "a block",
        "of another class",
        "more modes",
        "no mode",
        "kept",
        "of another",
        "elsewhere",
        "small",
    ],
)
def test_a_volume_serves_a_claim_as_the_scheduler_binds_it(change: Raw, found: bool) -> None:
    assert fits([waiting("c")], [free("v", **change) if "capacity" not in change else small(change)]) is found


def small(change: Raw) -> Raw:
    made = free("v", "1Mi")
    made["spec"]["claimRef"] = change["claimRef"]
    return made


@pytest.mark.parametrize(
    ("meta", "status", "on", "found"),
    [
        ({}, "Available", "n1", True),
        ({}, "Available", "n2", False),
        ({}, "Released", "", False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Available", "", False),
    ],
)
def test_a_volume_has_to_be_free_and_reachable(meta: Raw, status: str, on: str, found: bool) -> None:
    made = free("v", on=on)
    made["metadata"].update(meta)
    assert fits([waiting("c")], [{**made, "status": {"phase": status}}]) is found


def test_a_volume_kept_for_the_claim_may_be_of_any_phase_mode_and_label() -> None:
    kept = free("v", claimRef={"namespace": "shop", "name": "c"}, accessModes=[])
    wanted = waiting("c", selector={"matchLabels": {"disk": "ssd"}})
    assert fits([wanted], [{**kept, "status": {"phase": "Pending"}}])


def test_a_block_claim_takes_a_block_volume() -> None:
    wanted = waiting("c", volumeMode="Block")
    assert fits([wanted], [free("v", volumeMode="Block")])
    assert not fits([wanted], [free("v")])


ZONES_ALLOWED: Raw = {"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}
ELSEWHERE: Raw = {"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}
BOTH: Raw = {"matchLabelExpressions": [*ZONES_ALLOWED["matchLabelExpressions"], {"key": "rack", "values": ["1"]}]}


@pytest.mark.parametrize(
    ("terms", "provisioned"),
    [
        (None, True),
        ([], True),
        ([ZONES_ALLOWED], True),
        ([ELSEWHERE], False),
        ([ELSEWHERE, ZONES_ALLOWED], True),
        ([BOTH], False),
        ([{}], True),
    ],
)
def test_what_has_a_provisioner_is_made_where_its_class_allows(terms: list[Raw] | None, provisioned: bool) -> None:
    assert fits([waiting("c")], [], late(provisioner=DRIVER, allowedTopologies=terms)) is provisioned


@pytest.mark.parametrize("provisioner", ["", "kubernetes.io/no-provisioner"])
def test_without_a_provisioner_a_volume_has_to_be_there(provisioner: str) -> None:
    assert not fits([waiting("c")], [], late(provisioner=provisioner))


def test_one_claim_with_a_volume_leaves_the_next_one_to_be_looked_at() -> None:
    large = waiting("d", "9Gi")
    assert not fits([waiting("c"), large], [free("v")])
    assert fits([waiting("c"), large], [free("v")], late(provisioner=DRIVER))


@pytest.mark.parametrize(("selected", "nodes"), [("n1", ["n1"]), ("n2", ["n2"]), ("n3", [])])
def test_a_claim_that_is_being_provisioned_binds_the_pod_to_its_node(selected: str, nodes: list[str]) -> None:
    made = waiting("c")
    made["metadata"]["annotations"][storage.SELECTED] = selected
    kinds: dict[str, list[Raw]] = {"claims": [made], "storage_classes": [late(provisioner=DRIVER)]}
    answer = scheduler(node("n1"), node("n2"), **kinds).answer(guest(pod("p", **mounts("c"))))
    assert [place.name if hasattr(place, "name") else place for place in answer.nodes] == nodes


def test_a_claim_that_is_being_provisioned_takes_no_free_volume_instead() -> None:
    made = waiting("c")
    made["metadata"]["annotations"][storage.SELECTED] = "n1"
    assert not fits([made], [free("v")])


def bound(*names: str) -> dict[str, list[Raw]]:
    return {"claims": [claim(f"c-{n}", n) for n in names], "volumes": [volume(n) for n in names]}


def limit(count: int | None, driver: str = DRIVER) -> Raw:
    allocatable = {} if count is None else {"count": count}
    return {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": driver, "allocatable": allocatable}]}}


@pytest.mark.parametrize(
    ("most", "there", "over"),
    [
        (limit(2), ["a"], False),
        (limit(1), ["a"], True),
        (limit(1), [], False),
        (limit(0), [], True),
        (limit(1), ["new"], False),
        (limit(None), ["a", "b"], False),
        (limit(0, "csi.other.com"), ["a"], False),
    ],
    ids=["room", "full", "first", "none allowed", "mounted already", "no limit", "of another driver"],
)
def test_a_node_takes_so_many_volumes_of_a_driver(most: Raw, there: list[str], over: bool) -> None:
    kinds = bound("a", "b", "new")
    others = [pod(f"o-{n}", "n1", **mounts(f"c-{n}")) for n in there]
    found = why(pod("p", **mounts("c-new")), node("n1"), *others, csi_nodes=[most], **kinds)
    assert found == ({storage.LIMIT: 1} if over else {})


BEFORE_CSI = pytest.mark.parametrize(
    ("source", "driver"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com"),
        ({"azureDisk": {"diskName": "d", "diskURI": "/disks/d"}}, "disk.csi.azure.com"),
        ({"cinder": {"volumeID": "v"}}, "cinder.csi.openstack.org"),
        ({"gcePersistentDisk": {"pdName": "d"}}, "pd.csi.storage.gke.io"),
        ({"portworxVolume": {"volumeID": "v"}}, "pxd.portworx.com"),
    ],
)


@BEFORE_CSI
def test_volumes_of_before_csi_count_for_the_driver_that_serves_them_now(source: Raw, driver: str) -> None:
    kinds = bound("a", "new")
    kinds["volumes"][0]["spec"] = source
    kinds["volumes"][1]["spec"] = {"csi": {"driver": driver, "volumeHandle": "new"}}
    new, other = pod("p", **mounts("c-new")), pod("o", "n1", **mounts("c-a"))
    assert why(new, node("n1"), other, csi_nodes=[limit(1, driver)], **kinds) == {storage.LIMIT: 1}
    assert why(new, node("n1"), other, csi_nodes=[limit(2, driver)], **kinds) == {}
    kinds["volumes"].reverse()
    kinds["volumes"][0]["metadata"]["name"], kinds["volumes"][1]["metadata"]["name"] = "a", "new"
    assert why(new, node("n1"), other, csi_nodes=[limit(1, driver)], **kinds) == {storage.LIMIT: 1}


@BEFORE_CSI
@pytest.mark.parametrize(("most", "over"), [(1, True), (2, False)])
def test_disks_of_before_csi_in_the_pod_itself_count_too(source: Raw, driver: str, most: int, over: bool) -> None:
    kinds = bound("a")
    kinds["volumes"][0]["spec"] = {"csi": {"driver": driver, "volumeHandle": "other"}}
    disk, claimed = {"volumes": [{"name": "data", **source}]}, mounts("c-a")
    for new, there in ((disk, claimed), (claimed, disk)):
        found = why(pod("p", **new), node("n1"), pod("o", "n1", **there), csi_nodes=[limit(most, driver)], **kinds)
        assert found == ({storage.LIMIT: 1} if over else {})
    # What is named in the pod is of another driver than the one with a limit, or of none that is attached.
    volumes = [{"name": "data", "csi": {"driver": driver}}, {"name": "disk", **source}]
    assert why(pod("p", volumes=volumes), node("n1"), csi_nodes=[limit(0, "csi.other.com")]) == {}


def test_volumes_to_be_made_by_a_provisioner_of_before_csi_count_for_the_driver_too() -> None:
    kinds: dict[str, list[Raw]] = {"claims": [waiting("c")]}
    kinds["storage_classes"] = [late(provisioner="kubernetes.io/aws-ebs")]
    found = why(pod("p", **two("c")), node("n1"), csi_nodes=[limit(0, "ebs.csi.aws.com")], **kinds)
    assert found == {storage.LIMIT: 1}


@pytest.mark.parametrize(("name", "on", "over"), [("a", "n1", True), ("a", "n2", False), ("gone", "n1", False)])
def test_volumes_that_are_still_attached_count(name: str, on: str, over: bool) -> None:
    attached = {"metadata": {"name": "x"}, "spec": {"nodeName": on, "source": {"persistentVolumeName": name}}}
    kinds = bound("a", "new")
    found = why(pod("p", **mounts("c-new")), node("n1"), csi_nodes=[limit(1)], attachments=[attached], **kinds)
    assert found == ({storage.LIMIT: 1} if over else {})


@pytest.mark.parametrize(("most", "over"), [(1, True), (2, False)])
def test_volumes_to_be_made_count_by_the_driver_of_their_class(most: int, over: bool) -> None:
    claims = [waiting("c"), waiting("d")]
    kinds: dict[str, list[Raw]] = {"claims": claims, "storage_classes": [late(provisioner=DRIVER)]}
    found = why(pod("p", **two("c", "d")), node("n1"), csi_nodes=[limit(most)], **kinds)
    assert found == ({storage.LIMIT: 1} if over else {})


def test_an_ephemeral_volume_gets_a_claim_of_its_own() -> None:
    template = {"spec": {"storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}}
    new = pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
    assert why(new, node("n1"), storage_classes=[late(provisioner=DRIVER)]) == {}
    assert why(new, node("n1"), storage_classes=[late()]) == {storage.NONE_FREE: 1}
    assert why(new, node("n1"), volumes=[free("v")], storage_classes=[late()]) == {}


@pytest.mark.parametrize(
    ("labels", "on_node", "other"),
    [
        ({ZONE: "a"}, {}, False),
        ({ZONE: "b"}, {}, True),
        ({ZONE: "b__a"}, {}, False),
        ({}, {}, False),
        ({OLD_ZONE: "a"}, {}, False),
        ({OLD_ZONE: "b"}, {}, True),
        ({OLD_ZONE: "b"}, {OLD_ZONE: "b"}, False),
        ({OLD_REGION: "eu"}, {}, True),
        ({OLD_REGION: "eu"}, {"topology.kubernetes.io/region": "eu"}, False),
        ({ZONE: "a", OLD_REGION: "eu"}, {OLD_REGION: "us"}, True),
    ],
)
def test_a_volume_is_of_a_zone(labels: dict[str, str], on_node: dict[str, str], other: bool) -> None:
    made = volume("v")
    made["metadata"]["labels"] = labels
    found = why(pod("p", **mounts("c")), node("n1", labels=on_node), claims=[claim("c", "v")], volumes=[made])
    assert found == ({storage.OTHER_ZONE: 1} if other else {})


def test_a_node_without_zones_takes_volumes_of_any() -> None:
    bare = node("n1")
    bare["metadata"]["labels"] = {HOST: "n1"}
    kinds: dict[str, list[Raw]] = {"claims": [claim("c", "v")], "volumes": [volume("v", zone="b")]}
    assert why(pod("p", **mounts("c")), bare, **kinds) == {}


def disk(kind: str, **how: t.Any) -> Raw:
    return {"volumes": [{"name": "v", kind: how}]}


GCE, AWS = "gcePersistentDisk", "awsElasticBlockStore"


@pytest.mark.parametrize(
    ("mine", "other", "taken"),
    [
        (disk(GCE, pdName="x"), disk(GCE, pdName="x"), True),
        (disk(GCE, pdName="x"), disk(GCE, pdName="y"), False),
        (disk(GCE, pdName="x", readOnly=True), disk(GCE, pdName="x", readOnly=True), False),
        (disk(GCE, pdName="x", readOnly=True), disk(GCE, pdName="x"), True),
        (disk(AWS, volumeID="x"), disk(AWS, volumeID="x"), True),
        (disk(AWS, volumeID="x", readOnly=True), disk(AWS, volumeID="x", readOnly=True), True),
        (disk(AWS, volumeID="x"), disk(GCE, pdName="x"), False),
        (disk("iscsi", iqn="x"), disk("iscsi", iqn="x"), True),
        (disk("iscsi", iqn="x", readOnly=True), disk("iscsi", iqn="x", readOnly=True), False),
        (disk("rbd", monitors=["a", "b"], image="i"), disk("rbd", monitors=["b"], image="i"), True),
        (disk("rbd", monitors=["a"], image="i"), disk("rbd", monitors=["b"], image="i"), False),
        (disk("rbd", monitors=["a"], image="i"), disk("rbd", monitors=["a"], image="j"), False),
        (disk("rbd", monitors=["a"], image="i"), disk("rbd", monitors=["a"], image="i", pool="p"), False),
    ],
)
def test_a_disk_is_not_shared_on_a_node(mine: Raw, other: Raw, taken: bool) -> None:
    found = why(pod("p", **mine), node("n1"), pod("o", "n1", **other))
    assert found == ({storage.DISK: 1} if taken else {})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"status": {"phase": "Lost"}}, 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
        ({"deleting": True}, 'persistentvolumeclaim "c" is being deleted'),
        ({"unbound": True}, storage.UNBOUND),
    ],
)
def test_a_claim_that_no_node_can_help(change: Raw, text: str) -> None:
    made = {**claim("c", "v"), "status": change.get("status", {})}
    if change.get("deleting"):
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if change.get("unbound"):
        made["metadata"]["annotations"] = {}
    answer = scheduler(node("n1"), claims=[made], volumes=[volume("v")]).answer(guest(pod("p", **mounts("c"))))
    assert answer.text == f"0/1 nodes are available: {text}."


def test_the_old_annotation_names_the_class_too() -> None:
    made = waiting("c")
    made["spec"]["storageClassName"] = ""
    made["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"] = "late"
    assert fits([made], [free("v")])
