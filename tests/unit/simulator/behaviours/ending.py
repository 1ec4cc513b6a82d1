# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How objects end, and what a watch tells of that and of everything else."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.here import Here, Raw, behaviour

CONFIG, PODS = kinds.CONFIGMAPS, kinds.PODS
OTHER = "00000000-0000-4000-8000-000000000000"
HELD: Raw = {"finalizers": ["example.com/held"]}


@behaviour
def delete_what_is_missing(here: Here) -> t.Any:
    return here.told(here.deletion(CONFIG, "gone"))


@behaviour
def delete_another_one(here: Here) -> t.Any:
    made = here.make(CONFIG, "a")
    told = [
        here.told(here.deletion(CONFIG, "a", uid=OTHER)),
        here.told(here.deletion(CONFIG, "a", resource_version="1")),
    ]
    right = here.told(here.deletion(CONFIG, "a", uid=made["metadata"]["uid"]))
    return [*told, right, here.find(CONFIG, "a")]


@behaviour
def the_answer_to_a_delete(here: Here) -> t.Any:
    here.make(CONFIG, "a")
    here.make(kinds.LEASES, "a", spec={})
    answers = [here.send(here.deletion(kind, "a")) for kind in (CONFIG, kinds.LEASES)]
    return [[answer["kind"], answer["status"], answer["details"]] for answer in answers]


@behaviour
def a_finalizer_holds_an_object(here: Here) -> t.Any:
    here.make(CONFIG, "a", meta=HELD, data={"key": "x"})
    answer = here.send(here.deletion(CONFIG, "a"))
    again = here.send(here.deletion(CONFIG, "a"))
    seen = [answer["kind"], "deletionTimestamp" in answer["metadata"], "deletionTimestamp" in again["metadata"]]
    seen.append(here.patch(CONFIG, "a", {"data": {"key": "y"}})["data"])
    here.patch(CONFIG, "a", {"metadata": {"finalizers": None}})
    return [*seen, here.find(CONFIG, "a")]


@behaviour
def a_pod_ends_within_its_grace(here: Here) -> t.Any:
    here.nodes(1)
    here.pod("slow", stop="3s", terminationGracePeriodSeconds=20)
    here.until(lambda: here.ready("slow"), "ready")
    meta = here.send(here.deletion(PODS, "slow"))["metadata"]
    seen = ["deletionTimestamp" in meta, meta["deletionGracePeriodSeconds"], here.find(PODS, "slow") is not None]
    here.until(lambda: here.find(PODS, "slow") is None, "gone")
    return seen


@behaviour
def a_shorter_grace_counts_a_longer_one_does_not(here: Here) -> t.Any:
    here.nodes(1)
    here.pod("slow", stop="60s", terminationGracePeriodSeconds=60)
    here.until(lambda: here.ready("slow"), "ready")
    seen = []
    for seconds in (None, 40, 50, 0):
        answer = here.send(here.deletion(PODS, "slow", grace_seconds=seconds))
        seen.append(answer["metadata"]["deletionGracePeriodSeconds"])
    return [*seen, here.find(PODS, "slow") is None]


@behaviour
def a_pod_without_a_node_goes_at_once(here: Here) -> t.Any:
    here.pod("nowhere")
    here.send(here.deletion(PODS, "nowhere"))
    return here.find(PODS, "nowhere")


@behaviour
def a_pod_with_a_finalizer_stays_when_it_has_ended(here: Here) -> t.Any:
    here.nodes(1)
    here.pod("held", meta=HELD)
    here.until(lambda: here.ready("held"), "ready")
    here.send(here.deletion(PODS, "held", grace_seconds=1))
    here.sleep(4)
    seen = "deletionTimestamp" in here.get(PODS, "held")["metadata"]
    here.patch(PODS, "held", {"metadata": {"finalizers": None}})
    here.until(lambda: here.find(PODS, "held") is None, "gone")
    return seen


@behaviour
def what_is_owned_goes_with_its_owner(here: Here) -> t.Any:
    here.nodes(1)
    here.running(kinds.DEPLOYMENTS, "web", 2)
    here.send(here.deletion(kinds.DEPLOYMENTS, "web"))
    here.until(lambda: not here.items(kinds.REPLICA_SETS) and not here.pods("web"), "collected")
    return True


@behaviour
def a_namespace_that_ends_takes_nothing_new_and_all_with_it(here: Here) -> t.Any:
    other = f"{here.namespace}-ends"
    here.send(verbs.create(kinds.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}))
    held: Raw = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "namespace": other, **HELD}}
    here.send(verbs.create(CONFIG, held))
    here.send(verbs.delete(kinds.NAMESPACES, other))
    late = {**held, "metadata": {"name": "late", "namespace": other}}
    told = [here.told(verbs.create(CONFIG, late)), here.told(verbs.evict(other, "web", ""))]
    here.until(lambda: here.get(kinds.NAMESPACES, other)["status"]["phase"] == "Terminating", "terminating")
    here.until(lambda: "deletionTimestamp" in here.send(verbs.get(CONFIG, "held", other))["metadata"], "swept")
    here.send(verbs.merge_patch(CONFIG, "held", {"metadata": {"finalizers": None}}, other))
    here.until(lambda: here.find(kinds.NAMESPACES, other) is None, "gone")
    return told


def _watched(here: Here, act: t.Callable[[], None], *, labels: str = "", since: str, seconds: int = 3) -> list[Raw]:
    """The events of a watch that ends by itself; `act` comes first, the watch begins at the version `since`."""
    act()
    request = verbs.watch(CONFIG, here.namespace, labels, resource_version=since, timeout_seconds=seconds)
    return list(here.cluster.stream(request, read_timeout=30.0))


def _short(events: list[Raw]) -> list[list[str]]:
    found = [event for event in events if event["type"] != "BOOKMARK"]
    return [[e["type"], e["object"]["metadata"]["name"], (e["object"].get("data") or {}).get("key", "")] for e in found]


@behaviour
def a_watch_tells_what_happened_since_a_version_in_order(here: Here) -> t.Any:
    def act() -> None:
        here.make(CONFIG, "b", data={"key": "1"})
        here.patch(CONFIG, "a", {"data": {"key": "2"}})
        here.patch(CONFIG, "a", {"data": {"key": "2"}})
        here.send(here.deletion(CONFIG, "b"))

    made = here.make(CONFIG, "a", meta={"labels": {"mine": "yes"}}, data={"key": "1"})
    events = _watched(here, act, since=made["metadata"]["resourceVersion"])
    return [event for event in _short(events) if event[1] in "ab"]


@behaviour
def what_leaves_the_selection_of_a_watch_is_deleted_for_it(here: Here) -> t.Any:
    def act() -> None:
        here.patch(CONFIG, "a", {"metadata": {"labels": {"mine": "yes"}}})
        here.patch(CONFIG, "a", {"data": {"key": "2"}})
        here.patch(CONFIG, "a", {"metadata": {"labels": None}, "data": {"key": "3"}})
        here.patch(CONFIG, "a", {"data": {"key": "4"}})

    made = here.make(CONFIG, "a", data={"key": "1"})
    return _short(_watched(here, act, labels="mine", since=made["metadata"]["resourceVersion"]))


@behaviour
def a_watch_that_ends_tells_how_far_it_came(here: Here) -> t.Any:
    made = here.make(CONFIG, "a", meta={"labels": {"mine": "yes"}})
    events = _watched(here, lambda: None, labels="mine", since=made["metadata"]["resourceVersion"], seconds=5)
    last = events[-1]
    known = int(last["object"]["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    return [sorted({event["type"] for event in events}), last["object"]["kind"], known]


@behaviour
def a_deleted_object_has_a_version_of_its_own(here: Here) -> t.Any:
    made = here.make(CONFIG, "a", meta={"labels": {"mine": "yes"}})
    since = made["metadata"]["resourceVersion"]

    def act() -> None:
        here.send(here.deletion(CONFIG, "a"))

    events = [e for e in _watched(here, act, labels="mine", since=since) if e["type"] == "DELETED"]
    return [len(events), int(events[0]["object"]["metadata"]["resourceVersion"]) > int(since)]
