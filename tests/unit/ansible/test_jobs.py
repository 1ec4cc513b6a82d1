# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may not be asked of ``pod_migration_job``: told at once, and nobody is connected to."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.specs import Call, run_call
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.arguments import SPEC

Raw = dict[str, t.Any]

POD = {"namespace": "shop", "name": "web-0"}
UNREACHABLE: Raw = {"kubeconfig": {"clusters": []}}
DEFAULTS: Raw = {
    "state": "present",
    "mode": "ReservationFirst",
    "paused": False,
    "ttl": "5m",
    "wait": True,
}


def told(**params: t.Any) -> str:
    result = run_call(SPEC, {**DEFAULTS, **UNREACHABLE, **params}, Call())
    assert result["failed"]
    assert not result["changed"]
    assert "jobs" not in result
    return str(result["msg"])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, ["pods: None", "one of pods, nodes, pod_selector and name"]),
        ({"state": "approved"}, ["or run for all jobs of the run"]),
        ({"pods": [POD], "nodes": ["n1"]}, ["pods: ['web-0']", "only one of pods"]),
        ({"pods": [POD], "pod_selector": "app=web"}, ["only one of pods"]),
        ({"name": "a", "nodes": ["n1"]}, ["name: 'a'", "only one of pods"]),
        ({"name": "a", "pods": [POD, {**POD, "name": "web-1"}]}, ["name: 'a'", "one pod with state present"]),
        ({"state": "absent", "name": "a", "pods": [POD]}, ["name: 'a'"]),
        ({"pods": [POD], "namespaces": ["shop"]}, ["namespaces", "nodes or pod_selector as well"]),
        ({"pods": [{**POD, "uid": "1"}, {**POD, "uid": "2"}]}, ["pods[1].uid", "each pod only once"]),
        ({"pods": [POD], "ttl": "5 minutes"}, ["ttl: '5 minutes'", "as Go writes it"]),
        ({"pods": [POD], "name": "My_Job"}, ["name: 'My_Job'"]),
        ({"pods": [{"namespace": "Shop", "name": "web"}]}, ["pods[0].namespace: 'Shop'"]),
        ({"nodes": ["n1"], "pod_selector": "app=="}, []),
        ({"pod_selector": "app in web"}, ["pod_selector", "not part of a label selector"]),
        ({"nodes": ["n1"], "reservation": "r"}, ["reservation: 'r'", "one pod"]),
        ({"pods": [POD], "reservation": "R"}, ["reservation: 'R'"]),
        ({"pods": [POD], "mode": "EvictDirectly", "reservation": "r"}, ["mode: 'EvictDirectly'"]),
        ({"pods": [POD], "mode": "EvictDirectly", "reservation_template": {"spec": {"ttl": "1h"}}}, ["EvictDirectly"]),
        ({"pods": [POD], "reservation_template": {"metadata": {}}}, ["reservation_template", "spec is missing"]),
        (
            {
                "pods": [POD],
                "reservation": "r",
                "reservation_template": {"metadata": {"name": "s"}, "spec": {"ttl": "1h"}},
            },
            ["reservation_template.metadata.name: 's'"],
        ),
        (
            {"nodes": ["n1"], "reservation_template": {"metadata": {"name": "s"}, "spec": {"ttl": "1h"}}},
            ["each job creates its own Reservation"],
        ),
        (
            {"pods": [POD], "reservation_template": {"spec": {"template": {"spec": {"nodeName": "n1"}}}}},
            ["reservation_template.spec.template.spec.nodeName: 'n1'"],
        ),
        ({"pods": [POD], "delete_options": {"gracePeriodSeconds": "60"}}, ["delete_options.gracePeriodSeconds: '60'"]),
        ({"pods": [POD], "timeout": "soon"}, ["timeout: 'soon'"]),
        (
            {"pods": [POD], "ttl": "x", "name": "-", "delete_options": {"grace": 1}},
            ["ttl: 'x'", "name: '-'", "delete_options.grace"],
        ),
    ],
)
def test_what_cannot_be_asked(params: Raw, words: list[str]) -> None:
    message = told(**params)
    for word in words:
        assert word in message
    assert ("cannot be used" in message) == bool(words)


@pytest.mark.parametrize(
    "params",
    [
        {"pods": [POD], "name": "mine"},
        {"nodes": ["n1"], "pod_selector": "app=web", "namespaces": ["shop"]},
        {"state": "rejected", "run": "night"},
        {"name": "mine"},
        {
            "pods": [POD],
            "reservation": "r",
            "reservation_template": {"spec": {"template": {"spec": {"nodeName": "n1"}}}},
        },
    ],
)
def test_what_can_be_asked_is_asked(params: Raw) -> None:
    assert "cannot be used" not in told(**params), "what fails is the connection"
