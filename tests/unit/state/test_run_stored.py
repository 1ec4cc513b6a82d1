# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read of our ConfigMaps, where some of it cannot be read."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_stored
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.stored_objects import StoredRun
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}


def run(name: str, **fields: t.Any) -> Raw:
    return StoredRun(name, "tina", "2026-01-01T00:00:00Z", "f", {}, **fields).to_config_map()


def other(name: str, labels: Raw | None, **data: str) -> Raw:
    meta = {"name": name, "namespace": names.NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


BAD = other("run-bad", OURS, fingerprint="f", plan="{")


def test_runs_that_cannot_be_read_hide_no_others() -> None:
    found = run_stored.readable([BAD, other("else", None), run("one"), run("two")])
    assert [each.id for each in found] == ["one", "two"]


def test_only_our_config_maps_are_read() -> None:
    maps = [run("one"), other("run-x", None, fingerprint="f"), BAD]
    with World([manifests.namespace(names.NAMESPACE), *maps], settle=False) as world:
        me = world.process("me")
        assert [raw["metadata"]["name"] for raw in me.run(run_stored.config_maps)] == ["run-bad", "run-one"]
        assert [each.id for each in me.run(run_stored.stored)] == ["one"]


@pytest.mark.parametrize(
    ("stored", "done", "said"),
    [
        (None, ["a", "b"], "is no longer stored: another start has finished it, or it was undone."),
        ((), [], ""),
        (("b", "c"), ["b"], "has finished it in another start."),
    ],
)
def test_which_nodes_a_run_no_longer_has_to_do(stored: tuple[str, ...] | None, done: list[str], said: str) -> None:
    kept = [] if stored is None else [run("r1", finished=stored)]
    with World([manifests.namespace(names.NAMESPACE), *kept], settle=False) as world:
        found = world.process("me").run(lambda ctx: run_stored.not_to_do(ctx, "r1", ["a", "b"]))
    assert list(found) == done
    for node, why in found.items():
        assert why.startswith(f"Node {node} is not taken out. Run r1 {said}")
        assert why.endswith("starts anew." if stored is None else "continues with the rest.")
