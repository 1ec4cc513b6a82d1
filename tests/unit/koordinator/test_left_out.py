# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a configuration of koord-descheduler leaves out, as a document for the default scheduler prints it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.left_out import left_out
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    deployment,
    owned,
    pod,
    snapshot,
)

TAINTS: Raw = {"deschedule": {"enabled": [{"name": "RemovePodsViolatingNodeTaints"}]}}


def config(plugins: Raw | None = None, **args: t.Any) -> Raw:
    controller = [{"name": "MigrationController", "args": args}] if args else []
    profile = {
        "name": "koord-descheduler",
        "plugins": TAINTS if plugins is None else plugins,
        "pluginConfig": controller,
    }
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration", "profiles": [profile]}


def told(given: Raw, replicas: int = 3, **spec: t.Any) -> str:
    pods = [pod(f"web-{n}", "n1", owned("ReplicaSet", "web"), requests={"cpu": "1"}) for n in range(replicas)]
    pods += [pod("agent", "n1", owned("DaemonSet", "agent")), pod("bare", "n1")]
    for raw in pods:
        raw["spec"] |= spec
    found = left_out(snapshot(deployment("web", replicas), pods=pods), given)
    assert len(found) < 2
    for fault in found:
        assert (fault.code, fault.severity) == ("left_out", "warning")
        assert fault.remedy
    return found[0].message if found else ""


def test_pods_of_the_default_scheduler_are_not_reserved_for() -> None:
    message = told(config())
    assert message.startswith("Of 3 pods that controllers own, 3 are never moved: 3 scheduler (")
    assert told(config(defaultJobMode="EvictDirectly")) == ""
    assert told(config(), schedulerName="koord-scheduler") == ""
    assert told(config(schedulerNames=["default-scheduler"]), schedulerName="default-scheduler") == ""


@pytest.mark.parametrize(
    ("args", "replicas", "spec", "code"),
    [
        ({}, 1, {}, "1 single_replica"),
        ({"maxUnavailablePerWorkload": 2}, 2, {}, "2 all_replicas"),
        ({}, 3, {"volumes": [{"name": "x", "emptyDir": {}}]}, "3 local_storage"),
        ({"namespaces": {"exclude": ["shop"]}}, 3, {}, "3 namespace_excluded"),
        ({}, 3, {}, ""),
    ],
)
def test_limits_and_protections_count_whatever_the_mode_is(args: Raw, replicas: int, spec: Raw, code: str) -> None:
    message = told(config(defaultJobMode="EvictDirectly", **args), replicas, **spec)
    assert (code in message) if code else message == ""


@pytest.mark.parametrize(
    "given",
    [
        config({}),
        config({**TAINTS, "evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}}),
        {**config(), "kind": "DeschedulerPolicy"},
    ],
)
def test_what_moves_nothing_by_jobs_leaves_nothing_out(given: Raw) -> None:
    assert told(given) == ""
