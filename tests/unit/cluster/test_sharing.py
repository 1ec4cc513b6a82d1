# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects that share equal parts are what they are without, and need the parts once."""

from __future__ import annotations

import copy
import dataclasses
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import index_keys, sharing
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, deployment, node, owned, pod

SHARED_OF_PODS = ("labels", "tolerations", "volumes", "requests", "placed", "owner", "namespace")


def big_pod(name: str) -> Raw:
    raw = pod(name, "n1", owned("ReplicaSet", "web"), labels={"app": "web"})
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}, "env": [{"name": "A", "value": "1"}]}
    raw["spec"] |= {"tolerations": [{"operator": "Exists"}], "volumes": [{"name": "t"}], "containers": [container]}
    return raw


def parsed(kind: str, share: sharing.Interner, *raws: Raw) -> list[t.Any]:
    return [index_keys.parser(kind, share)(copy.deepcopy(raw)) for raw in raws]


def test_pods_of_a_workload_share_what_is_equal() -> None:
    one, other = parsed("pods", sharing.Interner(), big_pod("a"), big_pod("b"))
    assert [name for name in SHARED_OF_PODS if getattr(one, name) is not getattr(other, name)] == []
    assert (one.name, other.name) == ("a", "b")


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("pods", big_pod("a")),
        ("nodes", node("n1")),
        *((kind, raw) for kind, raws in deployment("web", 2).items() for raw in raws if kind in index_keys.PARSERS),
    ],
)
def test_what_is_shared_is_as_it_would_be_alone(kind: str, raw: Raw) -> None:
    (found,) = parsed(kind, sharing.Interner(), raw)
    assert found == index_keys.PARSERS[kind](copy.deepcopy(raw))


def workload(kind: str, image: str) -> Raw:
    container = {"name": "c", "image": image, "env": [{"name": "A", "value": "1"}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], "dnsPolicy": "Default"}}
    spec = {"replicas": 1, "template": template}
    return {"metadata": {"name": image, "namespace": "shop", "uid": f"{kind}/{image}"}, "kind": kind, "spec": spec}


def test_a_replica_set_has_the_template_of_its_deployment() -> None:
    share = sharing.Interner()
    (web,) = parsed("deployments", share, workload("Deployment", "web:2"))
    now, before = parsed("replica_sets", share, workload("ReplicaSet", "web:2"), workload("ReplicaSet", "web:1"))
    assert web.pod_spec is now.pod_spec
    assert web.pod_spec == workload("Deployment", "web:2")["spec"]["template"]["spec"]
    assert web.pod_spec["containers"][0]["env"] is before.pod_spec["containers"][0]["env"]
    assert before.pod_spec["containers"][0]["image"] == "web:1"


@pytest.mark.parametrize(
    "parts", [({"a": 1}, {"a": True}), ({"a": 1}, {"a": "1"}), ([1], (1,)), ("a", b"a"), ("", None)]
)
def test_what_only_looks_equal_is_not_shared(parts: tuple[t.Any, t.Any]) -> None:
    share = sharing.Interner()
    assert [repr(share.part(part)) for part in parts] == [repr(part) for part in parts]


def test_a_long_watch_begins_anew_rather_than_remember_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST", 10)
    share = sharing.Interner()
    first = [share.part({"number": [number]}) for number in range(25)]
    assert [part["number"] for part in first] == [[number] for number in range(25)]
    assert share.part({"number": [24]}) is first[24]
    assert share.part({"number": [3]}) is not first[3]


def test_a_pod_needs_little_beside_what_it_shares() -> None:
    """Fields that each pod has of its own are texts, numbers and truth values; of containers it has none."""
    share = sharing.Interner()
    one, other = parsed("pods", share, big_pod("a"), big_pod("b"))
    held = [getattr(pod, each.name) for pod in (one, other) for each in dataclasses.fields(pod)]
    parts = [part for part in held if isinstance(part, (dict, list, tuple)) and part]
    assert len({id(part) for part in parts}) == len(parts) / 2
