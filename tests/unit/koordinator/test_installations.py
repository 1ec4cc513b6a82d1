# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which Deployments run Koordinator, and which configuration each reads."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import installation
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import installations
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw

HOME = "koordinator-system"


def deployment(name: str, namespace: str = HOME, ready: int = 1, **container: t.Any) -> Raw:
    volumes = container.pop("volumes", [])
    spec = {"containers": [{"name": "sidecar", "image": "proxy"}, {"name": "c", **container}], "volumes": volumes}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": spec}},
        "status": {"readyReplicas": ready} if ready else {},
    }


@pytest.mark.parametrize(
    ("container", "runs"),
    [
        ({"image": "registry.example:5000/koordinator-sh/koord-descheduler:v1.7.0"}, True),
        ({"image": "koord-descheduler@sha256:0123"}, True),
        ({"image": "koord-descheduler"}, True),
        ({"image": "koord-descheduler/other:v1"}, False),
        ({"image": "other:koord-descheduler"}, False),
        ({"image": "x", "command": ["/usr/bin/koord-descheduler", "-v=4"]}, True),
        ({"image": "x", "args": ["koord-descheduler"]}, True),
        ({"image": "x", "command": ["sh", "-c"], "args": ["exec /koord-descheduler --v 4"]}, True),
        ({"image": "x", "args": ["--name=koord-descheduler"]}, False),
        ({"image": "x", "args": ["-koord-descheduler"]}, False),
        ({}, False),
    ],
)
def test_a_program_is_known_by_its_image_or_its_command(container: Raw, runs: bool) -> None:
    assert installations.runs(deployment("d", **container), "koord-descheduler") is runs


def test_what_cannot_be_read_runs_nothing() -> None:
    assert installations.runs({"spec": {"template": "odd"}}, "koord-descheduler") is False


RUNS: Raw = {"image": "koord-descheduler:v1"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["a/koord-descheduler", "a/mine"]),
        ({"namespace": "a"}, ["a/koord-descheduler", "a/mine"]),
        ({"namespace": "b"}, []),
        ({"deployment": "mine"}, ["a/mine"]),
        ({"deployment": "web"}, ["a/web", "b/web"]),
        ({"namespace": "b", "deployment": "web"}, ["b/web"]),
    ],
)
def test_a_descheduler_is_found_by_what_it_runs_or_by_what_is_given(given: dict[str, str], found: list[str]) -> None:
    listed = [
        deployment("web", "a"),
        deployment("koord-descheduler", "a"),
        deployment("mine", "a", **RUNS),
        deployment("web", "b"),
    ]
    place = replace(installations.ANYWHERE, **given)
    assert [one.name for one in installations.installations(listed, place)] == found


def mounted(source: Raw, path: str, sub: str = "", config: str = "/etc/koord/config.yaml") -> Raw:
    mount = {"name": "v", "mountPath": path, **({"subPath": sub} if sub else {})}
    volumes = [{"name": "other", "configMap": {"name": "x"}}, {"name": "v", **source}]
    return deployment("d", args=[f"--config={config}"], volumeMounts=[mount], volumes=volumes)


MAP = {"configMap": {"name": "mine"}}
ITEMS = {"configMap": {"name": "mine", "items": [{"key": "text", "path": "config.yaml"}, {"key": "y", "path": "z"}]}}
CHART = ("koord-descheduler-config", "koord-descheduler-config")


@pytest.mark.parametrize(
    ("workload", "read"),
    [
        (mounted(MAP, "/etc/koord"), ("mine", "config.yaml")),
        (mounted(MAP, "/etc/koord/"), ("mine", "config.yaml")),
        (mounted(ITEMS, "/etc/koord"), ("mine", "text")),
        (mounted({"projected": {"sources": [{"secret": {}}, MAP]}}, "/etc/koord"), ("mine", "config.yaml")),
        (mounted(MAP, "/etc/koord/config.yaml", "config.yaml"), ("mine", "config.yaml")),
        (mounted(MAP, "/etc/koord/config.yaml", "inner.yaml"), ("mine", "inner.yaml")),
        (mounted(MAP, "/etc/other"), CHART),
        (mounted(MAP, "/etc/other", "config.yaml"), CHART),
        (mounted({"configMap": {"name": "mine", "items": [{"key": "y", "path": "z"}]}}, "/etc/koord"), CHART),
        (mounted({"emptyDir": {}}, "/etc/koord"), CHART),
        (deployment("d"), CHART),
        ({}, CHART),
    ],
)
def test_the_configuration_is_the_file_that_is_mounted(workload: Raw, read: tuple[str, str]) -> None:
    found = installations.completed(installations.ANYWHERE, workload)
    assert (found.config_map, found.key) == read
    given = installation.Location("", "", "given", "key")
    assert installations.completed(given, workload) == given


@pytest.mark.parametrize(
    ("listed", "silent"),
    [
        ([], ""),
        ([deployment("koord-scheduler", ready=1)], ""),
        ([deployment("koord-scheduler", ready=0)], f"{HOME}/koord-scheduler"),
        ([deployment("koord-scheduler", "far", ready=0)], ""),
        ([deployment("mine", "far", ready=0, image="koord-scheduler:v1")], "far/mine"),
        ([deployment("koord-scheduler", ready=0), deployment("mine", "far", image="koord-scheduler:v1")], ""),
    ],
)
def test_a_scheduler_is_silent_if_none_is_ready(listed: list[Raw], silent: str) -> None:
    assert installations.silent_scheduler(listed, HOME) == silent


@pytest.mark.parametrize(("ready", "believed"), [(1, True), (2, True), (0, False), (None, True)])
def test_an_installation_that_may_not_be_read_is_believed(ready: int | None, believed: bool) -> None:
    workload = {} if ready is None else deployment("d", ready=ready)
    assert installations.Installation(installations.ANYWHERE, workload).ready is believed


@pytest.mark.parametrize(
    ("namespaces", "option"), [(("a", "b"), drain_policy.KOORDINATOR[0]), (("a", "a"), drain_policy.KOORDINATOR[1])]
)
def test_of_several_the_option_that_tells_them_apart_is_named(namespaces: tuple[str, str], option: str) -> None:
    listed = [deployment(f"d{index}", namespace, **RUNS) for index, namespace in enumerate(namespaces)]
    told = installations.several(installations.installations(listed, installations.ANYWHERE))
    assert option in told.remedy
    assert f"{namespaces[0]}/d0 and {namespaces[1]}/d1" in told.message


@pytest.mark.parametrize(
    ("before", "after", "renewed"), [("1", "2", True), ("1", "1", False), ("", "2", False), ("1", "", False)]
)
def test_a_lease_is_renewed_if_both_were_read_and_differ(before: str, after: str, renewed: bool) -> None:
    read = [{"metadata": {"resourceVersion": version}} if version else None for version in (before, after)]
    assert installations.renewed(*read) is renewed


@pytest.mark.parametrize(
    ("given", "listed", "words", "of"),
    [
        ({}, [], "no Deployment that runs koord-descheduler: nothing", f"{HOME}/koord-descheduler"),
        ({"namespace": "far"}, [], "koord-descheduler in namespace far: nothing", "far/koord-descheduler"),
        ({"deployment": "mine"}, [], "no Deployment mine: nothing", f"{HOME}/mine"),
        ({}, [deployment("d", ready=0, **RUNS)], f"No pod of Deployment {HOME}/d is ready", f"{HOME}/d"),
    ],
)
def test_where_nothing_works_on_jobs_what_was_looked_for_is_told(
    given: dict[str, str], listed: list[Raw], words: str, of: str
) -> None:
    place = replace(installations.ANYWHERE, **given)
    told = installations.none(place, installations.installations(listed, place))
    assert words in told.message
    assert told.object == f"Deployment {of}"


@pytest.mark.parametrize(
    ("deployments", "told"),
    [
        pytest.param([deployment("mine", **RUNS)], False, id="it alone"),
        pytest.param([deployment("mine", **RUNS), deployment("other", "b", **RUNS)], True, id="another one"),
        pytest.param([deployment("mine", **RUNS), deployment("other", "b", ready=0, **RUNS)], False, id="not ready"),
        pytest.param([deployment("mine", **RUNS), deployment("web", "b", image="web")], False, id="something else"),
    ],
)
def test_a_second_descheduler_is_warned_of(deployments: list[Raw], told: bool) -> None:
    found = installations.beside(deployments, installation.Location(HOME, "mine", "", ""))
    assert [(one.code, one.severity) for one in found] == [("several_deschedulers", "warning")] * told
    assert all("b/other" in one.message for one in found)
