# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What makes two commands the same run, and what a run leaves behind."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.runs import state

GIVEN: dict[str, t.Any] = {"playbook": "maintain", "nodes": ["a", "b"], "tasks": "/t.yml", "reason": "disk"}
OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"reason": "kernel"}, True),
        ({"timeout": 60}, True),
        ({"report_dir": "/x"}, True),
        ({"reboot": None}, True),
        ({"nodes": ["b", "a"]}, False),
        ({"tasks": "/u.yml"}, False),
        ({"reboot": True}, False),
        ({"playbook": "evacuate"}, False),
        ({"backend": "eviction"}, False),
    ],
)
def test_a_fingerprint_is_of_the_work_alone(change: dict[str, t.Any], same: bool) -> None:
    assert (state.fingerprint({**GIVEN, **change}) == state.fingerprint(GIVEN)) is same


def stored(**changes: t.Any) -> state.StoredRun:
    fields: dict[str, t.Any] = {"since": "2026-01-01T00:00:00.000Z", "plan": (("a",), ("b",)), "finished": ("a",)}
    return state.StoredRun("r1", "me@here", fingerprint="f", given=GIVEN, **{**fields, **changes})


def test_a_stored_run_survives_its_config_map() -> None:
    assert state.stored_run(stored().to_config_map()) == stored()


def test_other_config_maps_are_nobodys_run() -> None:
    assert state.stored_run({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca": ""}}) is None


@pytest.mark.parametrize(("now", "young"), [("2026-01-01T23:59:59.000Z", True), ("2026-01-02T00:00:01.000Z", False)])
def test_a_run_is_resumed_for_a_day(now: str, young: bool) -> None:
    assert stored().resumable(now) is young


def test_every_kind_of_trace_is_found() -> None:
    lease = {
        "metadata": {"namespace": names.NAMESPACE, "name": "node-a", "labels": OURS, "annotations": {}},
        "spec": {"holderIdentity": "r1/n1"},
    }
    surge = {
        "metadata": {
            "namespace": names.NAMESPACE,
            "name": "surge-u",
            "labels": OURS,
            "annotations": {names.SURGE: '{"kind":"Deployment","namespace":"shop","name":"web","nodes":{"a":"u"}}'},
        },
        "spec": {"holderIdentity": "r1/n1"},
    }
    foreign = {"metadata": {"namespace": "medik8s-leases", "name": "node-b"}, "spec": {"holderIdentity": "nmo"}}
    found = Snapshot.of(
        {
            "nodes": [_node({"spec": {"taints": [{"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"}]}})],
            "leases": [lease, surge, foreign],
        }
    )
    traces = state.traces(found, [stored()])
    assert [x.object for x in traces] == [
        "Node a",
        "Lease kubeops-node-maintenance/node-a",
        "Lease kubeops-node-maintenance/surge-u",
        "ConfigMap kubeops-node-maintenance/run-r1",
    ]
    assert {x.run for x in traces} == {"r1"}
    assert traces[2].nodes == ("a",)
    assert "1 of 2 nodes finished" in traces[3].what


def _node(changes: dict[str, t.Any]) -> t.Any:
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Node

    return Node.of({"metadata": {"name": "a"}, **changes})
