# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dry runs of configurations on a simulated cluster: what they are made of, what is read from them, what is left."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
    previews,
    run_preview,
    run_preview_leftovers,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_recovery
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import READY
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    BAD,
    CONFIG,
    HOME,
    NEW,
    OLD,
    Cluster,
    Descheduler,
    means,
)

VERBOSE = 'I1121 10:00:00.0 1 flags.go:64] FLAG: --v="1"\n'
BEGUN = '"Starting Koordinator Descheduler" version="v0.0.0"\n'
STARTED = VERBOSE + BEGUN + '"Starting workers" controller="MigrationController"\n'
NOISE = 'E1121 10:00:00.0 1 arbitrator.go:1] failed to update job "j": it is forbidden\n'


def evicts(*pods: str) -> str:
    lines = (
        f'I1121 10:00:01.0 1 evictor_proxy.go:106] "Evicted pod in dry run mode" pod="shop/{pod}" reason="r \\"1\\"" '
        f'strategy="PodLifeTime" node="n1"\n'
        for pod in pods
    )
    return "".join(lines)


class DryRuns(Descheduler):
    """Its dry runs say `begins`, then what `says` has for the new configuration and the old one."""

    silent: t.AbstractSet[str] = frozenset()
    says: t.Mapping[str, str] = {}
    mute = 0
    """So many processes log as if they were given no verbosity."""
    begins = STARTED

    def start(self, pod: Raw) -> str:
        if names.PREVIEW not in (pod["metadata"].get("labels") or {}):
            return Descheduler.start(self, pod)
        text = self.world.get(kinds.CONFIGMAPS, pod["spec"]["volumes"][0]["configMap"]["name"], HOME)["data"][CONFIG]
        self.runs[pod["metadata"]["name"]] = text
        if self.mute:
            self.mute -= 1
            self.silent = {*self.silent, pod["metadata"]["name"]}
        if "no-such-class" in text:
            self.world.machine.after(1.0, lambda: self.fail(pod["metadata"]["name"]), "it fails")
        return ""

    def fail(self, name: str) -> None:
        self.world.patch(kinds.PODS, name, {"status": {"phase": "Failed"}}, HOME, subresource="status")

    def log(self, pod: Raw) -> str:
        name = pod["metadata"]["name"]
        if names.PREVIEW not in (pod["metadata"].get("labels") or {}):
            return Descheduler.log(self, pod)
        if "no-such-class" in self.runs[name]:
            return "Error: no-such-class not found\n"
        if name in self.silent:
            return self.begins.removeprefix(VERBOSE)
        return self.begins + self.says.get("new" if "profiles" in self.runs[name] else "old", "")


NEWER = f"{NEW}profiles: [{{name: koord-descheduler}}]\n"


@pytest.fixture
def on() -> t.Iterator[Cluster]:
    cluster = Cluster()
    cluster.descheduler = cluster.world.server.program = DryRuns(cluster.world)
    meta = {"name": previews.ACCOUNT, "namespace": HOME}
    cluster.world.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    yield cluster
    cluster.world.close()


def say(on: Cluster, **logs: str) -> None:
    t.cast("DryRuns", on.descheduler).says = logs


def left(on: Cluster) -> list[str]:
    names = [name for kind in (kinds.PODS, kinds.CONFIGMAPS) for _place, name in on.world.store.of(kind.resource)]
    return [name for name in names if name.startswith(previews.PREFIX)]


def preview(on: Cluster, config: str = NEWER, **more: t.Any) -> Raw:
    return on.roll(config, state="previewed", **more)


def test_new_beside_present_and_nothing_is_left(on: Cluster) -> None:
    say(on, new=evicts("a", "b") + NOISE, old=evicts("a") + evicts("a"))
    before = on.kept()
    done = preview(on)
    one = {"namespace": "shop", "node": "n1", "plugin": "PodLifeTime", "reason": 'r "1"'}
    assert done["would_evict"] == [{**one, "pod": "a", "added": False}, {**one, "pod": "b", "added": True}]
    assert done["would_evict_before"] == [{**one, "pod": "a"}]
    assert (done["outcome"], done["changed"], left(on), on.kept()) == ("previewed", False, [], before)


MOVING = f"""{NEW}profiles:
- name: koord-descheduler
  plugins: {{deschedule: {{enabled: [{{name: RemovePodsViolatingNodeTaints}}]}}}}
"""


def test_each_pod_that_stays_is_told_with_the_reason(on: Cluster) -> None:
    served: Raw = {"schedulerName": "koord-scheduler"}
    for name, replicas, spec in (
        ("web", 3, served),
        ("theirs", 3, {}),
        ("alone", 1, served),
        ("local", 3, {**served, "volumes": [{"name": "data", "emptyDir": {}}]}),
        ("down", 3, {**served, "annotations": {READY: "never"}}),
    ):
        on.world.apply(manifests.deployment(name, replicas, **spec))
    on.world.settle()
    done = preview(on, MOVING)
    assert done["outcome"] == "previewed", done["msg"]
    codes: dict[str, set[str]] = {}
    for one in done["would_stay"]:
        if one["namespace"] == "shop":
            codes.setdefault(one["pod"].rsplit("-", 2)[0], set()).add(one["code"])
            assert one["node"] == "infra"
    assert codes == {
        "theirs": {"scheduler"},
        "alone": {"single_replica"},
        "local": {"local_storage"},
        "down": {"max_unavailable_per_workload"},
    }
    assert preview(on, MOVING, check=True)["would_stay"] is None
    on.deny(f"list {kinds.PODMIGRATIONJOBS.resource}")
    assert preview(on, MOVING)["would_stay"] is None


def test_a_process_that_logs_no_evictions_is_replaced(on: Cluster) -> None:
    say(on, new=evicts("a", "b"), old=evicts("a"))
    t.cast("DryRuns", on.descheduler).mute = 3
    done = preview(on)
    assert [one["pod"] for one in done["would_evict"]] == ["a", "b"]
    assert [one["pod"] for one in done["would_evict_before"]] == ["a"]
    assert (on.asked().count("create pods"), left(on)) == (5, [])


def test_what_a_dry_run_is_made_of(on: Cluster) -> None:
    seen: list[Raw] = []
    on.world.on_event.append(lambda event: seen.append(event.raw) if event.what == "ADDED" else None)
    preview(on)
    pod = next(raw for raw in seen if raw["kind"] == "Pod")
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert (spec["serviceAccountName"], spec["restartPolicy"], spec["activeDeadlineSeconds"]) == (
        previews.ACCOUNT,
        "Never",
        360,
    )
    assert container["args"][-2:] == ["--leader-elect=false", "--v=1"]
    selector = on.workload()["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= pod["metadata"]["labels"].items(), "the ReplicaSet would adopt it"
    config = means(next(raw for raw in seen if raw["kind"] == "ConfigMap")["data"][CONFIG])
    assert (config["dryRun"], config["deschedulingInterval"], config["leaderElection"]) == (
        True,
        "0s",
        {"leaderElect": False},
    )


def test_an_unchanged_configuration_runs_once_and_a_paused_one_not_at_all(on: Cluster) -> None:
    say(on, old=evicts("a"))
    done = preview(on, OLD)
    assert [one["added"] for one in done["would_evict"]] == [False]
    assert on.asked().count("create pods") == 1
    on.write_text(f"{OLD}dryRun: true\n")
    done = preview(on, OLD)
    assert ([one["added"] for one in done["would_evict"]], done["would_evict_before"]) == ([True], [])
    assert on.asked().count("create pods") == 2


def test_a_configuration_that_does_not_run_is_told(on: Cluster) -> None:
    done = preview(on, BAD)
    assert (done["outcome"], done["failed"], done["reason"]) == ("failed", True, "no-such-class not found")
    assert left(on) == []


def test_a_descheduler_that_may_not_read_is_no_descheduler_that_evicts_nothing(on: Cluster) -> None:
    words = 'failed to list *v1.Pod: pods is forbidden: User "x" cannot list resource "pods"'
    say(on, new=f"W1121 10:00:01.0 1 reflector.go:1] {words}\n")
    done = preview(on)
    assert (done["outcome"], done["reason"]) == ("failed", words.partition(": ")[2])


def test_a_process_that_never_fills_its_caches_is_no_descheduler_that_evicts_nothing(on: Cluster) -> None:
    t.cast("DryRuns", on.descheduler).begins = ""
    done = preview(on, timeout="60s")
    assert (done["outcome"], left(on)) == ("failed", [])
    assert done["reason"] == "its dry run did not end within 60 s (its cycle is not over)"


def test_without_the_account_and_in_check_mode_nothing_is_written(on: Cluster) -> None:
    done = preview(on, check=True)
    assert (done["outcome"], done["would_evict"], on.asked()) == ("previewed", None, [])
    on.world.delete(kinds.SERVICE_ACCOUNTS, previews.ACCOUNT, HOME)
    done = preview(on)
    assert (done["findings"][0]["code"], on.asked()) == ("no_dry_run_account", [])


WHEN: tuple[What, ...] = ("killed before", "killed after")


def kill_at(on: Cluster, write: int, what: What) -> None:
    assert on.killed_at(write, what, NEWER, state="previewed")


@pytest.mark.parametrize("what", WHEN)
@pytest.mark.parametrize("write", range(1, 9))
def test_a_call_killed_at_any_write_leaves_nothing_after_the_next(on: Cluster, write: int, what: What) -> None:
    kill_at(on, write, what)
    say(on, new=evicts("a"))
    assert [one["pod"] for one in preview(on)["would_evict"]] == ["a"]
    assert left(on) == []


def test_recover_finds_what_a_killed_call_left(on: Cluster) -> None:
    kill_at(on, 4, "killed after")
    assert len(left(on)) == 4
    traces, _alive = on.world.process("bob").run(run_recovery.look)
    assert sorted(str(trace.object) for trace in traces) == sorted(f"Pod {HOME}/{name}" for name in left(on)[:2])
    on.world.process("bob").run(lambda ctx: run_recovery.recover(ctx, finished=False, parked=False))
    assert left(on) == []


def test_pods_that_a_killed_call_left_end_at_once(on: Cluster) -> None:
    kill_at(on, 4, "killed after")
    on.world.process("bob").run(run_preview_leftovers.sweep)
    deleted = [sent.request for sent in on.world.log if sent.request.verb == "delete" and sent.arrived]
    assert {(one.resource, (one.body or {}).get("gracePeriodSeconds")) for one in deleted} == {
        ("pods", 0),
        ("configmaps", None),
    }


@pytest.mark.parametrize(("run", "finished"), [("night", False), ("", True)])
def test_a_recovery_of_less_than_all_leaves_them(on: Cluster, run: str, finished: bool) -> None:
    kill_at(on, 4, "killed after")
    bob = on.world.process("bob")
    ctx = bob.ctx(run)
    bob.run(lambda _ctx: run_recovery.recover(ctx, finished=finished, parked=False))
    assert len(left(on)) == 4


def test_what_is_running_is_not_ended_by_a_preview_of_another_descheduler(on: Cluster) -> None:
    kill_at(on, 2, "killed after")
    on.world.process("bob").run(lambda ctx: run_preview_leftovers.sweep(ctx, "another", HOME))
    assert len(left(on)) == 2


def test_low_node_load_counts_the_first_cycle() -> None:
    args = {"anomalyCondition": {"consecutiveAbnormalities": 5}, "nodePools": [{"name": "p"}]}
    config = {"profiles": [{"pluginConfig": [{"name": "LowNodeLoad", "args": args}, {"name": "X", "args": {"a": 1}}]}]}
    changed = previews.sandboxed(config, "koordinator")["profiles"][0]["pluginConfig"]
    first = {"consecutiveAbnormalities": 1}
    assert changed[0]["args"] == {"anomalyCondition": first, "nodePools": [{"name": "p", "anomalyCondition": first}]}
    assert changed[1] == {"name": "X", "args": {"a": 1}}
    assert args["anomalyCondition"] == {"consecutiveAbnormalities": 5}


def test_what_the_json_format_says() -> None:
    pod = '"pod":{"name":"a","namespace":"s"}'
    line = f'{{"ts":1.0,"v":1,"msg":"Evicted pod in dry run mode",{pod},"strategy":"P","node":"n"}}'
    end = '{"msg":"Number of evictions/requests","totalEvicted":1}'
    first = line.replace('"a"', '"b"')
    assert not previews.read(f"{first}\n{end}\n{line}\n").over, "the first cycle may have seen half of the cluster"
    reading = previews.read(f"{first}\n{end}\n{line}\n{end}\n{first}\n")
    assert (reading.evictions, reading.over) == ((previews.Eviction("s", "a", "n", "P", ""),), True)


def test_a_failed_cycle() -> None:
    reading = previews.read("E1 d.go:1] Error descheduling pods: the cluster size is 0 or 1\n")
    assert (reading.failure, reading.over) == ("the cluster size is 0 or 1", True)


def test_every_flavor_gets_its_flags() -> None:
    flavors: tuple[schemas.Flavor, ...] = ("koordinator", "ack", "sigs")
    place = installation.DEFAULT_LOCATIONS["sigs"]
    template = {"spec": {"containers": [{"name": "descheduler", "command": ["/d"], "readinessProbe": {}}]}}
    workload = {"metadata": {"uid": "u"}, "spec": {"template": template}}
    made = {flavor: previews.manifests("p", "", workload, place, flavor, 60)[0]["spec"] for flavor in flavors}
    dry = {flavor: "--dry-run=true" in spec["containers"][0]["args"] for flavor, spec in made.items()}
    assert dry == {"koordinator": False, "ack": False, "sigs": True}
    assert all("readinessProbe" not in spec["containers"][0] for spec in made.values())


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, ""),
        (
            {
                "conditions": [
                    {"type": "Ready", "status": "False", "message": "not ready"},
                    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"},
                ]
            },
            "0/3 nodes are available",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "True", "message": "bound"}]}, ""),
        ({"containerStatuses": [{}, {"state": {"waiting": {"reason": "ErrImagePull"}}}]}, "ErrImagePull"),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]},
            "ErrImagePull: no such image",
        ),
    ],
)
def test_why_a_dry_run_has_not_started(status: dict[str, t.Any], told: str) -> None:
    assert run_preview._not_started({"status": status}) == told
