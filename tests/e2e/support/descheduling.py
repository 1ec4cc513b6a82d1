# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""koord-descheduler at work on the nodes of an arena: configured for it, what it moved, and put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import yaml
from witness import objects as o
from witness.log import Json

from support import koordinator, rights, shapes
from support.arena import Arena
from support.jobs import JOBS
from support.lab import Lab
from support.waiting import until

TRIGGER = "koordinator.sh/evict-trigger"
DRY_RUNS = "kubeops-node-maintenance-dry-run"
PRINTED = """\
# koord-descheduler-config.yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: koord-descheduler-config
  namespace: kube-system
data:
  koord-descheduler-config: |
    # 以下为Koordinator Descheduler系统配置,请保持不变。
    apiVersion: descheduler/v1alpha2
    kind: DeschedulerConfiguration
    leaderElection:
      resourceLock: leases
      resourceName: koord-descheduler
      resourceNamespace: kube-system
    deschedulingInterval: 120s # 执行周期间隔,120s执行一次重调度插件。
    dryRun: false # 全局只读模式开关,开启后Koordinator Descheduler整体不做任何操作。
    # 以上为系统配置。

    profiles:
    - name: koord-descheduler
      plugins:
        deschedule:
          enabled:
            - name: RemovePodsViolatingNodeTaints  # 配置开启节点污点校验插件。

      pluginConfig:
      - name: RemovePodsViolatingNodeTaints # 节点污点校验插件配置。
        args:
          excludedTaints:
          - deschedule=not-allow # 忽略包含key为"deschedule"且value为"not-allow"的污点的节点。
"""
"""The first example of ACK's document, as it prints it."""
DOCUMENT: Json = yaml.safe_load(PRINTED)
CYCLE = 2.0
"""Seconds from one round of the plugins to the next."""


@contextlib.contextmanager
def as_found(lab: Lab, arena: Arena) -> Iterator[None]:
    """The descheduler's configuration and its pods' annotations are put back, and no job is left."""
    until(lambda: koordinator.leads(lab), 60, "the descheduler leads")
    config = lab.api.get(koordinator.CONFIG)["data"]
    notes = _template_notes(lab)
    try:
        yield
    finally:
        lab.api.patch(koordinator.CONFIG, {"data": config})
        added = dict.fromkeys(_template_notes(lab), None)
        lab.api.patch(koordinator.DEPLOYMENT, _template({**added, **notes}))
        for job in lab.api.items(JOBS):
            if job["spec"]["podRef"]["namespace"] in arena.namespaces:
                lab.api.delete(f"{JOBS}/{o.name(job)}")
        if not added.keys() - notes.keys():
            koordinator.restart_descheduler(lab)
        until(lambda: koordinator.leads(lab), 60, "the descheduler leads again")


def _template(notes: Json) -> Json:
    return {"spec": {"template": {"metadata": {"annotations": notes}}}}


def _template_notes(lab: Lab) -> Json:
    metadata = lab.api.get(koordinator.DEPLOYMENT)["spec"]["template"]["metadata"]
    return dict(metadata.get("annotations") or {})


def here(config: Json, arena: Arena, *, as_printed: bool = False) -> Json:
    """The configuration in this lab: the chart's names, short cycles, the arena's nodes.

    Unless it is to be `as_printed`, it moves pods of any scheduler, also where two of them may be away.
    """
    config["leaderElection"] = {"resourceName": "koord-descheduler", "resourceNamespace": koordinator.NAMESPACE}
    config["deschedulingInterval"] = f"{CYCLE:g}s"
    config["nodeSelector"] = {"matchLabels": {shapes.ARENA: arena.name}}
    for profile in () if as_printed else config["profiles"]:
        args = {"defaultJobMode": "EvictDirectly", "maxUnavailablePerWorkload": 2}
        profile["pluginConfig"].append({"name": "MigrationController", "args": args})
    return config


def moves(lab: Lab, arena: Arena) -> dict[tuple[str, str, str], str]:
    """What was asked for, by plugin, namespace and workload, and the phase of it."""
    known: dict[tuple[str, str, str], str] = {}
    for job in lab.api.items(JOBS):
        pod = job["spec"]["podRef"]
        if pod["namespace"] in arena.namespaces:
            key = (o.notes(job).get(TRIGGER, ""), pod["namespace"], pod["name"].rsplit("-", 2)[0])
            phase = (job.get("status") or {}).get("phase", "")
            known[key] = phase if known.get(key) != "Succeeded" else "Succeeded"
    return known


def events(lab: Lab, namespace: str, reason: str) -> list[str]:
    found = lab.api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"reason={reason}")
    return [str(event["message"]) for event in found]


@contextlib.contextmanager
def dry_runs_in(lab: Lab, namespace: str) -> Iterator[None]:
    """The account of dry runs, as the guide to rights says."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    binding = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": DRY_RUNS}}
    subject = {"kind": "ServiceAccount", "name": DRY_RUNS, "namespace": namespace}
    body = {"metadata": {"name": f"{DRY_RUNS}-{namespace}"}, "subjects": [subject], **binding}
    lab.api.create(accounts, {"metadata": {"name": DRY_RUNS}})
    lab.api.create(f"{rights.RBAC}/clusterrolebindings", body)
    try:
        yield
    finally:
        lab.api.delete(f"{rights.RBAC}/clusterrolebindings/{DRY_RUNS}-{namespace}")
        lab.api.delete(f"{accounts}/{DRY_RUNS}")
