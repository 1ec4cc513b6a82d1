# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a pod's status says of containers that do not start: statuses in the shapes in which kubelets write them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import pod_status, snapshots, unready
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

Raw = dict[str, t.Any]
NOT_READY = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
PULL = 'failed to pull and unpack image "registry.example/web:2": not found'
ENDED = {"exitCode": 1, "reason": "Error", "message": "no database\n"}


def container(state: Raw, name: str = "web", **fields: t.Any) -> Raw:
    return {"name": name, "ready": False, "restartCount": 0, "started": False, "state": state, **fields}


def waiting(reason: str, message: str = "", **fields: t.Any) -> Raw:
    return container({"waiting": {"reason": reason, **({"message": message} if message else {})}}, **fields)


def status(*containers: Raw, **fields: t.Any) -> Raw:
    return {"phase": "Pending", "conditions": [NOT_READY], "containerStatuses": list(containers), **fields}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("given", "stuck", "words"),
    [
        pytest.param(status(waiting("ErrImagePull", PULL)), True, ["web", "ErrImagePull", PULL], id="pull"),
        pytest.param(status(waiting("ImagePullBackOff", "Back-off pulling")), True, ["ImagePullBackOff"], id="wait"),
        pytest.param(
            status(waiting("CreateContainerConfigError", 'secret "db" not found')), True, ['secret "db"'], id="secret"
        ),
        pytest.param(
            status(
                waiting("CrashLoopBackOff", "back-off 10s", restartCount=2, lastState={"terminated": ENDED}),
                phase="Running",
            ),
            True,
            ["CrashLoopBackOff", "exit code 1", "no database"],
            id="crash loop",
        ),
        pytest.param(
            status(container(RUNNING, restartCount=3, lastState={"terminated": ENDED})),
            True,
            ["CrashLoopBackOff", "exit code 1"],
            id="running between two crashes",
        ),
        pytest.param(
            status(container(RUNNING, restartCount=2, lastState={"terminated": ENDED}, started=True)),
            False,
            ["web is running"],
            id="restarted twice",
        ),
        pytest.param(status(container(RUNNING)), False, ["startup probe"], id="startup probe"),
        pytest.param(status(container(RUNNING, started=True)), False, ["web is running"], id="readiness probe"),
        pytest.param(
            status(
                waiting("PodInitializing"), initContainerStatuses=[container(RUNNING, name="migrate", started=True)]
            ),
            False,
            ["init container migrate"],
            id="init container",
        ),
        pytest.param(
            status(
                waiting("PodInitializing"),
                initContainerStatuses=[
                    container({"terminated": {"exitCode": 0}}, name="done", ready=True),
                    waiting("ImagePullBackOff", PULL, name="migrate"),
                ],
            ),
            True,
            ["migrate", PULL],
            id="image of an init container",
        ),
        pytest.param(
            status(
                container(RUNNING, ready=True, started=True),
                conditions=[{**NOT_READY, "reason": "ReadinessGatesNotReady", "message": 'gate "lb" does not exist'}],
            ),
            False,
            ['gate "lb"'],
            id="readiness gate",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, False, ["low"], id="evicted"
        ),
    ],
)
def test_what_keeps_a_pod_from_being_ready_is_known(given: Raw, stuck: bool, words: list[str]) -> None:
    found = pod_status.trouble(given)
    assert found.stuck is stuck
    assert [word for word in words if word not in found.text] == []


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="none yet"),
        pytest.param(status(waiting("ContainerCreating")), id="being made"),
        pytest.param(status(waiting("PodInitializing")), id="being initialized"),
        pytest.param(
            status(container(RUNNING, ready=True, restartCount=7), conditions=[{"type": "Ready", "status": "True"}]),
            id="ready after crashes",
        ),
    ],
)
def test_a_pod_that_is_ready_or_being_made_has_no_trouble(given: Raw) -> None:
    assert pod_status.trouble(given) == pod_status.NONE


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (
            waiting("ErrImagePull", PULL),
            waiting("ImagePullBackOff", f'Back-off pulling image "x": ErrImagePull: {PULL}'),
        ),
        (
            container(RUNNING, restartCount=4, lastState={"terminated": ENDED}),
            waiting("CrashLoopBackOff", "back-off 40s", restartCount=5, lastState={"terminated": ENDED}),
        ),
    ],
    ids=["pull", "crash"],
)
def test_it_is_the_same_trouble_from_one_attempt_to_the_next(now: Raw, then: Raw) -> None:
    assert pod_status.trouble(status(now)) == pod_status.trouble(status(then))


def test_words_of_containers_are_one_short_line() -> None:
    bad = {**ENDED, "message": "\x1b[2J\r\nok: all done\n" + "x" * 100_000}
    text = pod_status.trouble(status(waiting("CrashLoopBackOff", restartCount=1, lastState={"terminated": bad}))).text
    assert text.isprintable()
    assert len(text) < pod_status.LONGEST + 100


def pod(name: str, found: Raw | None = None) -> Raw:
    raw = objects.pod(name, ready=found is None)
    raw["status"].update({key: value for key, value in (found or {}).items() if key != "conditions"})
    return raw


def test_what_does_not_start_is_named_before_what_is_not_ready_yet() -> None:
    slow, stuck = pod("a-slow", status(container(RUNNING))), pod("b-stuck", status(waiting("ErrImagePull", PULL)))
    snapshot = objects.snapshot(pods=[pod("c-fine"), slow, stuck])
    assert unready.why(snapshot, snapshot.pods).startswith("Pod shop/b-stuck: container web: ErrImagePull")
    assert unready.why(snapshots.Snapshot(), ()) == ""


@pytest.mark.parametrize("ready", ["Unknown", "False"])
def test_a_node_that_is_not_ready_says_more_than_what_its_kubelet_said_last(ready: str) -> None:
    waiting = objects.pod("web-0", "n1", ready=False)
    lost = objects.node("n1", conditions={"Ready": ready})
    for node, told in ((lost, "its node n1 is not ready"), (objects.node("n1"), "")):
        seen = objects.snapshot(nodes=[node], pods=[waiting])
        assert unready.why(seen, seen.pods) == (told and f"Pod shop/web-0: {told}")
