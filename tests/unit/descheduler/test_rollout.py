# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pure decisions of a rollout."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import installation, rollout
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.installation import Location
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.rollback_record import (
    BadJournalError,
    Journal,
    readable,
)

Raw = dict[str, t.Any]
PLACE = Location("kube-system", "descheduler", "policy", "policy.yaml")


def workload(*volumes: Raw, args: tuple[str, ...] = (), **annotations: str) -> Raw:
    spec = {"containers": [{"name": "d", "args": list(args)}], "volumes": list(volumes)}
    meta = {"annotations": annotations} if annotations else {}
    return {"metadata": {"generation": 2}, "spec": {"replicas": 2, "template": {"metadata": meta, "spec": spec}}}


def mounts(name: str, *keys: str) -> Raw:
    source: Raw = {"name": name}
    if keys:
        source["items"] = [{"key": key, "path": key} for key in keys]
    return {"name": "v", "configMap": source}


def held(lease: Ref | None) -> tuple[str, str] | None:
    return (lease.namespace, lease.name) if lease else None


def test_a_digest_is_of_the_meaning() -> None:
    one = rollout.digest({"a": 1, "b": {"c": [1, 2], "gone": None}})
    assert one == rollout.digest({"b": {"c": [1, 2]}, "a": 1, "none": None})
    assert one != rollout.digest({"b": {"c": [2, 1]}, "a": 1})
    assert one.startswith("sha256-")


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        ([mounts("policy")], ""),
        ([mounts("other"), mounts("policy", "policy.yaml")], ""),
        ([{"name": "v", "projected": {"sources": [{"configMap": {"name": "policy"}}]}}], ""),
        ([mounts("descheduler")], "Did you mean config_map: descheduler?"),
        ([mounts("policy", "config.yaml")], "Did you mean key: config.yaml?"),
        ([], "mounts no ConfigMap"),
    ],
)
def test_what_the_pods_do_not_mount_is_not_written(volumes: list[Raw], said: str) -> None:
    found = installation.unread(workload(*volumes), PLACE)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("args", "lease"),
    [
        (("--leader-elect", "--v=3"), ("kube-system", "descheduler")),
        (("--leader-elect=true", "--leader-elect-resource-name=mine"), ("kube-system", "mine")),
        (("--leader-elect-resource-namespace", "ops", "--leader-elect"), ("ops", "descheduler")),
        (("--leader-elect=false",), None),
        (("--v", "3"), None),
    ],
)
def test_the_lease_of_sigs_is_in_its_flags(args: tuple[str, ...], lease: tuple[str, str] | None) -> None:
    assert held(installation.election({}, workload(args=args), "sigs")) == lease


@pytest.mark.parametrize(
    ("config", "lease"),
    [
        ({}, ("koordinator-system", "koord-descheduler")),
        ({"leaderElection": {"resourceNamespace": "kube-system"}}, ("kube-system", "koord-descheduler")),
        ({"leaderElection": {"leaderElect": False}}, None),
    ],
)
def test_the_lease_of_koordinator_is_in_its_configuration(config: Raw, lease: tuple[str, str] | None) -> None:
    assert held(installation.election(config, workload(), "koordinator")) == lease


@pytest.mark.parametrize(
    ("config", "port"),
    [({}, 10251), ({"healthzBindAddress": "127.0.0.1:9999"}, 9999), ({"healthzBindAddress": "127.0.0.1"}, 10251)],
)
def test_the_port_of_configz(config: Raw, port: int) -> None:
    assert installation.port_of(config) == port


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Error: bad\nUsage:\n  x\n\nbad\n", "bad"),
        ("panic: runtime error: nil pointer\n\ngoroutine 1 [running]:\n", "panic: runtime error: nil pointer"),
        (
            'E1121 13:00:00.000 1 main.go:1] "command failed" err="no such class"',
            '"command failed" err="no such class"',
        ),
        ("", ""),
    ],
)
def test_the_last_words_of_a_container(log: str, words: str) -> None:
    assert rollout.last_words(log) == words


def test_dry_run_is_set_in_the_text_and_nothing_else_is() -> None:
    assert rollout.with_dry_run("a: 1\ndryRun: false # why\nb: 2\n") == "a: 1\ndryRun: true # why\nb: 2\n"
    assert rollout.with_dry_run("a: 1") == "a: 1\ndryRun: true\n"
    assert rollout.with_dry_run("x:\n  dryRun: false\n") == "x:\n  dryRun: false\ndryRun: true\n"


def pod(name: str, started: str = "2026-11-21T10:00:05Z", **spec: t.Any) -> Raw:
    return {"metadata": {"name": name}, "spec": spec, "status": {"startTime": started}}


@pytest.mark.parametrize(
    ("holder", "acquired", "leads"),
    [
        ("d-new_1", "2026-11-21T09:00:00.000000Z", True),
        ("d-old_1", "2026-11-21T10:00:09.000000Z", False),
        ("host-1_1", "2026-11-21T10:00:09.000000Z", True),
        ("host-1_1", "2026-11-21T09:59:59.000000Z", False),
        ("", "", False),
    ],
)
def test_who_leads(holder: str, acquired: str, leads: bool) -> None:
    lease = {"spec": {"holderIdentity": holder, "acquireTime": acquired}}
    assert (rollout.leadership(lease, "d", [pod("d-new")]) == "") is leads
    lease["spec"]["holderIdentity"] = "node-1_5"
    on_host = pod("d-new", "2026-11-21T23:00:00Z", hostNetwork=True, nodeName="node-1")
    assert rollout.leadership(lease, "d", [on_host]) == ""


def test_a_deployment_is_done_when_nothing_old_is_left() -> None:
    notes: t.Any = {rollout.DIGEST: "sha256-1"}
    made = workload(**notes)

    def one(name: str, mark: str, ready: bool) -> Raw:
        meta = {"name": name, "annotations": {rollout.DIGEST: mark}}
        return {"metadata": meta, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}

    new, old = [one("a", "sha256-1", True), one("b", "sha256-1", True)], [one("c", "sha256-0", True)]
    status = {"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2, "replicas": 2}
    assert rollout.progress({**made, "status": {**status, "observedGeneration": 1}}, new).waiting
    assert "0 of 2 new pods are created" in rollout.progress({**made, "status": {"observedGeneration": 2}}, []).waiting
    assert "1 of 2 new pods are ready" in rollout.progress({**made, "status": status}, new[:1]).waiting
    assert "old pods still exist: c" in rollout.progress({**made, "status": status}, new + old).waiting
    assert rollout.progress({**made, "status": status}, new).waiting == ""


JOURNAL = Journal(
    flavor="sigs",
    place=PLACE,
    kind="Deployment",
    uid="u",
    config="a: 1\n",
    had_map=True,
    had_data=True,
    marks={rollout.DIGEST: None},
    bare=True,
    replicas=2,
    ours=("sha256-1", "sha256-2"),
)


def test_a_journal_comes_back_as_it_was() -> None:
    kept = JOURNAL
    assert Journal.of(kept.to_config_map()) == kept
    assert "unfinished rollout" in kept.sentence
    assert "Deployment kube-system/descheduler are paused" in replace(kept, paused="scale").sentence
    with pytest.raises(BadJournalError, match="descheduler-u"):
        Journal.of({"metadata": {"name": "descheduler-u"}, "data": {"journal": '{"v": 2}'}})


def test_journals_that_cannot_be_read_and_other_config_maps_hide_none() -> None:
    kept = JOURNAL.to_config_map()
    spoilt = {**kept, "data": {"journal": "{"}}
    others: list[Raw] = [{"metadata": {"name": "none", "labels": labels}, "data": {}} for labels in (None, {"a": "b"})]
    assert list(readable([*others, spoilt, kept])) == [JOURNAL]


def test_the_way_back_removes_what_was_not_there() -> None:
    nothing = {rollout.DIGEST: None, rollout.RESTARTED: None}
    template = {"template": {"metadata": {"annotations": None}}}
    assert rollout.marking(nothing, bare=True, replicas=2) == {**template, "replicas": 2}
    beside = rollout.marking(nothing, bare=False)["template"]["metadata"]["annotations"]
    assert beside == nothing
