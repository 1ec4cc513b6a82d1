# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applications take part: a queue that is drained by HTTP, a game server that waits for its sessions, a primary that is
switched over and a storage cluster that is told, by the task files of the collection.

The commands that these task files call, ceph and kubectl, are ours: the first only keeps what it was asked; the second
carries the switch-over out on the labels of the pods, as Zalando's Patroni labels its primary (spilo-role=master).
"""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.arena import Arena
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.log import Json

PLANNED, READY = (f"maintenance.kubeops.io/{word}" for word in ("maintenance-planned", "ready-to-move"))
FILES = Path(__file__).parents[2] / "playbooks/files/hooks"
SECRET = "Bearer 7b1f-queue-secret"


@dataclass
class Applications:
    """The other side of all hooks. ``calls`` are what the queue was asked, ``commands`` what was run."""

    arena: Arena
    play: Player
    folder: Path
    open: threading.Event = field(default_factory=threading.Event)
    plays: threading.Event = field(default_factory=threading.Event)
    calls: list[tuple[str, Json, bool, bool]] = field(default_factory=list)
    agreed: dict[str, bool] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        outer = self

        class Queue(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Authorization"] == SECRET
                again = self.headers["X-Maintenance-Again"] == "true"
                outer.calls.append((self.path, told, again, "name" in told and outer.there(told["name"])))
                self.send_response(200 if outer.open.is_set() else 503)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Queue)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.log = self.folder / "commands"
        self.log.touch()
        for name, line in (("ceph", "exit 0"), ("kubectl", self._switch_over())):
            path = self.folder / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.log}\n{line}\n', encoding="utf-8")
            path.chmod(0o755)
        self.threads = [threading.Thread(target=target) for target in (self.server.serve_forever, self._game)]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        for thread in self.threads:
            thread.join()

    def kubectl(self, *words: str) -> str:
        lab = self.play.lab
        command = [lab.kubectl, "--kubeconfig", lab.kubeconfig, "-n", self.arena.name, *words]
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False).stdout

    def there(self, pod: str) -> bool:
        """Whether the pod is there and nobody has asked it to end."""
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.name}{.metadata.deletionTimestamp}") == pod

    @property
    def commands(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def _switch_over(self) -> str:
        lab = self.play.lab
        label = f"{lab.kubectl} --kubeconfig {lab.kubeconfig} -n {self.arena.name} label --overwrite pod"
        return f"{label} db-0 spilo-role=replica\n{label} db-1 spilo-role=master"

    def _game(self) -> None:
        """The game servers: each agrees once its sessions are over."""
        while not self.over.wait(0.5):
            if not self.plays.is_set():
                continue
            found = json.loads(self.kubectl("get", "pods", "-l", "app=game", "-o", "json") or '{"items": []}')
            for pod in found["items"]:
                name, notes = pod["metadata"]["name"], pod["metadata"].get("annotations") or {}
                if PLANNED in notes and READY not in notes:
                    self.agreed[name] = self.there(name)
                    self.kubectl("annotate", "pod", name, f"{READY}={notes[PLANNED]}")

    def rules(self) -> Json:
        """The variables of the playbook."""
        call: Json = {"headers": {"Authorization": SECRET}}
        queue: Json = {"pods": "app=queue", "namespaces": [self.arena.name], "name": "queue", "deadline": "3m"}
        game: Json = {"owners": ["Deployment/game"], "name": "game", "annotation": True, "deadline": "3m"}
        primary: Json = {"pods": "app=db,spilo-role=master", "name": "primary"}
        nodes: Json = {"nodes": "kubernetes.io/hostname", "name": "ceph"}
        return {
            "maintain_before_pod": [
                {**queue, "http": {**call, "url": f"{self.url}/drain/{{name}}"}},
                game,
                {**primary, "tasks": str(FILES / "switch_over.yml")},
            ],
            "maintain_after_pod": [{**queue, "http": {**call, "url": f"{self.url}/gone/{{name}}"}}],
            "maintain_before_node": [{**nodes, "tasks": str(FILES / "ceph_noout.yml")}],
            "maintain_after_node": [{**nodes, "tasks": str(FILES / "ceph_noout_end.yml")}],
        }


@pytest.fixture
def apps(arena: Arena, play: Player, tmp_path: Path) -> Iterator[Applications]:
    made = Applications(arena, play, tmp_path)
    yield made
    made.close()


def placed(arena: Arena) -> tuple[str, set[str]]:
    """A node with a queue, a game server and a database whose primary is on it; and the pods of the queue."""
    here, there = arena.nodes(2)
    queue = arena.deployment("queue", 2, on=here, budget={"maxUnavailable": 1})
    arena.deployment("game", on=here)
    arena.statefulset("db", 2, on=[here, there], budget={"maxUnavailable": 1})
    for pod, role in (("db-0", "master"), ("db-1", "replica")):
        arena.patch("Pod", pod, {"metadata": {"labels": {"spilo-role": role}}})
    return here, {pod["metadata"]["name"] for pod in queue.pods()}


def test_applications_are_asked_before_their_pods_move_and_told_after(
    arena: Arena, play: Player, watching: Watch, apps: Applications
) -> None:
    here, queue = placed(arena)
    apps.open.set()
    apps.plays.set()
    arguments: Json = {"maintain_nodes": [here], "env": apps.env, **apps.rules()}
    checked = play("maintain", check=True, **arguments)
    assert checked.ok, checked.text
    assert (apps.calls, apps.commands, apps.agreed) == ([], [], {}), "check mode calls nothing"
    for rule in ("queue", "game", "primary"):
        assert f"rule {rule} (" in checked.text, "and says what it would call"
    with watching() as seen:
        run = play("maintain", args=["-vvv"], **arguments)
        assert run.ok, run.text
    seen.all_held()
    before = {path.removeprefix("/drain/"): there for path, _told, _again, there in apps.calls if "/drain/" in path}
    after = {path.removeprefix("/gone/"): there for path, _told, _again, there in apps.calls if "/gone/" in path}
    assert before == dict.fromkeys(queue, True)
    assert after == dict.fromkeys(queue, False)
    assert not any(again for _path, _told, again, _there in apps.calls)
    assert list(apps.agreed.values()) == [True]
    switch = f"exec --namespace={arena.name} db-0 -- patronictl switchover --force --leader=db-0"
    assert apps.commands == [
        f"ceph osd set-group noout {here}",
        f"kubectl {switch}",
        f"ceph osd unset-group noout {here}",
    ]
    assert SECRET.split()[1] not in run.text + json.dumps(run.lines)
    (node,) = run.report["nodes"]
    told = " ".join(mark["message"] for mark in node["marks"] if mark["what"] == "hook")
    for rule in ("queue", "game", "primary", "ceph"):
        assert f"rule {rule} (" in told, "it is in the report"


@pytest.mark.whole
def test_killed_while_applications_are_asked_the_same_command_goes_on(
    arena: Arena, play: Player, watching: Watch, apps: Applications
) -> None:
    here, queue = placed(arena)
    arguments: Json = {"maintain_nodes": [here], "env": apps.env, **apps.rules()}
    with watching() as seen:
        running = play.start("maintain", **arguments)
        until(
            lambda: len({path for path, *_more in apps.calls}) == 2 or running.over,
            150,
            "the queue is asked",
            every=0.05,
        )
        assert not running.over, running.text
        running.kill_all()
        assert len(apps.calls) >= 2
        assert {pod["metadata"]["name"] for pod in arena.pods("queue", on=here)} == queue, "none of them has moved"
        time.sleep(1)
        apps.calls.clear()
        apps.open.set()
        apps.plays.set()
        run = play("maintain", within=400, **arguments)
        assert run.ok, run.text
    seen.all_held()
    drained = {path.removeprefix("/drain/"): again for path, _told, again, _there in apps.calls if "/drain/" in path}
    assert drained == dict.fromkeys(queue, True), "it may be the second time, and they are told"
    assert {path for path, *_more in apps.calls if "/gone/" in path} == {f"/gone/{name}" for name in queue}
    assert [word.split()[0] for word in apps.commands] == ["ceph", "kubectl", "ceph"], "what was done is not repeated"


@pytest.mark.whole
def test_an_application_that_never_agrees_keeps_its_node_and_nothing_of_ours_stays(
    arena: Arena, play: Player, watching: Watch, apps: Applications
) -> None:
    here, _there = arena.nodes(2)
    game = arena.deployment("game", on=here)
    (name,) = [pod["metadata"]["name"] for pod in game.pods()]
    rules = apps.rules()
    rules["maintain_before_pod"] = [{**rules["maintain_before_pod"][1], "deadline": "8s"}]
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], env=apps.env, **rules)
        assert not run.ok
    seen.all_held()
    for text in ("hook before_pod", "rule game", f"Pod {arena.name}/{name}", "within 8 s", "same command again"):
        assert text in run.words
    (pod,) = game.pods()
    assert (pod["metadata"]["name"], PLANNED in pod["metadata"].get("annotations", {})) == (name, False)
    assert not arena.is_cordoned(here)
    assert [word.split()[2] for word in apps.commands] == ["set-group", "unset-group"]


@pytest.mark.whole
def test_a_node_is_released_once_whoever_was_told_that_it_left_has_been_told_that_it_is_back(
    arena: Arena, play: Player, apps: Applications
) -> None:
    """Another person may release it, later: what is owed to others is theirs to name."""
    here, _there = arena.nodes(2)
    rules = apps.rules()
    before, after = ({key: rules[key]} for key in ("maintain_before_node", "maintain_after_node"))
    assert play("evacuate", maintain_nodes=[here], env=apps.env, **before).ok
    assert apps.commands == [f"ceph osd set-group noout {here}"]

    call = {"url": f"{apps.url}/back", "headers": {"Authorization": SECRET}}
    deaf = {"nodes": "kubernetes.io/hostname", "name": "deaf", "http": call, "deadline": "3s"}
    failed = play("release", maintain_nodes=[here], maintain_after_node=[deaf])
    assert not failed.ok
    for text in ("hook after_node", "rule deaf", f"Node {here}", "same command again"):
        assert text in failed.words
    assert arena.is_cordoned(here), "it waits, verified"

    assert play("release", maintain_nodes=[here], env=apps.env, check=True, **after).ok
    assert apps.commands[1:] == [], "check mode calls nobody"
    run = play("release", maintain_nodes=[here], env=apps.env, **after)
    assert run.ok, run.text
    assert apps.commands[1:] == [f"ceph osd unset-group noout {here}"]
    assert not arena.is_cordoned(here)
