# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls of `descheduler_config` on the lab's descheduler, and what they leave there."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import yaml
from witness.log import Json

from support import koordinator
from support.lab import Lab
from support.plays import Player, Run
from support.waiting import until

MODULE = "descheduler_config"
DIGEST = "maintenance.kubeops.io/descheduler-config"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
CORE = ["pods", "configmaps", "namespaces"]


@contextlib.contextmanager
def as_found(lab: Lab, chart: str) -> Iterator[None]:
    """Begins and ends with the chart's configuration, running on one replica, and nothing of ours left."""
    until(lambda: koordinator.leads(lab), 60, "the descheduler leads")
    yield
    lab.api.patch(koordinator.DEPLOYMENT, {"spec": {"replicas": 1}})
    if lab.api.get(koordinator.CONFIG)["data"] != {koordinator.KEY: chart}:
        lab.api.patch(koordinator.CONFIG, {"data": {koordinator.KEY: chart}})
        clear = {"spec": {"template": {"metadata": {"annotations": {DIGEST: None, "test": str(time.time())}}}}}
        lab.api.patch(koordinator.DEPLOYMENT, clear)
    until(lambda: koordinator.leads(lab), 60, "the descheduler leads again")
    assert journals(lab) == []


def journals(lab: Lab) -> list[str]:
    found = [raw["metadata"]["name"] for raw in lab.api.items("/api/v1/configmaps")]
    return [name for name in found if name.startswith("descheduler-") and name != "descheduler-policy-configmap"]


def locks(lab: Lab) -> list[str]:
    """Locks of deschedulers, held or left."""
    found = lab.api.items("/apis/coordination.k8s.io/v1/namespaces/kubeops-node-maintenance/leases")
    return [raw["metadata"]["name"] for raw in found if raw["metadata"]["name"].startswith("descheduler-")]


def the_pod(lab: Lab) -> str:
    (pod,) = koordinator.descheduler_pods(lab)
    name: str = pod["metadata"]["name"]
    return name


def state_of(lab: Lab) -> Json:
    """What has to be the same again after a rollback; the template byte for byte."""
    template = lab.api.get(koordinator.DEPLOYMENT)["spec"]
    return {"data": lab.api.get(koordinator.CONFIG)["data"], "spec": json.dumps(template), "pod": the_pod(lab)}


def refused_class(chart: str) -> Json:
    """Valid by the schema, and refused by the descheduler: the class is looked up in the cluster."""
    bad: Json = yaml.safe_load(chart)
    koordinator.migration_args(bad)["priorityThreshold"] = {"name": "no-such-class"}
    return bad


def slower(chart: str, seconds: int) -> str:
    """The chart's configuration with another interval."""
    return chart.replace("deschedulingInterval: 10s", f"deschedulingInterval: {seconds}s")


def roll(play: Player, config: object, **more: Any) -> Json:
    """The answer of one call."""
    answer: Json = call(play, config, **more).answer
    return answer


def call(play: Player, config: object, *, check: bool = False, diff: bool = False, **more: Any) -> Run:
    return play.module(MODULE, check=check, diff=diff, config=config, **{"timeout": "60s", **more})


def restart_by_hand(lab: Lab) -> None:
    """`kubectl rollout restart`, to its end."""
    for words in (("restart",), ("status", "--timeout=60s")):
        done = lab.run_kubectl("-n", "koordinator-system", "rollout", *words, "deployment/koord-descheduler")
        assert done.returncode == 0, done.stderr
    until(lambda: koordinator.leads(lab), 60, "the descheduler leads again")


@contextlib.contextmanager
def somebody(lab: Lab, name: str, *core: str) -> Iterator[None]:
    """A user who may do everything, but in the core group with these resources alone."""
    groups = ["apps", "coordination.k8s.io", "scheduling.koordinator.sh"]
    rules = [{**EVERYTHING, "apiGroups": [""], "resources": [*CORE, *core]}, {**EVERYTHING, "apiGroups": groups}]
    group = "rbac.authorization.k8s.io"
    ref = {"kind": "ClusterRole", "name": name, "apiGroup": group}
    subject = {"kind": "User", "name": name, "apiGroup": group}
    lab.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    lab.api.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]})
    try:
        yield
    finally:
        lab.api.delete(f"{RBAC}/clusterrolebindings/{name}")
        lab.api.delete(f"{RBAC}/clusterroles/{name}")
