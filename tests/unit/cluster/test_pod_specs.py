# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of a pod to know where it fits, and how long pods take to start."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import pod_specs, start_times
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Workload
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

Raw = dict[str, t.Any]
ONE: Raw = {"requests": {"cpu": "1"}}


def test_volumes_that_any_node_has_are_not_kept() -> None:
    kinds: Raw = {
        "projected": {"sources": []},
        "secret": {"secretName": "s"},
        "configMap": {"name": "c"},
        "downwardAPI": {},
        "emptyDir": {},
        "hostPath": {"path": "/var"},
        "persistentVolumeClaim": {"claimName": "data"},
    }
    volumes = [{"name": kind, kind: source} for kind, source in kinds.items()]
    kept = Pod.of(objects.pod("p", volumes=volumes)).volumes
    assert [volume["name"] for volume in kept] == ["emptyDir", "hostPath", "persistentVolumeClaim"]


def test_containers_keep_what_they_take_and_nothing_else() -> None:
    container: Raw = {
        "name": "c",
        "image": "i",
        "resources": {**ONE, "limits": {"cpu": "2"}},
        "ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 2}],
        "restartPolicy": "Always",
    }
    spec = {"containers": [{"name": "bare"}], "initContainers": [container], "nodeSelector": {}}
    assert pod_specs.trimmed(spec, {}) == {
        "containers": [{"name": "bare"}],
        "initContainers": [
            {
                "name": "c",
                "requests": {"cpu": "1"},
                "ports": [{"containerPort": 2, "hostPort": 2}],
                "restartPolicy": "Always",
            }
        ],
    }


def test_volumes_that_name_nothing_are_none() -> None:
    volumes: list[Raw] = [{"emptyDir": {}}, {"name": "a", "persistentVolumeClaim": {"claimName": ""}}, {"name": "b"}]
    found = Pod.of({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"volumes": volumes}})
    assert ([one["name"] for one in found.volumes], found.claims, found.empty_dirs) == (["b"], (), ())


@pytest.mark.parametrize(
    ("spec", "source", "expected"),
    [
        pytest.param({"containers": ["/data"]}, {}, {}, id="nothing is known"),
        pytest.param({}, {}, {}, id="nobody mounts it"),
        pytest.param({"containers": ["/data"]}, {"medium": "Memory"}, {"v": "in memory"}, id="memory"),
        pytest.param({"containers": ["/tmp"]}, {}, {"v": "temporary files"}, id="temporary"),
        pytest.param({"containers": ["/tmp", "/data"]}, {}, {}, id="somewhere it is not temporary"),
        pytest.param({"sidecars": ["/var/tmp/x"]}, {}, {"v": "temporary files"}, id="a sidecar's temporary files"),
        pytest.param({"sidecars": ["/data"], "inits": ["/data"]}, {}, {"v": "sidecars"}, id="a sidecar"),
        pytest.param({"sidecars": ["/data"], "containers": ["/data"]}, {}, {}, id="not of a sidecar alone"),
        pytest.param({"inits": ["/data"]}, {}, {"v": "init containers"}, id="an init container"),
        pytest.param({"inits": ["/tmp"]}, {}, {"v": "init containers"}, id="an init container's temporary files"),
        pytest.param({"inits": ["/data"], "containers": ["/data"]}, {}, {}, id="handed to a container"),
    ],
)
def test_what_says_that_the_data_of_an_empty_dir_seldom_has_to_last(spec: Raw, source: Raw, expected: Raw) -> None:
    mounted = {
        kind: [{"volumeMounts": [{"name": "v", "mountPath": path}, {"name": "w"}]} for path in spec.get(kind, ())]
        for kind in ("containers", "sidecars", "inits")
    }
    sidecars = [{**container, "restartPolicy": "Always"} for container in mounted["sidecars"]]
    volumes: list[Raw] = [{"name": "v", "emptyDir": source}, {"name": "w", "hostPath": {"path": "/tmp"}}]
    found = {
        "volumes": volumes,
        "containers": mounted["containers"],
        "initContainers": [*sidecars, *mounted["inits"]],
    }
    assert pod_specs.scratch(found) == expected


@pytest.mark.parametrize("key", ["containerStatuses", "initContainerStatuses"])
def test_requests_in_force_and_those_allocated_count_during_a_resize(key: str) -> None:
    resized = {"name": "c", "resources": ONE, "allocatedResources": {"cpu": "2"}}
    statuses = [resized, {"name": "d", "resources": ONE}, {"name": "e", "allocatedResources": {"cpu": "3"}}]
    assert pod_specs.trimmed({}, {key: statuses})["counted"] == {"c": [{"cpu": "1"}, {"cpu": "2"}], "d": [{"cpu": "1"}]}
    assert "counted" not in pod_specs.trimmed({}, {key: [{"name": "e"}]})


@pytest.mark.parametrize(
    ("status", "counted"),
    [
        ({"resources": ONE}, [{"cpu": "1"}]),
        ({"resources": ONE, "allocatedResources": {"cpu": "2"}}, [{"cpu": "1"}, {"cpu": "2"}]),
        ({"resources": {"limits": {}}, "allocatedResources": {"cpu": "2"}}, [{"cpu": "2"}]),
        ({"allocatedResources": {"cpu": "2"}}, None),
        ({"resources": {"limits": {}}}, None),
    ],
)
def test_resources_of_the_whole_pod_count_where_it_has_them(status: Raw, counted: list[Raw] | None) -> None:
    assert pod_specs.trimmed({}, status).get("countedWhole") == counted


@pytest.mark.parametrize(
    ("kind", "reason", "infeasible"),
    [
        ("PodResizePending", "Infeasible", True),
        ("PodResizePending", "Deferred", False),
        ("PodResizeInProgress", "Infeasible", False),
    ],
)
def test_a_resize_that_cannot_be_done_is_known(kind: str, reason: str, infeasible: bool) -> None:
    found = pod_specs.trimmed({}, {"conditions": [{"type": "Ready"}, {"type": kind, "reason": reason}]})
    assert found == ({"infeasible": True} if infeasible else {})


# -- start times ---------------------------------------------------------------------------------------


def pod(seconds: float, *, ready: bool = True, restarts: int = 0, scheduled: bool = True) -> Pod:
    """One that became Ready so many seconds after it got its node."""
    raw = objects.pod("p", ready=ready, created="2026-01-01T00:00:00Z" if scheduled else "2026-01-01T00:00:10Z")
    since = f"2026-01-01T00:{10 + (10 + seconds) // 60:02.0f}:{(10 + seconds) % 60:02.0f}Z"
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:10:10Z"}
    conditions = [{**raw["status"]["conditions"][0], "lastTransitionTime": since}, *([placed] if scheduled else [])]
    raw["status"] = {**raw["status"], "conditions": conditions, "containerStatuses": [{"restartCount": restarts}]}
    return Pod.of(raw)


@pytest.mark.parametrize(
    ("found", "took"),
    [
        pytest.param(pod(7), 7.0, id="from when it got its node"),
        pytest.param(pod(0), 0.0, id="at once"),
        pytest.param(pod(20), 20.0, id="as long as may be"),
        pytest.param(pod(21), None, id="longer than may be"),
        pytest.param(pod(-1), None, id="clocks that disagree"),
        pytest.param(pod(7, ready=False), None, id="not ready"),
        pytest.param(pod(7, restarts=1), None, id="restarted since"),
        pytest.param(pod(7, scheduled=False), None, id="made long before"),
    ],
)
def test_how_long_a_pod_took_to_start_is_told_by_its_conditions(found: Pod, took: float | None) -> None:
    assert start_times.took(found, 20.0) == took


@pytest.mark.parametrize(
    ("probes", "settles", "expected"),
    [
        ([], 0, (10.0, 10.0)),
        ([{}], 0, (10.0, 10.0)),
        ([{"initialDelaySeconds": 5}, {"initialDelaySeconds": 20}, {}], 7, (30.0, 37.0)),
    ],
)
def test_without_a_pod_to_measure_the_longest_delay_of_a_probe_counts(
    probes: list[Raw], settles: int, expected: tuple[float, float]
) -> None:
    template = {"spec": {"containers": [{"readinessProbe": probe} for probe in probes] + [{}]}}
    web = Workload.of(objects.workload("Deployment", "web", 1, template=template, minReadySeconds=settles))
    found = start_times.by_rule(web)
    assert (found.ready - start_times.STARTS + 10.0, found.available - start_times.STARTS + 10.0) == expected
