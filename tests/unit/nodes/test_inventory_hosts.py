# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes as hosts: address, variables and groups."""

from __future__ import annotations

import datetime
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import inventory_hosts
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import node

NOW = datetime.datetime(2026, 11, 24, 12, tzinfo=datetime.UTC)
ANNOTATION = "example.com/maintained-at"
DAY = 86400


def record(step: node_records.Step = "out") -> node_records.Record:
    return node_records.Record(
        run="r-1",
        nonce="a-nonce",
        by="ann@here",
        reason="new disk",
        since="2026-11-24T11:00:00Z",
        step=step,
        node_uid="uid-n1",
        lease="kubeops-node-maintenance/node-n1",
        prior={"unschedulable": False},
    )


def host(raw: objects.Raw, **wanted: t.Any) -> inventory_hosts.Host:
    """The host of one node."""
    chosen = inventory_hosts.InventoryOptions(**wanted)
    (found,) = inventory_hosts.hosts([inventory_hosts.kept(raw, chosen.maintained_annotation)], chosen, NOW)
    return found


def with_status(raw: dict[str, t.Any], **status: t.Any) -> objects.Raw:
    return {**raw, "status": {**raw["status"], **status}}


def test_a_node_without_anything_special() -> None:
    info = {"kubeletVersion": "v1.36.3", "osImage": "Debian 12", "bootID": "b"}
    addresses = [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    zone = {inventory_hosts.ZONE_LABEL: "eu-1a", inventory_hosts.REGION_LABEL: "eu-1"}
    found = host(with_status(node("n1", labels=zone), nodeInfo=info, addresses=addresses))
    assert (found.name, found.fault) == ("n1", "")
    assert found.groups == (
        "cluster_nodes",
        "role_worker",
        "region_eu-1",
        "zone_eu-1a",
        "ready",
        "maintenance_none",
    )
    assert found.variables == {
        "node_name": "n1",
        "ansible_host": "10.0.0.1",
        "node_roles": ["worker"],
        "node_zone": "eu-1a",
        "node_region": "eu-1",
        "node_labels": {"kubernetes.io/hostname": "n1", **zone},
        "node_taints": [],
        "node_schedulable": True,
        "node_ready": True,
        "node_conditions": {"Ready": "True"},
        "node_addresses": {"Hostname": ["n1"], "InternalIP": ["10.0.0.1"]},
        "node_versions": {
            "kubelet": "v1.36.3",
            "container_runtime": "",
            "kernel": "",
            "os_image": "Debian 12",
            "operating_system": "",
            "architecture": "",
        },
        "node_maintenance": "none",
        "node_record": {},
    }


@pytest.mark.parametrize(
    ("types", "address"),
    [
        (("InternalIP", "Hostname"), "10.0.0.1"),
        (("ExternalDNS", "ExternalIP"), "192.0.2.7"),
        (("ExternalDNS",), None),
        ((), None),
    ],
)
def test_the_first_type_of_address_that_a_node_has(types: tuple[str, ...], address: str | None) -> None:
    had = [("Hostname", "n1"), ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("ExternalIP", "192.0.2.7")]
    addresses = [{"type": kind, "address": value} for kind, value in had]
    found = host(with_status(node("n1"), addresses=addresses), address_types=types)
    assert found.variables.get("ansible_host") == address
    assert found.variables["node_addresses"]["InternalIP"] == ["10.0.0.1", "fd00::1"]


@pytest.mark.parametrize("hostile", ["-oProxyCommand=touch x", "root@other", "n1 -v", "{{ lookup('pipe', 'id') }}"])
def test_what_is_no_address_does_not_reach_ssh(hostile: str) -> None:
    """A kubelet reports its node's addresses."""
    of_both = [{"type": "InternalIP", "address": hostile}, {"type": "Hostname", "address": "n1.example.org"}]
    other, none = (host(with_status(node("n1"), addresses=some)) for some in (of_both, of_both[:1]))
    assert (other.variables["ansible_host"], other.fault) == ("n1.example.org", "")
    assert "ansible_host" not in none.variables
    assert "neither an IP address nor a DNS name" in none.fault
    nodes = [objects.Node.of(with_status(node("n1"), addresses=some)) for some in (of_both, of_both[:1])]
    assert [one.address for one in nodes] == ["n1.example.org", ""], "as playbooks use it"


@pytest.mark.parametrize(
    ("labels", "roles"),
    [
        ({}, ["worker"]),
        (
            {"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/etcd": "true"},
            ["control-plane", "etcd"],
        ),
        ({"kubernetes.io/role": "ingress"}, ["ingress"]),
    ],
)
def test_roles_are_those_that_kubectl_shows(labels: dict[str, str], roles: list[str]) -> None:
    found = host(node("n1", labels=labels), group_by=("role",))
    assert found.variables["node_roles"] == roles
    assert found.groups == ("cluster_nodes", *(f"role_{role}" for role in roles))


def test_groups_by_taint_readiness_and_label() -> None:
    taints = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule", "timeAdded": "2026-11-24T11:00:00Z"}]
    raw = node("n1", taints=taints, unschedulable=True, conditions={"Ready": "Unknown"}, labels={"pool": "a"})
    found = host(raw, group_by=("taint", "ready"), label_groups=("pool", "missing"))
    assert found.groups == (
        "cluster_nodes",
        "taint_dedicated_NoSchedule",
        "not_ready",
        "unschedulable",
        "label_pool_a",
    )
    assert found.variables["node_taints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    assert not found.variables["node_ready"]
    assert not found.variables["node_schedulable"]


@pytest.mark.parametrize("step", t.get_args(node_records.Step))
def test_the_state_is_the_step_of_the_record(step: node_records.Step) -> None:
    raw = node("n1", annotations={names.RECORD: record(step).dump()})
    found = host(raw, group_by=("maintenance",))
    assert found.groups == ("cluster_nodes", f"maintenance_{step}")
    assert found.variables["node_maintenance"] == step
    assert found.variables["node_record"] == record(step).public()


def test_what_is_kept_is_json_and_has_no_nonce() -> None:
    raw = node(
        "n1", annotations={names.RECORD: record().dump(), "other": "thing"}, taints=[{"key": "a", "effect": "b"}]
    )
    kept = inventory_hosts.kept(raw)
    text = json.dumps(kept)
    assert json.loads(text) == kept
    assert "a-nonce" not in text
    assert "thing" not in text


def test_a_node_that_waits_for_its_wave_and_one_whose_record_is_broken() -> None:
    taint = {"key": names.WAITING, "value": "r-1", "effect": "PreferNoSchedule"}
    assert host(node("n1", taints=[taint]), group_by=("maintenance",)).groups[1:] == ("maintenance_waiting",)
    broken = host(node("n1", annotations={names.RECORD: "{"}), group_by=("maintenance",))
    assert broken.groups[1:] == ("maintenance_unreadable",)
    assert broken.variables["node_record"] == {}
    assert "Node n1" in broken.fault


def aged(name: str, at: str | None) -> objects.Raw:
    return node(name, annotations={} if at is None else {ANNOTATION: at})


def test_the_oldest_first_and_who_is_due() -> None:
    raws = [
        aged("new", "2026-11-24T11:59:00Z"),
        aged("old", "2026-10-01T00:00:00+02:00"),
        aged("never", None),
        aged("edge", "2026-10-25T12:00:00Z"),
        aged("after", "2026-10-25T12:00:01Z"),
        aged("ahead", "2026-11-25T12:00:00Z"),
    ]
    wanted = inventory_hosts.InventoryOptions(
        group_by=("due",), maintained_annotation=ANNOTATION, maintain_every=30 * DAY
    )
    found = inventory_hosts.hosts([inventory_hosts.kept(raw, ANNOTATION) for raw in raws], wanted, NOW)
    assert [(one.name, one.groups[1]) for one in found] == [
        ("never", "maintenance_due"),
        ("old", "maintenance_due"),
        ("edge", "maintenance_due"),
        ("after", "maintenance_not_due"),
        ("new", "maintenance_not_due"),
        ("ahead", "maintenance_not_due"),
    ]
    assert [one.variables["node_maintained_ago"] for one in found] == [None, 4716000, 30 * DAY, 30 * DAY - 1, 60, 0]
    assert [one.variables["node_maintenance_due"] for one in found] == [True, True, True, False, False, False]
    assert [one.fault for one in found] == [""] * 6


@pytest.mark.parametrize("value", ["yesterday", "2026-11-24", "2026-11-24T11:00:00"])
def test_a_time_that_is_none_is_told_and_counts_as_never(value: str) -> None:
    found = host(aged("n1", value), maintained_annotation=ANNOTATION, maintain_every=30 * DAY)
    assert found.fault == (
        f"Node n1: annotation {ANNOTATION} is {value!r}, which is no RFC 3339 time such as 2026-11-21T05:30:00Z."
    )
    assert found.variables["node_maintained"] == ""
    assert found.variables["node_maintenance_due"]


def test_without_an_annotation_nothing_is_said_of_the_last_maintenance() -> None:
    found = [inventory_hosts.kept(aged(name, "2026-01-01T00:00:00Z")) for name in ("b", "a")]
    hosts = inventory_hosts.hosts(found, inventory_hosts.InventoryOptions(), NOW)
    assert [one.name for one in hosts] == ["a", "b"]
    assert not {"node_maintained", "node_maintained_ago", "node_maintenance_due"} & hosts[0].variables.keys()
    assert not any(group.startswith("maintenance_due") for group in hosts[0].groups)
