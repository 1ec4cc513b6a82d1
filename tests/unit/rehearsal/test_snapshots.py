# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots: what is saved is what is read, nothing secret is in them, hashes keep what belongs together."""

from __future__ import annotations

import gzip
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    field_filter,
    hashing,
    notes,
    snapshot_files,
)

CANARY = "canary-7b1f"
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True)
WORDS = st.sampled_from(["web-0", "db", "a.b", "\u00e9", ""])
OBJECTS = st.dictionaries(
    st.sampled_from(field_filter.KINDS),
    st.lists(
        st.builds(
            lambda name, spec: {"metadata": {"name": f"n{name}"}, "spec": spec}, WORDS, st.dictionaries(WORDS, WORDS)
        ),
        max_size=3,
    ),
    max_size=4,
)


def snapshot(found: snapshot_files.Objects, *, hashed: bool = False) -> snapshot_files.Snapshot:
    return snapshot_files.Snapshot("v1.36.3", "2026-11-24T00:00:00Z", hashed, found, [notes.note("gang", "Pod shop/a")])


@given(found=OBJECTS, compressed=st.booleans(), hashed=st.booleans())
def test_what_is_saved_is_what_is_read(found: snapshot_files.Objects, compressed: bool, hashed: bool) -> None:
    saved = snapshot(found, hashed=hashed)
    content = snapshot_files.encoded(saved, compressed=compressed)
    assert snapshot_files.decoded(content) == saved
    assert content == snapshot_files.encoded(saved, compressed=compressed)


@given(found=OBJECTS, compressed=st.booleans(), part=st.floats(0.0, 1.0, exclude_max=True))
def test_a_truncated_snapshot_is_an_error(found: snapshot_files.Objects, compressed: bool, part: float) -> None:
    content = snapshot_files.encoded(snapshot(found), compressed=compressed)
    with pytest.raises(snapshot_files.BadSnapshot, match="truncated or damaged"):
        snapshot_files.decoded(content[: int(part * (len(content) - 1))])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2, and this release of the collection reads version 1"),
        ({"format": "other"}, "no snapshot of a cluster"),
        ({"objects": {"nodes": []}}, "checksum does not fit"),
        ({"notes": []}, "checksum does not fit"),
    ],
)
def test_another_snapshot_is_an_error_that_says_why(change: dict[str, t.Any], said: str) -> None:
    content = snapshot_files.encoded(snapshot({"nodes": [{"metadata": {"name": "n1"}}]}), compressed=False)
    changed = json.dumps({**json.loads(content), **change}).encode()
    for form in (changed, gzip.compress(changed)):
        with pytest.raises(snapshot_files.BadSnapshot, match=said):
            snapshot_files.decoded(form)


@pytest.mark.parametrize("raw", [{}, {"metadata": {}}, {"metadata": {"name": ""}}])
def test_an_object_without_a_name_makes_no_snapshot(raw: dict[str, t.Any]) -> None:
    content = snapshot_files.encoded(snapshot({"nodes": [raw]}), compressed=False)
    with pytest.raises(snapshot_files.BadSnapshot):
        snapshot_files.decoded(content)


def pod(**spec: t.Any) -> dict[str, t.Any]:
    meta = {"name": "web-0", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-11-24T00:00:00Z"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-24T00:00:09Z"}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-24T00:00:02Z"}
    status = {"phase": "Running", "conditions": [ready, bound], "containerStatuses": [{"restartCount": 0}]}
    return {"metadata": meta, "spec": {"nodeName": "n1", "containers": [{"name": "main"}], **spec}, "status": status}


def test_nothing_secret_reaches_a_snapshot() -> None:
    raw = pod(
        containers=[
            {
                "name": "main",
                "image": CANARY,
                "command": [CANARY],
                "args": [CANARY],
                "env": [{"name": "PASSWORD", "value": CANARY}],
                "livenessProbe": {"exec": {"command": [CANARY]}},
                "volumeMounts": [{"mountPath": CANARY, "name": "data"}],
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
        volumes=[
            {"name": "token", "secret": {"secretName": CANARY}},
            {"name": "config", "configMap": {"name": CANARY}},
            {"name": "share", "nfs": {"server": CANARY}},
            {"name": "host", "hostPath": {"path": CANARY}},
            {"name": "scratch", "emptyDir": {}},
        ],
        imagePullSecrets=[{"name": CANARY}],
        serviceAccountName=CANARY,
    )
    raw["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": CANARY}
    raw["metadata"]["managedFields"] = [{"manager": CANARY}]
    kept = field_filter.slim("pods", raw)
    assert kept is not None
    assert CANARY not in json.dumps(kept)
    assert kept["spec"]["containers"] == [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    assert [volume["name"] for volume in kept["spec"]["volumes"]] == ["host", "scratch"]
    volume = {
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": "d", "volumeHandle": CANARY, "nodeStageSecretRef": {"name": CANARY}}},
    }
    assert CANARY not in json.dumps(field_filter.slim("volumes", volume))


def test_the_time_to_start_is_from_bound_to_ready_and_unknown_after_a_restart() -> None:
    raw = pod()
    kept = field_filter.slim("pods", raw)
    assert kept is not None
    assert kept["status"] == {"phase": "Running", "ready": True, "start": 7.0}
    raw["status"]["containerStatuses"][0]["restartCount"] = 1
    again = field_filter.slim("pods", raw)
    assert again is not None
    assert again["status"]["start"] is None


def test_what_a_run_left_is_not_copied() -> None:
    record = json.dumps({"v": 1, "prior": {"unschedulable": False}})
    taints = [
        {"key": "maintenance.kubeops.io/in-progress", "effect": "NoSchedule"},
        {"key": "gpu", "effect": "NoSchedule"},
    ]
    raw = {
        "metadata": {"name": "n1", "annotations": {"maintenance.kubeops.io/record": record}},
        "spec": {"unschedulable": True, "taints": taints},
        "status": {},
    }
    kept = field_filter.slim("nodes", raw)
    assert kept is not None
    assert kept["spec"] == {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "unschedulable": False}
    assert field_filter.notes("nodes", raw) == ["record"]
    guard = {
        "metadata": {"name": "kubeops-guard-u1", "labels": {"app.kubernetes.io/managed-by": "kubeops.node_maintenance"}}
    }
    assert field_filter.slim("budgets", {**guard, "spec": {}}) is None


def test_which_annotations_are_kept() -> None:
    raw = pod()
    kept = {names.DELETION_COST: "5", names.ALLOW_INTERRUPTION: "true"}
    raw["metadata"]["annotations"] = {**kept, names.SURGE: "{}", names.PLANNED: "{}", "example.com/team": "red"}
    found = field_filter.slim("pods", raw)
    assert found is not None
    assert found["metadata"]["annotations"] == kept


@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        ({}, []),
        ({"resourceClaims": [{"name": "gpu"}]}, ["devices"]),
        ({"schedulingGroup": {"podGroupName": "train"}}, ["gang"]),
        ({"volumes": [{"name": "x", "emptyDir": {}}]}, []),
        ({"volumes": [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]}, ["ephemeral_volume"]),
    ],
)
def test_what_the_copy_lacks_of_a_pod_is_said(spec: dict[str, t.Any], codes: list[str]) -> None:
    assert field_filter.notes("pods", pod(**spec)) == codes


def slept(*seconds: int | None) -> list[dict[str, t.Any]]:
    hooks: list[dict[str, t.Any]] = [{"exec": {}} if each is None else {"sleep": {"seconds": each}} for each in seconds]
    return [{"name": f"c{number}", "lifecycle": {"preStop": hook}} for number, hook in enumerate(hooks)]


@pytest.mark.parametrize(
    ("containers", "seconds"),
    [
        ([], None),
        ([{"name": "c"}], None),
        (slept(None), None),
        (slept(4), 4.0),
        (slept(4, 7, 1), 7.0),
        (slept(0), None),
    ],
)
def test_the_longest_sleep_before_the_stop_is_kept(containers: list[dict[str, t.Any]], seconds: float | None) -> None:
    found = field_filter.template({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}})
    assert found["metadata"] == {"labels": {"app": "web"}, "annotations": {}}
    assert found["spec"].get("preStopSeconds") == seconds
    assert [one["name"] for one in found["spec"].get("containers") or ()] == [one["name"] for one in containers]


def test_the_same_key_gives_the_same_hashes_in_each_release() -> None:
    """The first letters of the HMAC-SHA256 in base32, behind a letter of its last byte."""
    assert hashing.Hasher("key").name("web-x-7.x") == "ijq6d5-nj7b3p-oaervw.nj7b3p"


def test_a_name_that_becomes_too_long_for_a_label_is_hashed_in_one_piece() -> None:
    hasher = hashing.Hasher("key")
    parts = "-".join(["x"] * 8)
    assert len(hasher.name(f"{parts}--x")) == 63
    assert len(hasher.name(f"{parts}---x")) == 24


@given(texts=st.sets(NAMES, min_size=1, max_size=40), key=st.text(min_size=1))
def test_hashes_are_stable_and_of_one_name_each(texts: set[str], key: str) -> None:
    first, again = hashing.Hasher(key), hashing.Hasher(key)
    made = {text: first.name(text) for text in sorted(texts)}
    assert made == {text: again.name(text) for text in sorted(texts, reverse=True)}
    assert len(set(made.values())) == len(texts)
    assert all(len(name) <= hashing.LONGEST for name in made.values())


@given(workload=NAMES, claim=NAMES, number=st.integers(0, 9999))
def test_what_belongs_together_by_its_name_still_does(workload: str, claim: str, number: int) -> None:
    hasher = hashing.Hasher("key")
    whole = f"{claim}-{workload}-{number}"
    if len(whole.split("-")) <= 8:
        assert hasher.name(f"{workload}-{number}").startswith(hasher.name(workload + "-x").rpartition("-")[0])
        assert hasher.name(f"{workload}-{number}").endswith(f"-{number}")


def test_selectors_match_hashed_labels_and_keys_stay() -> None:
    found = hashing.Hasher("key").hashed(
        {
            "metadata": {"name": "web-0", "labels": {"app": "web", "kubernetes.io/os": "linux", "empty": ""}},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "values": ["web"]}]},
                "nodeSelector": {"kubernetes.io/hostname": "n-a"},
                "nodeName": "n-a",
                "tolerations": [{"key": "team", "value": "red", "effect": "NoSchedule"}],
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            },
        }
    )
    labels, spec = found["metadata"]["labels"], found["spec"]
    assert (
        labels["app"] == spec["selector"]["matchLabels"]["app"] == spec["selector"]["matchExpressions"][0]["values"][0]
    )
    assert (labels["kubernetes.io/os"], labels["empty"]) == ("linux", "")
    assert spec["nodeSelector"]["kubernetes.io/hostname"] == spec["nodeName"]
    assert spec["tolerations"][0]["key"] == "team"
    assert spec["tolerations"][0]["value"] != "red"
    assert spec["containers"] == [{"resources": {"requests": {"cpu": "1"}}}]
    assert "web" not in json.dumps(found)


def test_of_lists_of_texts_only_namespaces_are_names() -> None:
    found = {"namespaces": ["shop", {"name": "blog"}], "finalizers": ["kubernetes.io/x"], "args": ["web"]}
    hasher = hashing.Hasher("key")
    hashed = hasher.hashed(found)
    assert hashed == {**found, "namespaces": [hasher.name("shop"), {"name": hasher.name("blog")}]}
    assert hashed["namespaces"] != found["namespaces"]


def test_two_names_with_one_hash_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hasher = hashing.Hasher("key")
    monkeypatch.setattr(hasher, "_word", lambda text, length: "a" * length)
    hasher.name("web")
    with pytest.raises(hashing.SameHashError, match="another key"):
        hasher.name("api")


def test_sentences_name_a_few_objects_of_many() -> None:
    said = [notes.note("gang", f"Pod shop/w-{number}") for number in range(7)] + [notes.note("unread", detail="jobs")]
    first, second = notes.sentences(said)
    assert first.endswith("(Pod shop/w-0, Pod shop/w-1, Pod shop/w-2, Pod shop/w-3, Pod shop/w-4 and 2 more).")
    assert second == "These credentials may not list this kind, so it counts as empty: jobs."
