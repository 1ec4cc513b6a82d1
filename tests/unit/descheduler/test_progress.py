# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a rollout is, why one is needed, and what has changed since the last."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import installation, rollout

Raw = dict[str, t.Any]
NEW, OLD = "sha256-new", "sha256-old"


def deployment(mark: str | None = NEW, replicas: int | None = 2, **status: int) -> Raw:
    meta: Raw = {"annotations": {rollout.DIGEST: mark}} if mark else {}
    count = {} if replicas is None else {"replicas": replicas}
    reached = {"observedGeneration": 2, **dict.fromkeys(("updatedReplicas", "availableReplicas", "replicas"), 2)}
    spec = {"template": {"metadata": meta, "spec": {}}, **count}
    return {"metadata": {"generation": 2}, "spec": spec, "status": {**reached, **status}}


def pod(name: str, mark: str | None = NEW, **status: t.Any) -> Raw:
    meta: Raw = {"name": name, "annotations": {rollout.DIGEST: mark} if mark else {}}
    if status.pop("ending", False):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": str(status.pop("ready", True))}
    return {"metadata": meta, "status": {"conditions": [{"type": "Initialized", "status": "True"}, ready], **status}}


TWO = [pod("a"), pod("b")]


@pytest.mark.parametrize(
    ("made", "pods", "waiting"),
    [
        pytest.param(deployment(), TWO, "", id="done"),
        pytest.param(deployment(observedGeneration=1), TWO, "has not processed", id="not processed"),
        pytest.param(deployment(observedGeneration=3), TWO, "", id="processed, and changed again"),
        pytest.param(deployment(updatedReplicas=1), TWO, "1 of 2 new pods are created", id="created"),
        pytest.param(deployment(), [pod("a"), pod("b", ready=False)], "1 of 2 new pods are ready", id="not ready"),
        pytest.param(deployment(), [pod("a"), pod("b", ending=True)], "1 of 2 new pods are ready", id="ending"),
        pytest.param(deployment(availableReplicas=1), TWO, "1 of 2 pods are available", id="available"),
        pytest.param(deployment(), [*TWO, pod("c", OLD)], "old pods still exist: c", id="an old one"),
        pytest.param(deployment(), [*TWO, pod("c", None)], "old pods still exist: c", id="one without a mark"),
        pytest.param(deployment(), [*TWO, pod("c", OLD, phase="Failed")], "", id="an old one that has failed"),
        pytest.param(deployment(), [*TWO, pod("c", OLD, phase="Succeeded")], "", id="an old one that has ended"),
        pytest.param(deployment(replicas=2, updatedReplicas=3), TWO, "", id="more than wanted are created"),
        pytest.param(
            {**deployment(), "spec": {**deployment()["spec"], "replicas": 0}}, [], "old pods", id="scaled to 0"
        ),
        pytest.param(deployment(mark=None), [pod("a", None), pod("b", None)], "", id="never marked"),
    ],
)
def test_a_rollout_waits_for_what_is_missing(made: Raw, pods: list[Raw], waiting: str) -> None:
    found = rollout.progress(made, pods).waiting
    assert (waiting in found) if waiting else not found


def test_replicas_that_are_not_listed_yet_are_waited_for() -> None:
    made = deployment()
    made["status"]["replicas"] = 3
    assert "not listed yet" in rollout.progress(made, TWO).waiting


def test_a_deployment_without_a_count_wants_one() -> None:
    made = deployment(replicas=None, updatedReplicas=1, availableReplicas=1, replicas_=0)
    made["status"]["replicas"] = 1
    assert rollout.progress(made, TWO[:1]).waiting == ""
    assert "0 of 1 new pods are ready" in rollout.progress(made, []).waiting


RUNS, ENDED = {"running": {"startedAt": "x"}}, {"terminated": {"message": "it died", "exitCode": 1}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("now", "last", "dead"),
    [
        pytest.param(RUNS, {}, None, id="runs"),
        pytest.param({}, {}, None, id="not started"),
        pytest.param({"waiting": {"reason": "ImagePullBackOff"}}, {}, None, id="no image"),
        pytest.param(ENDED, {}, (False, "it died", False), id="ended"),
        pytest.param(RUNS, ENDED, (False, "it died", True), id="runs again"),
        pytest.param(BACK_OFF, ENDED, (True, "it died", False), id="loops"),
        pytest.param(BACK_OFF, {}, (True, "", False), id="loops without a word"),
        pytest.param(ENDED, {"terminated": {"message": "before"}}, (False, "it died", False), id="ended again"),
    ],
)
def test_a_container_that_terminated_is_told(now: Raw, last: Raw, dead: tuple[bool, str, bool] | None) -> None:
    status = {"name": "d", "restartCount": 2, "state": now, "lastState": last}
    found = rollout.progress(deployment(), [pod("a", containerStatuses=[status])]).dead
    assert [(one.looping, one.words, one.previous) for one in found] == ([dead] if dead else [])
    assert all((one.pod, one.container, one.restarts) == ("a", "d", 2) for one in found)
    assert not rollout.progress(deployment(), [pod("a", OLD, containerStatuses=[status])]).dead


@pytest.mark.parametrize(
    ("restarts", "now", "hopeless"), [(2, BACK_OFF, False), (3, BACK_OFF, True), (4, BACK_OFF, True), (4, ENDED, False)]
)
def test_a_rollout_fails_after_three_restarts_that_loop(restarts: int, now: Raw, hopeless: bool) -> None:
    statuses = [{"name": "s", "state": RUNS}, {"name": "d", "restartCount": restarts, "state": now}]
    assert rollout.progress(deployment(), [pod("a", containerStatuses=statuses)]).crash_looping is hopeless


def test_a_container_without_a_count_was_not_restarted() -> None:
    (dead,) = rollout.progress(deployment(), [pod("a", containerStatuses=[{"state": ENDED}])]).dead
    assert (dead.container, dead.restarts) == ("", 0)


def test_restarts_are_counted_by_pod() -> None:
    statuses = [{"restartCount": 2}, {}, {"restartCount": 1}]
    assert rollout.restarts([pod("b", containerStatuses=statuses), pod("a")]) == [("a", 0), ("b", 3)]


WISH = rollout.DesiredConfig({"a": 1}, "a: 1\n")
MINE, OTHER = WISH.digest, "sha256-other"


@pytest.mark.parametrize(
    ("mark", "changes", "conflicts", "asked", "words"),
    [
        (MINE, False, (), False, ""),
        (MINE, False, None, False, ""),
        (MINE, True, (), False, ""),
        (MINE, True, None, False, "ConfigMap was changed by someone else"),
        (MINE, False, ("a: 1, 2",), False, "another configuration runs (a: 1, 2)"),
        (MINE, False, (), True, "a restart was requested"),
        (OTHER, False, (), False, "started with another configuration"),
        (OTHER, True, None, False, "started with another configuration"),
        (None, True, (), False, "the configuration changes"),
        (None, True, None, False, "the configuration changes"),
        (None, False, (), False, ""),
        (None, False, None, False, "is unknown"),
    ],
)
def test_why_pods_have_to_restart(
    mark: str | None, changes: bool, conflicts: tuple[str, ...] | None, asked: bool, words: str
) -> None:
    why = rollout.restart_reason(mark, WISH, changes=changes, conflicts=conflicts, asked=asked)
    assert (words in why) if words else not why


@pytest.mark.parametrize(
    ("mark", "changes", "conflicts", "found"),
    [
        (MINE, False, (), ()),
        (MINE, True, (), ("config_map",)),
        (MINE, False, ("x",), ("running",)),
        (MINE, True, ("x",), ("config_map", "running")),
        (OTHER, False, (), ("template",)),
        (OTHER, False, ("x",), ("template", "running")),
        (OTHER, True, ("x",), ()),
        (None, False, None, ()),
        (None, False, ("x",), ("running",)),
        (None, True, ("x",), ()),
    ],
)
def test_what_has_drifted_since_it_was_rolled_out(
    mark: str | None, changes: bool, conflicts: tuple[str, ...] | None, found: tuple[str, ...]
) -> None:
    """The first rollout of a configuration finds no drift, whatever it replaces."""
    assert rollout.drifted(mark, WISH, changes=changes, conflicts=conflicts) == found


@pytest.mark.parametrize(
    ("present", "means", "as_text", "replaced"),
    [
        ("a: 1\n", {"a": 1}, True, False),
        ("a:   1\n", {"a": 1}, False, False),
        ("a:   1\n", {"a": 1}, True, True),
        ("a: 2\n", {"a": 2}, False, True),
        (None, None, False, True),
        ("a: 1\nb: null\n", {"a": 1, "b": None}, False, False),
    ],
)
def test_a_text_that_means_the_same_stays(present: str | None, means: t.Any, as_text: bool, replaced: bool) -> None:
    wish = rollout.DesiredConfig({"a": 1}, "a: 1\n", as_text)
    assert wish.instead_of(present, means) == ("a: 1\n" if replaced else None)
    assert as_text or WISH.instead_of(present, means) == wish.instead_of(present, means)


@pytest.mark.parametrize(
    ("marks", "bare", "replicas", "patch"),
    [
        ({"x": "1"}, False, None, {"template": {"metadata": {"annotations": {"x": "1"}}}}),
        ({"x": None}, False, None, {"template": {"metadata": {"annotations": {"x": None}}}}),
        ({"x": None}, True, None, {"template": {"metadata": {"annotations": None}}}),
        ({"x": "1"}, True, None, {"template": {"metadata": {"annotations": {"x": "1"}}}}),
        ({"x": "1"}, False, 0, {"template": {"metadata": {"annotations": {"x": "1"}}}, "replicas": 0}),
    ],
)
def test_a_template_that_had_no_annotations_gets_none_back(
    marks: dict[str, str | None], bare: bool, replicas: int | None, patch: Raw
) -> None:
    assert rollout.marking(marks, bare=bare, replicas=replicas) == patch


START = "2026-01-01T00:00:10Z"


def started(name: str, at: str = START, **spec: t.Any) -> Raw:
    return {"metadata": {"name": name}, "spec": spec, "status": {"startTime": at}}


@pytest.mark.parametrize(
    ("holder", "acquired", "pods", "leads"),
    [
        ("", "2026-01-01T00:00:20.000Z", [started("d-1")], False),
        ("d-1_uuid", "2025-01-01T00:00:00.000Z", [started("d-1")], True),
        ("d-1", "2025-01-01T00:00:00.000Z", [started("d-1")], True),
        ("d-2_uuid", "2026-01-01T00:00:20.000Z", [started("d-1")], False),
        ("host_uuid", "2026-01-01T00:00:20.000Z", [started("d-1", hostname="host")], True),
        ("n1_uuid", "2025-01-01T00:00:00.000Z", [started("d-1", hostNetwork=True, nodeName="n1")], True),
        ("n1_uuid", "2025-01-01T00:00:00.000Z", [started("d-1", nodeName="n1")], False),
        ("box_uuid", "2026-01-01T00:00:09.999Z", [started("d-1")], False),
        ("box_uuid", "2026-01-01T00:00:10.000Z", [started("d-1")], True),
        ("box_uuid", "2026-01-01T00:00:10.000Z", [started("d-1"), started("d-3", "2026-01-01T00:00:30Z")], True),
        ("box_uuid", "2026-01-01T00:00:20.000Z", [started("d-1"), started("d-3", "")], False),
        ("my_box_uuid", "2025-01-01T00:00:00.000Z", [started("my_box")], True),
    ],
)
def test_the_leader_is_one_of_the_pods_by_its_name_or_by_its_time(
    holder: str, acquired: str, pods: list[Raw], leads: bool
) -> None:
    lease = {"spec": {"holderIdentity": holder, "acquireTime": acquired}}
    assert (rollout.leadership(lease, "d", pods) == "") is leads


@pytest.mark.parametrize(
    ("command", "args", "flags"),
    [
        (["d", "--a=1"], ["--b", "2", "-c"], {"a": "1", "b": "2", "c": ""}),
        ([], ["--a", "--b=x=y"], {"a": "", "b": "x=y"}),
        ([], ["--a", "1", "2"], {"a": "1"}),
        ([], ["--a=", "1"], {"a": ""}),
        ([], [], {}),
    ],
)
def test_flags_have_their_value_in_the_word_or_in_the_next(
    command: list[str], args: list[str], flags: dict[str, str]
) -> None:
    made = deployment()
    made["spec"]["template"]["spec"] = {"containers": [{"command": command, "args": args}]}
    assert installation.flags(made) == flags


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "has no Deployments"),
        (["koord-deschedulr"], "Did you mean deployment: koord-deschedulr?"),
        (["web", "my-descheduler"], "Did you mean deployment: my-descheduler?"),
        (["web", "api"], "one of the Deployments in namespace koordinator-system: api, web."),
    ],
)
def test_a_workload_that_is_not_there_is_told_from_those_that_are(found: list[str], words: str) -> None:
    assert words in installation.unknown_name(installation.DEFAULT_LOCATIONS["koordinator"], found, "Deployments")


@pytest.mark.parametrize("count", [20, 21])
def test_twenty_names_are_listed_at_most(count: int) -> None:
    told = installation.unknown_name(
        installation.DEFAULT_LOCATIONS["koordinator"], [f"web{n:02}" for n in range(count)], "Deployments"
    )
    assert told.count("web") == 20


def test_of_a_log_without_a_panic_the_last_line_is_told() -> None:
    assert rollout.last_words("first\nE0101 main.go:1] Error: last\n\n") == "last"
    assert rollout.last_words("first\nsecond") == "second"


@pytest.mark.parametrize(
    ("field", "told"), [("updatedReplicas", "0 of 2 new pods are created"), ("availableReplicas", "0 of 2 pods are")]
)
def test_a_count_that_the_status_lacks_is_0(field: str, told: str) -> None:
    made = deployment()
    del made["status"][field]
    assert told in rollout.progress(made, TWO).waiting


def test_a_deployment_scaled_to_0_has_no_counts_and_is_done() -> None:
    made = deployment(replicas=0)
    made["status"] = {"observedGeneration": 2}
    assert rollout.progress(made, []).waiting == ""
    assert "has not processed" in rollout.progress({**made, "status": {}}, []).waiting
