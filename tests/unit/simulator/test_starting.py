# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replacements that do not start: the others wait no longer than it may help, and say what their kubelets say."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_gates import ReadyOptions, check_ready
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import (
    RUN,
    begun,
    ended,
    evictions,
    said,
    world_of,
)

OTHERS = {"n8", "n9"}


def test_a_surge_whose_new_pod_does_not_start_is_given_back_within_two_minutes() -> None:
    with world_of(manifests.deployment("web", 1)) as world:
        world.controller(nodes.Kubelets).without_images = set(OTHERS)
        me = world.process("me")
        assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN).failed
        result = me.run(lambda ctx: guard(ctx, GuardOptions("present", ("n1",))), RUN, within=120)
        (workload,) = result.data["workloads"]
        assert workload["outcome"] == "surge_not_starting"
        assert "ImagePull" in workload["message"]
        assert "no such host" in workload["message"]
        assert world.get(kinds.DEPLOYMENTS, "web")["spec"]["replicas"] == 1
        told = [event.message for event in me.told if event.message.startswith("waiting: ")]
        assert len([text for text in told if "ErrImagePull" in text]) == 1


def test_a_registry_that_is_away_for_half_a_minute_fails_no_surge() -> None:
    with world_of(manifests.deployment("web", 1)) as world:
        kubelets = world.controller(nodes.Kubelets)
        kubelets.without_images = set(OTHERS)
        me = world.process("me")
        assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN).failed
        world.machine.after(30.0, kubelets.without_images.clear, "the registry is back")
        assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", ("n1",))), RUN, within=120).failed


def test_a_drain_says_why_a_successor_does_not_start() -> None:
    with world_of(manifests.deployment("web", 3), manifests.budget("web", minAvailable=2)) as world:
        world.controller(nodes.Kubelets).without_images = set(OTHERS)
        me, task = begun(world, timeout=60.0)
        outcome, message = said(ended(world, task))
        assert (outcome, len(evictions(world))) == ("timed_out", 1)
        assert "ImagePull" in message
        assert any("ImagePull" in event.message for event in me.told if event.what == "progress")


def test_a_drain_says_why_the_last_successor_does_not_start() -> None:
    with world_of(manifests.deployment("web", 2), manifests.budget("web", maxUnavailable=2)) as world:
        world.controller(nodes.Kubelets).without_images = set(OTHERS)
        _me, task = begun(world, timeout=60.0, choices=DrainPolicy(allow_interruption=True))
        outcome, message = said(ended(world, task))
        assert outcome == "timed_out"
        assert "ImagePull" in message


def test_a_gate_says_why_a_daemon_does_not_start() -> None:
    with world_of(manifests.daemon_set("agent")) as world:
        world.controller(nodes.Kubelets).without_images = {"n1"}
        (pod,) = world.pods(on="n1")
        world.delete(kinds.PODS, pod["metadata"]["name"])
        world.machine.run_for(20.0)
        options = ReadyOptions(nodes=("n1",), gates=("daemonsets",))
        found = world.process("me").run(lambda ctx: check_ready(ctx, options)).data["findings"]
        assert [one["code"] for one in found] == ["daemonset_missing"]
        assert "ImagePull" in found[0]["message"]
