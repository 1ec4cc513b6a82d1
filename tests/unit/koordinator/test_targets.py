# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods are meant, which of them need a job, and which Reservation can serve one."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import causes, reservations, typed
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    RUN_LABEL,
    Job,
    JobSettings,
    manifest,
    name_of,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.targets import (
    Choice,
    Selection,
    choose,
    moved,
    targets,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw

OWNER = objects.owned("ReplicaSet", "web")
WORLD = objects.snapshot(
    pods=[
        objects.pod("web-1", "n1", OWNER),
        objects.pod("web-2", "n2", OWNER, labels={"app": "other"}),
        objects.pod("far", "n1", OWNER, namespace="far"),
        objects.pod("agent", "n1", objects.owned("DaemonSet", "agent")),
        objects.pod("done", "n1", phase="Succeeded"),
        objects.pod("leaving", "n1", OWNER, deleting="2026-01-01T00:00:00Z"),
        objects.pod("static", "n1", annotations={"kubernetes.io/config.mirror": "x"}),
    ]
)


def ref(name: str, uid: str = "", namespace: str = "shop") -> Ref:
    return Ref("Pod", name, namespace, uid, "v1")


def found(selection: Selection) -> list[str]:
    return [target.ref.name for target in targets(WORLD, selection)[0]]


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(nodes=("n1",)), ["web-1", "far"]),
        (Selection(nodes=("n1", "n2"), namespaces=("shop",)), ["web-1", "web-2"]),
        (Selection(selector={"matchLabels": {"app": "other"}}), ["web-2"]),
        (Selection(nodes=("n1",), selector={"matchLabels": {"app": "other"}}), []),
        (Selection(pods=(ref("agent"), ref("leaving"))), ["agent", "leaving"]),
    ],
)
def test_the_pods_that_are_meant(selection: Selection, names: list[str]) -> None:
    assert found(selection) == names


def test_a_uid_tells_a_pod_that_is_gone_from_one_that_never_was() -> None:
    wanted = (ref("web-1"), ref("web-1", "older"), ref("web-9", "gone"), ref("web-9"))
    known, unknown = targets(WORLD, Selection(pods=wanted))
    assert [(target.ref.uid, target.pod is not None, target.exact) for target in known] == [
        ("uid-web-1", True, False),
        ("older", False, True),
        ("gone", False, True),
    ]
    assert unknown == (ref("web-9"),)


def job(
    name: str = "x", pod: Ref | None = None, settings: JobSettings | None = None, phase: str = "", **status: t.Any
) -> Job:
    raw = manifest(name, pod or ref("web-1", "uid-web-1"), settings or JobSettings())
    raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    raw["status"] = {"phase": phase, **status}
    return Job.of(raw)


def chosen(jobs: list[Job], settings: JobSettings | None = None, uid: str = "", name: str = "") -> Choice:
    [target] = targets(WORLD, Selection(pods=(ref("web-1", uid),)))[0]
    return choose(target, jobs, settings or JobSettings(), name)


def test_a_pod_without_a_job_gets_one() -> None:
    assert chosen([]) == Choice("create", name_of(ref("web-1", "uid-web-1"), JobSettings()))
    assert chosen([], name="mine") == Choice("create", "mine")


def test_a_job_that_is_under_way_is_followed() -> None:
    assert chosen([job(phase="Running")]).do == "follow"
    assert chosen([job(settings=JobSettings(paused=True))], JobSettings(paused=True)).do == "follow"


@pytest.mark.parametrize(
    ("there", "settings", "words"),
    [
        (JobSettings(paused=True), JobSettings(), "is paused"),
        (JobSettings(), JobSettings(paused=True), "is not paused"),
        (JobSettings("EvictDirectly"), JobSettings(), "of mode EvictDirectly"),
        (JobSettings(), JobSettings(reservation="r"), "uses Reservation"),
    ],
)
def test_another_job_under_way_is_not_rewritten(there: JobSettings, settings: JobSettings, words: str) -> None:
    choice = chosen([job(settings=there)], settings)
    assert choice.do == "refuse"
    assert choice.cause
    assert choice.cause.code == "other_job"
    assert words in choice.cause.message


def test_a_job_that_failed_is_tried_again_under_another_name() -> None:
    first = name_of(ref("web-1", "uid-web-1"), JobSettings())
    assert chosen([job(first, phase="Failed")]).name == f"{first}-2"


def test_a_name_that_is_taken_is_not_used() -> None:
    choice = chosen([job("mine", ref("web-7", "7"), phase="Failed")], name="mine")
    assert choice.cause
    assert choice.cause.code == "name_taken"


def test_a_pod_that_is_gone_is_moved() -> None:
    assert chosen([], uid="older").do == "done"
    moved = job(pod=ref("web-1", "older"), phase="Succeeded")
    assert chosen([moved], uid="older").job == moved
    assert chosen([job(pod=ref("web-1", "older"), phase="Running")], uid="older").do == "follow"


def test_the_pod_that_a_job_brought_is_not_moved_again() -> None:
    arrived = {"namespace": "shop", "name": "web-1", "uid": "uid-web-1"}
    bound = job(pod=ref("web-0", "0"), phase="Succeeded", podRef=arrived)
    namesake = job(pod=ref("web-1", "older"), phase="Succeeded", podRef=arrived)
    assert chosen([namesake]).do == "done"
    assert chosen([namesake], uid="uid-web-1").do == "create", "whoever names it by UID means it"
    assert chosen([bound]).do == "create", "whoever names it means no pod of another name"
    by_label = targets(WORLD, Selection(selector={"matchLabels": {"app": "web"}}))[0]
    mine = next(target for target in by_label if target.ref.name == "web-1")
    assert choose(mine, [bound], JobSettings()).do == "done"


@pytest.mark.parametrize(
    ("there", "wanted", "name", "note"),
    [
        (JobSettings(), JobSettings(), "", ""),
        (JobSettings(), JobSettings(), "x", ""),
        (JobSettings(), JobSettings(ttl=60.0), "", "ttl 300 s, not 60 s"),
        (JobSettings(ttl=None), JobSettings(ttl=60.0), "", "ttl 0 s, not 60 s"),
        (JobSettings(ttl=None), JobSettings(ttl=None), "", ""),
        (JobSettings(), JobSettings(), "mine", "name x, not mine"),
        (JobSettings(), JobSettings(delete_options={"gracePeriodSeconds": 60}), "", "gracePeriodSeconds"),
        (JobSettings(delete_options={"gracePeriodSeconds": 60}), JobSettings(), "", ""),
    ],
)
def test_what_a_job_under_way_has_other_than_wanted_is_told(
    there: JobSettings, wanted: JobSettings, name: str, note: str
) -> None:
    choice = chosen([job(settings=there)], wanted, name=name)
    assert choice.do == "follow"
    assert (note in choice.note) if note else choice.note == ""


@pytest.mark.parametrize(("phase", "found"), [("Succeeded", True), ("Running", True), ("", True), ("Failed", False)])
def test_a_pod_that_is_gone_is_known_by_the_job_that_moved_it(phase: str, found: bool) -> None:
    gone = [job("a", ref("web-8", "8"), phase=phase), job("b", ref("web-7", "7"), phase="Succeeded")]
    assert [(one.ref.uid, one.pod) for one in moved([ref("web-8"), ref("web-9")], gone)] == [("8", None)] * found


def test_the_job_of_a_predecessor_is_not_the_pods() -> None:
    assert chosen([job(pod=ref("web-1", "older"), phase="Running")]).do == "create"


# -- Reservations -------------------------------------------------------------------------------------------

CONTROLLER: Raw = {
    "controller": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-ReplicaSet-web"}
}


def reservation(**changes: t.Any) -> Raw:
    status = {"phase": "Available", "nodeName": "n2", **changes.pop("status", {})}
    spec = {"owners": [CONTROLLER], "template": {"spec": {"schedulerName": "koord-scheduler"}}, **changes}
    return {"metadata": {"name": "r", "uid": "1"}, "spec": spec, "status": status}


def koord_pod() -> Raw:
    raw = objects.pod("web-1", "n1", OWNER)
    raw["spec"]["schedulerName"] = "koord-scheduler"
    return raw


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (reservation(), ""),
        (reservation(status={"phase": "", "nodeName": ""}), ""),
        (reservation(owners=[{"labelSelector": {"matchLabels": {"app": "web"}}}]), ""),
        (reservation(owners=[{"object": {"name": "other"}}, CONTROLLER]), ""),
        (reservation(status={"phase": "Succeeded"}), "reservation_used"),
        (reservation(status={"currentOwners": [{"name": "x"}]}), "reservation_used"),
        (reservation(status={"phase": "Failed"}), "reservation_expired"),
        (reservation(status={"nodeName": "n1"}), "same_node"),
        (reservation(allocateOnce=False), "reservation_shared"),
        (reservation(owners=[{"object": {"name": "web-1"}}]), "object_owner"),
        (reservation(owners=[]), "not_for_pod"),
        (reservation(owners=[{"controller": {**CONTROLLER["controller"], "uid": "other"}}]), "not_for_pod"),
        (reservation(owners=[{"controller": {**CONTROLLER["controller"], "namespace": "far"}}]), "not_for_pod"),
        (reservation(owners=[{"labelSelector": {"matchLabels": {"app": "db"}}}]), "not_for_pod"),
        (reservation(owners=[{**CONTROLLER, "object": {"name": "web-2"}}]), "not_for_pod"),
        (reservation(owners=[{**CONTROLLER, "object": {"namespace": "far"}}]), "not_for_pod"),
        (reservation(owners=[{**CONTROLLER, "object": {"uid": "other"}}]), "not_for_pod"),
        (reservation(owners=[{**CONTROLLER, "object": {"kind": "Pod"}}]), ""),
        (reservation(owners=[{**CONTROLLER, "object": {"name": "web-1", "uid": "uid-web-1"}}]), ""),
        (reservation(template={"spec": {}}), "other_scheduler"),
    ],
)
def test_a_reservation_and_a_pod(raw: Raw, code: str) -> None:
    cause = reservations.unusable(raw, Pod.of(koord_pod()))
    assert (cause.code if cause else "") == code


def test_a_reservation_is_completed_from_the_pod() -> None:
    made = reservations.manifest("r", koord_pod(), {"spec": {}}, 300.0, "night")
    assert made["metadata"]["labels"][RUN_LABEL] == "night"
    (owner,) = made["spec"]["owners"]
    assert (owner["controller"]["uid"], owner["controller"]["controller"]) == ("uid-ReplicaSet-web", True)
    assert made["spec"]["allocateOnce"] is True
    assert made["spec"]["ttl"] == "300s"
    inner = made["spec"]["template"]["spec"]
    assert "nodeName" not in inner
    assert inner["schedulerName"] == "koord-scheduler"
    [term] = inner["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]
    assert reservations.unusable({**made, "status": {"nodeName": "n2"}}, Pod.of(koord_pod())) is None
    assert not list(typed.template({key: made[key] for key in ("metadata", "spec")}))


def test_what_the_template_says_stays() -> None:
    pod = koord_pod()
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["new"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "ttl": "1h",
            "template": {"spec": {"affinity": {"nodeAffinity": required}, "schedulerName": "koord-2"}},
        },
    }
    before = copy.deepcopy(template)
    made = reservations.manifest("r", pod, template, 300.0)
    assert RUN_LABEL not in made["metadata"]["labels"]
    assert template == before
    assert made["spec"]["ttl"] == "1h"
    assert made["metadata"]["labels"]["a"] == "b"
    assert made["spec"]["template"]["spec"]["schedulerName"] == "koord-2"
    terms = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert terms["nodeSelectorTerms"][0]["matchExpressions"] == term["matchExpressions"]
    assert terms["nodeSelectorTerms"][0]["matchFields"]


def test_a_node_that_is_named_needs_no_exclusion() -> None:
    made = reservations.manifest("r", koord_pod(), {"spec": {"template": {"spec": {"nodeName": "n3"}}}}, None)
    assert "affinity" not in made["spec"]["template"]["spec"]
    assert "ttl" not in made["spec"]


def test_a_bare_pod_is_served_by_its_labels() -> None:
    made = reservations.manifest("r", objects.pod("bare", "n1", labels={"app": "bare"}), {"spec": {}}, None)
    assert made["spec"]["owners"] == [{"labelSelector": {"matchLabels": {"app": "bare"}}}]


@pytest.mark.parametrize(
    ("requests", "code"),
    [({}, "no_requests"), ({"cpu": "0"}, "no_requests"), ({"cpu": "200m"}, ""), ({"memory": "0", "cpu": "1"}, "")],
)
def test_only_what_is_requested_is_reserved(requests: Raw, code: str) -> None:
    cause = causes.unserved(Pod.of(objects.pod("web-1", requests=requests)), None)
    assert (cause.code if cause else "") == code


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([], ""),
        ([{"type": "Scheduled", "reason": "Unschedulable", "message": "0/3 nodes"}], "0/3 nodes"),
        ([{"type": "Scheduled", "reason": "Unschedulable"}], "Unschedulable"),
        ([{"type": "Scheduled", "reason": "Scheduled", "message": "x"}], ""),
        ([{"type": "Ready", "reason": "Unschedulable", "message": "x"}], ""),
    ],
)
def test_what_the_scheduler_said_of_a_reservation(conditions: list[Raw], said: str) -> None:
    assert reservations.unplaced({"status": {"conditions": conditions}}) == said
