# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The local copy stays true through cuts, silence and servers that forget."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    watch as watch_module,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster, Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.watch import Reflector
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import (
    INSIDE,
    RECORDED,
    Api,
    Call,
    Step,
    bookmark,
    event,
    eventually,
    listing,
    pod,
)

PODS = "/api/v1/pods"
BEGUN = verbs.watch(kinds.PODS, listing=True)
Told = list[tuple[str, str]]


def is_list(call: Call) -> bool:
    return "watch" not in call.query


def expect_list(api: Api, *items: dict[str, Any], version: str = "10") -> Step:
    return api.expect("GET", PODS, listing("Pod", *items, version=version), matches=is_list)


def expect_watch(api: Api, version: str, *events: Any, hold: bool = True, **more: Any) -> Step:
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
    return api.expect("GET", PODS, query=query, events=events, hold=hold, **more)


def _is_followed(pods: Watched) -> bool:
    return pods.quiet_for() > 0


def expect_begun(api: Api, *events: Any, hold: bool = True) -> Step:
    query = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return api.expect("GET", PODS, query=query, events=events, hold=hold)


def all_sent(version: str) -> dict[str, Any]:
    """The bookmark after the last object of a list."""
    found = bookmark(version)
    found["object"]["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
    return found


class Watched(Reflector):
    """A reflector that keeps what it told."""

    def __init__(self, cluster: Cluster, **more: Any) -> None:
        self.told: Told = []
        self.wake = threading.Condition()
        super().__init__(
            cluster,
            kinds.PODS,
            wake=self.wake,
            on_event=lambda what, obj: self.told.append((what, obj["metadata"]["name"])),
            **more,
        )

    def wait(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        with self.wake:
            assert self.wake.wait_for(condition, seconds), f"{self.told} {self.error}"

    @property
    def names(self) -> set[str]:
        return {name for _unused, name in self.objects}


Watching = Callable[..., Watched]


@pytest.fixture
def watching(cluster: Cluster) -> Iterator[Watching]:
    """Starts reflectors, and stops them before the server goes."""
    started: list[Watched] = []

    def start(**more: Any) -> Watched:
        started.append(Watched(cluster, **more))
        started[-1].start()
        return started[-1]

    yield start
    for reflector in started:
        reflector.stop()


def test_a_list_and_one_watch_are_all_it_takes(api: Api, cluster: Cluster, watching: Watching) -> None:
    expect_list(api, pod("a"), pod("b"))
    watch = expect_watch(api, "10")
    pods = watching()
    pods.wait(lambda: pods.synced and pods.quiet_for() > 0)
    assert pods.names == {"a", "b"}
    assert pods.objects["shop", "a"]["kind"] == "Pod"
    before = pods.version
    watch.send(event("MODIFIED", pod("a", "11")), event("ADDED", pod("c", "12")))
    watch.send(event("DELETED", pod("b", "13")))
    pods.wait(lambda: pods.version == before + 3)
    assert pods.names == {"a", "c"}
    assert pods.objects["shop", "a"]["metadata"]["resourceVersion"] == "11"
    assert pods.told == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("ADDED", "c"),
        ("DELETED", "b"),
    ]
    assert cluster.requests == 3
    assert pods.error is None


def test_a_watch_that_begins_with_a_list_is_all_it_takes(api: Api, cluster: Cluster, watching: Watching) -> None:
    watch = expect_begun(
        api,
        event("ADDED", pod("a", "5")),
        event("ADDED", pod("b", "6")),
        event("ADDED", pod("c", "7")),
        event("MODIFIED", pod("a", "9")),
        event("DELETED", pod("b", "10")),
        bookmark("8"),
        all_sent("10"),
    )
    pods = watching()
    pods.wait(lambda: pods.synced and pods.quiet_for() > 0)
    assert pods.told == [("ADDED", "a"), ("ADDED", "c")]
    assert pods.objects["shop", "a"]["metadata"]["resourceVersion"] == "9"
    watch.send(event("MODIFIED", pod("c", "11")))
    pods.wait(lambda: pods.told[2:] == [("MODIFIED", "c")])
    assert cluster.requests == 1
    expect_watch(api, "11")
    watch.finish.set()
    eventually(lambda: len(api.calls) == 2)


def test_a_watch_that_ends_before_its_list_is_whole_is_no_list(api: Api, watching: Watching) -> None:
    expect_begun(api, event("ADDED", pod("a", "5")), hold=False)
    expect_list(api, pod("b"))
    expect_watch(api, "10")
    pods = watching()
    pods.wait(lambda: pods.synced and pods.quiet_for() > 0)
    assert pods.told == [("ADDED", "b")]


def test_a_server_that_begins_no_watch_with_a_list_is_asked_once(
    api: Api, cluster: Cluster, watching: Watching
) -> None:
    for requests in (3, 5):
        expect_list(api)
        expect_watch(api, "10")
        pods = watching()
        eventually(functools.partial(_is_followed, pods))
        assert cluster.requests == requests


def test_a_list_of_more_than_wanted_is_given_up_and_one_of_nobodys_ends(api: Api, cluster: Cluster) -> None:
    these = [event("ADDED", pod(name, "5")) for name in "abc"]
    small, large = expect_begun(api, *these, all_sent("6")), expect_begun(api, *these, all_sent("6"))
    found = cluster.streamed(BEGUN, most=3)
    assert found is not None
    assert [item["metadata"]["name"] for item in found[0].items] == ["a", "b", "c"]
    assert cluster.streamed(BEGUN, most=2) is None
    assert large.ended.wait(5)
    assert not small.ended.is_set()
    del found
    assert small.ended.wait(5)


def test_what_is_known_as_it_was_later_is_not_undone(api: Api, cluster: Cluster) -> None:
    """Of a list in which a write's answer stands already; the watch begins before that write."""
    pods = Watched(cluster)
    pods.take(Listing([pod("a", "15"), pod("b", "9"), pod("c", "14")], "10"))
    told = [event("MODIFIED", pod("a", "12")), event("MODIFIED", pod("a", "15")), event("DELETED", pod("c", "11"))]
    expect_watch(api, "10", *told, event("MODIFIED", pod("b", "16")))
    pods.start()
    try:
        pods.wait(lambda: pods.resource_version == "16")
    finally:
        pods.stop()
    assert pods.told == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("MODIFIED", "b")]
    assert pods.objects["shop", "a"]["metadata"]["resourceVersion"] == "15"


def test_the_selector_goes_with_both_requests(api: Api, watching: Watching) -> None:
    wanted = {"labelSelector": "app=web"}
    path = "/api/v1/namespaces/shop/pods"
    api.expect("GET", path, listing("Pod"), query=wanted, matches=is_list)
    api.expect("GET", path, query={**wanted, "watch": "true", "resourceVersion": "10"}, events=[], hold=True)
    pods = watching(namespaces=["shop"], labels="app=web")
    pods.wait(lambda: pods.quiet_for() > 0)


def test_objects_are_trimmed_on_arrival(api: Api, watching: Watching) -> None:
    def keep(obj: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": obj["metadata"], "trimmed": True}

    expect_list(api, {**pod("a"), "spec": {"big": 1}})
    expect_watch(api, "10", event("ADDED", {**pod("b", "11"), "spec": {"big": 1}}))
    pods = watching(keep=keep)
    pods.wait(lambda: pods.names == {"a", "b"})
    assert all(set(obj) == {"metadata", "trimmed"} for obj in pods.objects.values())


def test_a_watch_that_the_server_ends_goes_on_from_the_last_bookmark(api: Api, watching: Watching) -> None:
    expect_list(api)
    expect_watch(api, "10", event("ADDED", pod("a", "12")), bookmark("40"), hold=False)
    expect_watch(api, "40")
    pods = watching()
    eventually(lambda: len(api.calls) == 3)
    assert pods.told == [("ADDED", "a")]


def test_a_cut_watch_goes_on_where_it_was(api: Api, watching: Watching) -> None:
    expect_list(api)
    expect_watch(api, "10", event("ADDED", pod("a", "12")), hold=False, cut=INSIDE)
    expect_watch(api, "12", event("ADDED", pod("b", "13")))
    pods = watching()
    pods.wait(lambda: pods.names == {"a", "b"})
    assert pods.told == [("ADDED", "a"), ("ADDED", "b")]


def test_a_silent_watch_counts_as_dead(api: Api, watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SILENCE_SECONDS", 0.4)
    expect_list(api)
    expect_watch(api, "10", event("ADDED", pod("a", "12")))
    expect_watch(api, "12", event("ADDED", pod("b", "13")))
    pods = watching()
    pods.wait(lambda: pods.names == {"a", "b"})
    assert len(api.calls) == 3


@pytest.mark.parametrize("by_status", [True, False])
def test_a_state_that_the_server_forgot_is_listed_anew(api: Api, watching: Watching, by_status: bool) -> None:
    """As an event (what a restarted API server 1.36 does) or as the answer itself."""
    gone = RECORDED["watch_expired"]["body"]
    expect_list(api, pod("a"), pod("b"), pod("c"))
    if by_status:
        api.expect("GET", PODS, gone, query={"watch": "true", "resourceVersion": "10"}, status=410)
    else:
        expect_watch(api, "10", {"type": "ERROR", "object": gone}, hold=False)
    expect_list(api, pod("a"), pod("b", "21"), pod("c", "22", uid="another"), pod("d"), version="30")
    expect_watch(api, "30")
    pods = watching()
    pods.wait(lambda: "d" in pods.names)
    assert pods.told[3:] == [
        ("MODIFIED", "b"),
        ("DELETED", "c"),
        ("ADDED", "c"),
        ("ADDED", "d"),
    ]


def test_what_vanished_unseen_is_told_as_deleted(api: Api, watching: Watching) -> None:
    expect_list(api, pod("a"), pod("b"))
    gone = RECORDED["watch_expired"]["body"]
    expect_watch(api, "10", {"type": "ERROR", "object": gone}, hold=False)
    expect_list(api, pod("b"), version="20")
    expect_watch(api, "20")
    pods = watching()
    pods.wait(lambda: ("DELETED", "a") in pods.told)
    assert pods.told == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert pods.names == {"b"}


@pytest.mark.parametrize(
    ("name", "kind", "times"),
    [
        ("forbidden_list", errors.Forbidden, 2),
        ("not_found", errors.NotFound, 1),
        ("bad_request", errors.Invalid, 1),
    ],
)
def test_a_permanent_refusal_ends_it_and_wakes(
    api: Api, watching: Watching, name: str, kind: type[Exception], times: int
) -> None:
    known = RECORDED[name]
    api.expect("GET", PODS, known["body"], status=known["status"], times=times, matches=is_list)
    pods = watching()
    pods.wait(lambda: pods.error is not None)
    assert pods.error.__class__ is kind
    assert not pods.synced
    assert pods.quiet_for() == 0.0


def test_a_refusal_at_the_start_is_asked_once_more(api: Api, watching: Watching) -> None:
    api.expect("GET", PODS, RECORDED["forbidden_list"]["body"], status=403)
    expect_list(api, pod("a"))
    expect_watch(api, "10")
    pods = watching()
    pods.wait(lambda: pods.names == {"a"} and pods.trouble is None)
    assert pods.error is None


@pytest.mark.parametrize("name", ["forbidden_list", "unauthorized"])
def test_a_watch_outlives_a_server_that_has_not_read_the_roles_yet(api: Api, watching: Watching, name: str) -> None:
    known = RECORDED[name]
    times = 3 if name == "forbidden_list" else 6  # a 401 is met with credentials read anew
    expect_list(api, pod("a"))
    expect_watch(api, "10", hold=False, cut=INSIDE)
    api.expect("GET", PODS, known["body"], query={"watch": "true"}, status=known["status"], times=times)
    expect_watch(api, "10", event("ADDED", pod("b", "12")))
    pods = watching()
    pods.wait(lambda: isinstance(pods.trouble, (errors.Forbidden, errors.Unauthorized)))
    assert pods.quiet_for() == 0.0
    pods.wait(lambda: pods.names == {"a", "b"}, 10.0)
    assert pods.error is None
    assert pods.trouble is None


def test_a_permission_taken_away_later_is_noticed(
    api: Api, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "REFUSED_SECONDS", 0.5)
    known = RECORDED["forbidden_list"]
    expect_list(api, pod("a"))
    expect_watch(api, "10", hold=False, cut=INSIDE)
    api.expect("GET", PODS, known["body"], query={"watch": "true"}, status=403, stays=True)
    pods = watching()
    pods.wait(lambda: pods.error is not None)
    assert isinstance(pods.error, errors.Forbidden)
    assert "watch pods" in str(pods.error)
    assert sum("watch" in call.query for call in api.calls) > 2, "the first refusal was not believed"
    assert pods.names == {"a"}


def test_trouble_that_passes_is_waited_out(api: Api, watching: Watching) -> None:
    api.expect("GET", PODS, "busy", status=503)
    expect_list(api, pod("a"))
    api.expect("GET", PODS, "busy", query={"watch": "true"}, status=429)
    expect_watch(api, "10")
    pods = watching()
    pods.wait(lambda: isinstance(pods.trouble, errors.Overloaded))
    pods.wait(lambda: pods.quiet_for() > 0)
    assert pods.trouble is None
    assert pods.told == [("ADDED", "a")]


def test_what_guard_raises_ends_it(api: Api) -> None:
    class Stop(Exception):
        pass

    def guard() -> None:
        raise Stop

    options = ConnectionOptions(host=api.url, api_key="t")
    pods = Watched(connect(options, user_agent="x", guard=guard))
    pods.start()
    pods.wait(lambda: isinstance(pods.error, Stop))


def test_quiet_counts_from_the_last_change_and_bookmarks_are_none(api: Api, watching: Watching) -> None:
    expect_list(api, pod("a"))
    watch = expect_watch(api, "10")
    pods = watching()
    pods.wait(lambda: pods.quiet_for() > 0)
    time.sleep(0.3)
    watch.send(bookmark("11"))
    time.sleep(0.1)
    before = pods.quiet_for()
    assert before > 0.35
    watch.send(event("MODIFIED", pod("a", "12")))
    pods.wait(lambda: pods.told[-1] == ("MODIFIED", "a"))
    assert pods.quiet_for() < before


def test_nothing_is_quiet_while_not_connected(api: Api, watching: Watching) -> None:
    expect_list(api)
    first = expect_watch(api, "10")
    api.expect("GET", PODS, "busy", query={"watch": "true"}, status=503)
    expect_watch(api, "10")
    pods = watching()
    pods.wait(lambda: pods.quiet_for() > 0)
    time.sleep(0.5)
    first.cut = INSIDE
    first.finish.set()
    pods.wait(lambda: pods.trouble is not None)
    assert pods.quiet_for() == 0.0
    cut = time.monotonic()
    eventually(lambda: pods.quiet_for() > 0)
    assert pods.quiet_for() < time.monotonic() - cut


def test_stop_is_prompt_while_the_watch_waits(api: Api, watching: Watching) -> None:
    expect_list(api)
    watch = expect_watch(api, "10")
    pods = watching()
    pods.wait(lambda: pods.quiet_for() > 0)
    began = time.monotonic()
    pods.stop()
    assert time.monotonic() - began < 0.3
    assert not pods._thread.is_alive()
    assert watch.ended.wait(2), "the server still holds the connection"


def test_stop_is_prompt_where_another_thread_has_read_the_list(api: Api, cluster: Cluster) -> None:
    expect_begun(api, event("ADDED", pod("a", "5")), all_sent("6"))
    pods, found = Watched(cluster), cluster.streamed(BEGUN)
    assert found is not None
    pods.take(*found)
    pods.start()
    eventually(functools.partial(_is_followed, pods))
    time.sleep(0.2)
    began = time.monotonic()
    pods.stop()
    assert time.monotonic() - began < 0.5


def test_stop_is_prompt_while_the_list_waits(api: Api, watching: Watching) -> None:
    api.expect("GET", PODS, listing("Pod", pod("late")), delay=1.0, matches=is_list)
    pods = watching()
    eventually(lambda: len(api.calls) == 1)
    began = time.monotonic()
    pods.stop()
    assert time.monotonic() - began < 0.5
    time.sleep(1.0)
    assert pods.told == []
    assert not pods.synced


def test_stop_from_a_callback_does_not_wait_for_itself(api: Api, cluster: Cluster) -> None:
    expect_list(api, pod("a"))
    wake = threading.Condition()
    reflector = Reflector(cluster, kinds.PODS, wake=wake, on_event=lambda what, obj: reflector.stop())
    reflector.start()
    reflector._thread.join(2)
    assert not reflector._thread.is_alive()


def test_events_split_over_chunks_are_joined(api: Api, cluster: Cluster) -> None:
    raw = b'{"type":"ADDED","object":{}}\n{"type":"BOOKMARK","object":{}}\n'
    api.expect("GET", PODS, events=[raw[:10], 0.05, raw[10:40], raw[40:]])
    stream = cluster.stream(verbs.watch(kinds.PODS), read_timeout=5)
    assert [found["type"] for found in stream] == ["ADDED", "BOOKMARK"]


def test_a_stream_closed_before_it_is_read_is_empty(api: Api, cluster: Cluster) -> None:
    api.expect("GET", PODS, events=[event("ADDED", pod("a"))], hold=True)
    stream = cluster.stream(verbs.watch(kinds.PODS), read_timeout=5)
    stream.close()
    stream.close()
    assert list(stream) == []


def test_a_refused_watch_is_its_error(api: Api, cluster: Cluster) -> None:
    known = RECORDED["forbidden_list"]
    api.expect("GET", PODS, known["body"], status=403)
    with pytest.raises(errors.Forbidden):
        cluster.stream(verbs.watch(kinds.PODS), read_timeout=5)
