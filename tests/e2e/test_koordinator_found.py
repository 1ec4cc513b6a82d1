# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real koord-descheduler under other names, beside another one, and with a ConfigMap that it does not run with."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import pytest
import yaml
from support import rights
from support.arena import Arena
from support.jobs import Jobs, job_of, move
from support.koordinator import CONFIG, DEPLOYMENT, KEY, descheduler_pods, leads, migration_args
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from witness.log import Json

NAME = "rebalancer"


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.fixture
def jobs(arena: Arena) -> Iterator[Jobs]:
    made = Jobs(arena.api, arena)
    try:
        yield made
    finally:
        made.clear()


@contextlib.contextmanager
def another_release(lab: Lab, home: str) -> Iterator[None]:
    """koord-descheduler as another release in this namespace: its own names, Lease, ConfigMap and key."""
    config = yaml.safe_load(lab.api.get(CONFIG)["data"][KEY])
    config["leaderElection"] = {"resourceName": NAME, "resourceNamespace": home}
    text = yaml.safe_dump(config, sort_keys=False)
    lab.api.create(f"/api/v1/namespaces/{home}/configmaps", {"metadata": {"name": "settings"}, "data": {"file": text}})
    made = copy.deepcopy(lab.api.get(DEPLOYMENT))
    labels = {"app": NAME}
    spec, template = made["spec"], made["spec"]["template"]
    spec["selector"], spec["replicas"] = {"matchLabels": labels}, 1
    template["metadata"] = {"labels": labels}
    template["spec"].pop("serviceAccountName", None)
    template["spec"].pop("serviceAccount", None)
    source = {"name": "settings", "items": [{"key": "file", "path": "koord-descheduler.config"}]}
    template["spec"]["volumes"][0]["configMap"] = source
    path = f"/apis/apps/v1/namespaces/{home}/deployments"
    lab.api.create(path, {"metadata": {"name": NAME}, "spec": spec})
    try:
        until(lambda: lab.api.get(f"{path}/{NAME}")["status"].get("readyReplicas"), 60, f"{NAME} runs")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/{NAME}"
        until(lambda: (lab.api.find(lease) or {}).get("spec", {}).get("holderIdentity"), 60, f"{NAME} leads")
        yield
    finally:
        lab.api.delete(f"{path}/{NAME}")


def codes(play: Player, node: str) -> set[str]:
    """The codes of the findings of a plan by jobs."""
    run = play.module("maintenance_plan", nodes=[node], backend="koordinator")
    return {finding["code"] for finding in run.answer["findings"]}


@pytest.mark.whole
def test_koordinator_namespace_and_another_release_name(lab: Lab, arena: Arena, jobs: Jobs, play: Player) -> None:
    here, _there = arena.nodes(2)
    web = jobs.deployment("web")
    arena.settle()
    home = arena.namespace
    rights.bind(lab.api, "koordinator", home)
    with another_release(lab, home):
        run = move(play, jobs.named(web, uid=True))
        assert [finding["code"] for finding in run.answer["findings"]] == ["several_koordinators"], run.text
        for words in (f"{home}/{NAME}", "koordinator-system/koord-descheduler", "koordinator_namespace"):
            assert words in run.text
        assert "several_koordinators" in codes(play, here)
        wanted = {"maintain_backend": "koordinator", "maintain_koordinator_namespace": home}
        run = play("plan", survey={"maintain_nodes": here, **wanted})
        found = run.of("maintenance_plan")[-1]["findings"]
        assert not [finding for finding in found if finding["code"] == "several_koordinators"], run.text
        lab.api.patch(DEPLOYMENT, {"spec": {"replicas": 0}})
        try:
            until(lambda: not descheduler_pods(lab), 60, "the chart's descheduler has ended")
            run = move(play, jobs.named(web, uid=True), ttl="60s")
            assert run.ok, run.text
            assert (job_of(run)["outcome"], run.answer["doubt"]) == ("moved", "")
            assert not codes(play, here) & {"no_controller", "no_limits", "limits_unproven"}
        finally:
            lab.api.patch(DEPLOYMENT, {"spec": {"replicas": 1}})
            until(lambda: leads(lab), 60, "the chart's descheduler leads again")


def test_limits_of_a_config_map_that_was_edited_without_a_restart(lab: Lab, arena: Arena, play: Player) -> None:
    (here,) = arena.nodes(1)
    before = lab.api.get(CONFIG)["data"][KEY]
    config: Json = yaml.safe_load(before)
    assert not codes(play, here) & {"limits_not_running", "limits_unproven"}
    migration_args(config)["maxMigratingPerNode"] = 37
    lab.api.patch(CONFIG, {"data": {KEY: yaml.safe_dump(config, sort_keys=False)}})
    try:
        run = play.module("maintenance_plan", nodes=[here], backend="koordinator")
    finally:
        lab.api.patch(CONFIG, {"data": {KEY: before}})
    (found,) = (finding for finding in run.answer["findings"] if finding["code"] == "limits_not_running")
    assert "maxMigratingPerNode is 2, not 37" in found["message"]
