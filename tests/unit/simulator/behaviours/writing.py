# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How objects are created, read and changed, and how that is refused."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.here import Here, Raw, behaviour

CONFIG, TOP = kinds.CONFIGMAPS, kinds.DEPLOYMENTS
STALE: Raw = {"metadata": {"resourceVersion": "1"}}
OTHER = "00000000-0000-4000-8000-000000000000"


@behaviour
def create_twice(here: Here) -> t.Any:
    return [here.told(here.creation(CONFIG, "a", data={})) for _time in range(2)]


@behaviour
def create_in_a_namespace_that_is_missing(here: Here) -> t.Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    return here.told(verbs.create(CONFIG, body, namespace="nowhere-at-all"))


@behaviour
def create_with_a_generated_name(here: Here) -> t.Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    name = here.send(verbs.create(CONFIG, body, namespace=here.namespace))["metadata"]["name"]
    return [name.startswith("made-"), len(name)]


@behaviour
def create_sets_what_is_the_servers_own(here: Here) -> t.Any:
    given = {"uid": OTHER, "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": here.template("a"), "replicas": 0}
    made = here.make(TOP, "a", meta=given, spec=spec, status={"replicas": 7, "readyReplicas": 7})
    meta = made["metadata"]
    old = [meta["uid"] == OTHER, meta["creationTimestamp"].startswith("2001"), meta["generation"]]
    return [*old, made.get("status")]


@behaviour
def create_without_replicas_wants_one(here: Here) -> t.Any:
    return here.workload(TOP, "a", nodeName="nowhere")["spec"]["replicas"]


@behaviour
def get_what_is_missing(here: Here) -> t.Any:
    return [here.told(verbs.get(kind, "gone", here.namespace)) for kind in (CONFIG, TOP, kinds.LEASES)]


@behaviour
def list_a_kind_that_is_missing(here: Here) -> t.Any:
    return here.told(verbs.list_page(kinds.ROLLOUTS))


@behaviour
def patch_what_is_missing(here: Here) -> t.Any:
    return here.told(here.patching(CONFIG, "gone", {"data": {"key": "x"}}))


@behaviour
def patch_of_an_old_version(here: Here) -> t.Any:
    here.make(CONFIG, "a", data={"key": "x"})
    here.workload(TOP, "a", 0)
    node = here.nodes(1)[0]
    told = [here.told(here.patching(kind, "a", STALE)) for kind in (CONFIG, TOP)]
    return [*told, here.told(here.patching(kinds.NODES, node, STALE))["class"]]


@behaviour
def patch_with_another_uid(here: Here) -> t.Any:
    here.make(CONFIG, "a", data={"key": "x"})
    return here.told(here.patching(CONFIG, "a", {"metadata": {"uid": OTHER}}))


@behaviour
def patch_with_null_removes(here: Here) -> t.Any:
    meta = {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "1"}}
    here.make(CONFIG, "a", meta=meta, data={"key": "x", "other": "y"})
    patch = {"metadata": {"labels": {"a": None, "none": None}, "annotations": None}, "data": {"key": None}}
    after = here.patch(CONFIG, "a", patch)
    return [after["metadata"].get("labels"), after["metadata"].get("annotations"), after["data"]]


@behaviour
def patch_replaces_lists_whole(here: Here) -> t.Any:
    node = here.nodes(1)[0]
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("one", "two")]
    here.patch(kinds.NODES, node, {"spec": {"taints": taints}})
    return here.patch(kinds.NODES, node, {"spec": {"taints": taints[1:]}})["spec"]["taints"]


@behaviour
def patch_that_changes_nothing_is_no_new_version(here: Here) -> t.Any:
    first = here.make(CONFIG, "a", data={"key": "x"})
    second = here.patch(CONFIG, "a", {"data": {"key": "x", "absent": None}})
    third = here.patch(CONFIG, "a", {"data": {"key": "y"}})
    versions = [one["metadata"]["resourceVersion"] for one in (first, second, third)]
    return [versions[0] == versions[1], versions[1] == versions[2]]


@behaviour
def put_of_an_old_version_and_of_none(here: Here) -> t.Any:
    made = here.make(CONFIG, "a", data={"key": "x"})
    stale = {**made, "metadata": {**made["metadata"], "resourceVersion": "1"}}
    free = {**made, "data": {"key": "z"}, "metadata": {"name": "a", "namespace": here.namespace}}
    patches = [verbs.merge_patch(CONFIG, "a", body, here.namespace) for body in (stale, free)]
    told = [here.told(replace(x, method="PUT", verb="update", content_type="application/json")) for x in patches]
    return [*told, here.get(CONFIG, "a")["data"]]


@behaviour
def status_is_not_written_with_the_object(here: Here) -> t.Any:
    here.workload(TOP, "a", 0)
    here.until(lambda: here.get(TOP, "a").get("status", {}).get("observedGeneration") == 1, "observed")
    after = here.patch(TOP, "a", {"status": {"readyReplicas": 5}})
    return [after["status"].get("readyReplicas"), after["metadata"]["generation"]]


@behaviour
def the_object_is_not_written_with_its_status(here: Here) -> t.Any:
    here.workload(TOP, "a", 0)
    after = here.patch(TOP, "a", {"spec": {"replicas": 3}, "status": {"collisionCount": 4}}, "status")
    return [after["spec"]["replicas"], after["status"]["collisionCount"], after["metadata"]["generation"]]


@behaviour
def generation_counts_changes_of_the_spec_only(here: Here) -> t.Any:
    here.workload(TOP, "a", 0)
    seen = [here.patch(TOP, "a", {"metadata": {"labels": {"x": "1"}}})["metadata"]["generation"]]
    seen.append(here.patch(TOP, "a", {"spec": {"minReadySeconds": 1}})["metadata"]["generation"])
    seen.append(here.patch(TOP, "a", {"spec": {"minReadySeconds": 1}})["metadata"]["generation"])
    return seen


@behaviour
def scale_is_read_and_written(here: Here) -> t.Any:
    here.workload(TOP, "a", 0)
    read = here.send(verbs.get(TOP, "a", here.namespace, "scale"))
    after = here.patch(TOP, "a", {"spec": {"replicas": 0}}, "scale")
    shown = [[one["kind"], one["apiVersion"], one["spec"], sorted(one["metadata"])] for one in (read, after)]
    return [*shown, read["status"]["selector"]]


@behaviour
def scale_of_an_old_version(here: Here) -> t.Any:
    here.workload(TOP, "a", 0)
    return here.told(here.patching(TOP, "a", {**STALE, "spec": {"replicas": 1}}, "scale"))


@behaviour
def scale_is_a_change_of_the_spec(here: Here) -> t.Any:
    here.workload(TOP, "a", 0, nodeName="nowhere")
    before = here.get(TOP, "a")["metadata"]
    told = here.patch(TOP, "a", {"spec": {"replicas": 1}}, "scale")["metadata"]
    after = here.get(TOP, "a")
    same = told["resourceVersion"] != before["resourceVersion"]
    return [after["metadata"]["generation"], after["spec"]["replicas"], same, told["uid"] == before["uid"]]


@behaviour
def replicas_below_zero(here: Here) -> t.Any:
    here.workload(TOP, "a", 0)
    return here.told(here.patching(TOP, "a", {"spec": {"replicas": -1}}))


@behaviour
def a_lease_is_taken_by_one(here: Here) -> t.Any:
    made = here.make(kinds.LEASES, "lock", spec={"holderIdentity": "", "leaseDurationSeconds": 15})
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    bodies: list[Raw] = [{"metadata": version, "spec": {"holderIdentity": who}} for who in ("one", "two")]
    told = [here.told(here.patching(kinds.LEASES, "lock", body)) for body in bodies]
    return [*told, here.get(kinds.LEASES, "lock")["spec"]["holderIdentity"]]


@behaviour
def lists_choose_by_labels(here: Here) -> t.Any:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2", "y": "1"}), ("c", {})):
        here.make(CONFIG, name, meta={"labels": {"mine": "yes", **labels}})
    asked = ("x=1", "x!=1", "x", "!x", "x in (1,2),y", "x notin (1)")
    return {text: [one["metadata"]["name"] for one in here.items(CONFIG, f"mine,{text}")] for text in asked}


@behaviour
def lists_choose_by_fields(here: Here) -> t.Any:
    node = here.nodes(2)[0]
    for name in ("a", "b"):
        here.make(CONFIG, name)
    here.running(kinds.DAEMON_SETS, "agent", 2)
    found = here.items(kinds.PODS, fields=f"spec.nodeName={node}")
    names = [one["metadata"]["name"] for one in here.items(CONFIG, fields="metadata.name=b")]
    return [names, len(found), here.told(verbs.list_page(kinds.PODS, fields="spec.nope=1"))]


@behaviour
def lists_come_in_pages_of_one_moment(here: Here) -> t.Any:
    for number in range(5):
        here.make(CONFIG, f"c{number}", meta={"labels": {"mine": "yes"}})
    names, token = [], ""
    for page in range(3):
        answer = here.send(verbs.list_page(CONFIG, here.namespace, "mine", limit=2, token=token))
        names.append([item["metadata"]["name"] for item in answer["items"]])
        token = answer["metadata"].get("continue", "")
        if page == 0:
            here.send(here.deletion(CONFIG, "c4"))
    return [names, token]
