# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A login that hangs holds up nobody who can do without it, and those who cannot no longer than they may wait."""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    clocks,
    credentials,
    errors,
    exec_plugin,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import Api, event, eventually, pod
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.kubeconfigs import config, plugin, written

NODES = verbs.list_page(kinds.NODES)
PATH = "/api/v1/nodes"
Login = Callable[..., Cluster]


@pytest.fixture
def login(api: Api, tmp_path: Path) -> Iterator[Login]:
    """Connects with a plugin's token that ends in so many seconds."""
    made: list[Cluster] = []

    def start(ends: float | None = None) -> Cluster:
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=ends or 0)
        status = {} if ends is None else {"expirationTimestamp": until.isoformat()}
        path = written(tmp_path / "kc", config(api.url, {"exec": plugin(tmp_path, status)}))
        made.append(connect(ConnectionOptions(kubeconfig=path), user_agent="x"))
        return made[-1]

    yield start
    for cluster in made:
        cluster.close()


@pytest.fixture
def expired(login: Login, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """With a token that has ended since it came."""
    cluster = login(ends=60)
    monkeypatch.setattr(clocks.Clock, "epoch", lambda _self: time.time() + 61)
    return cluster


@pytest.fixture
def hang(tmp_path: Path) -> Path:
    """From now on the plugin hangs, until the file is gone."""
    return tmp_path / "hang"


def runs(folder: Path) -> int:
    return int((folder / "runs").read_text(encoding="utf-8"))


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids(folder: Path) -> list[int]:
    eventually((folder / "pids").exists, 20.0)
    return [int(word) for word in (folder / "pids").read_text(encoding="utf-8").split()]


def tokens(api: Api) -> list[str | None]:
    return [call.header("Authorization") for call in api.calls]


def test_a_plugin_that_hangs_at_the_first_reading_is_ended(
    login: Login, hang: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "DEADLINE_SECONDS", 5.0)
    hang.touch()
    began = time.monotonic()
    with pytest.raises(errors.ConfigError) as caught:
        login()
    assert time.monotonic() - began < 20.0
    for words in ("credential plugin", "user 'u'", str(tmp_path / "kc"), "took longer than 5 s", "by hand"):
        assert words in str(caught.value)
    eventually(lambda: not any(map(lives, pids(tmp_path))))


def test_a_token_that_ends_soon_is_used_while_a_new_one_is_waited_for(
    api: Api, login: Login, hang: Path, tmp_path: Path
) -> None:
    cluster = login(ends=30)
    hang.touch()
    api.expect("GET", PATH, times=20)
    began = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _unused: cluster.send(NODES), range(20)))
    assert time.monotonic() - began < 3.0
    assert set(tokens(api)) == {"Bearer token-1"}
    eventually(lambda: runs(tmp_path) == 2)


def test_a_token_that_ends_soon_is_renewed_before_it_ends(api: Api, login: Login) -> None:
    cluster = login(ends=30)
    api.expect("GET", PATH)
    cluster.send(NODES)
    eventually(lambda: bool(cluster._connection.generation == 1))
    api.expect("GET", PATH)
    cluster.send(NODES)
    assert tokens(api) == ["Bearer token-1", "Bearer token-2"]


def test_an_expired_token_is_renewed_once_for_all_who_wait(api: Api, expired: Cluster, tmp_path: Path) -> None:
    api.expect("GET", PATH, times=4)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _unused: expired.send(NODES), range(4)))
    assert set(tokens(api)) == {"Bearer token-2"}
    assert runs(tmp_path) == 2


def test_an_expired_token_is_not_waited_for_longer_than_the_request_may_take(
    api: Api, expired: Cluster, hang: Path
) -> None:
    hang.touch()
    began = time.monotonic()
    with pytest.raises(errors.Unrenewed, match=r"cannot be renewed: the credential plugin .* of user 'u'.*Check the"):
        expired.send(NODES, timeout=0.7, patience=0.0)
    assert 0.6 < time.monotonic() - began < 10.0
    assert api.calls == []


def test_a_plugin_that_comes_back_is_no_end(
    api: Api, expired: Cluster, hang: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "DEADLINE_SECONDS", 1.0)
    hang.touch()
    threading.Timer(2.0, hang.unlink).start()
    api.expect("GET", PATH)
    expired.send(NODES, timeout=10, patience=20)
    assert (tokens(api)[0] or "").startswith("Bearer token-")


def test_a_refused_token_with_a_plugin_that_hangs_holds_up_nobody_else(api: Api, login: Login, hang: Path) -> None:
    cluster = login()
    api.expect("GET", "/api/v1/pods", events=[], hold=True)
    watch = api.steps[-1]
    stream = cluster.stream(verbs.watch(kinds.PODS), read_timeout=30)
    hang.touch()
    api.expect("GET", f"{PATH}/refused", status=401)
    api.expect("GET", f"{PATH}/fine", {"kind": "Node"}, times=5)
    refused: list[Any] = []

    def ask() -> None:
        began = time.monotonic()
        with suppress(errors.Unrenewed):
            cluster.send(verbs.get(kinds.NODES, "refused"), timeout=2.0, patience=0.0)
        refused.append(time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: len(api.calls) == 2)
    began = time.monotonic()
    for _unused in range(5):
        cluster.send(verbs.get(kinds.NODES, "fine"))
    watch.send(event("ADDED", pod("a")))
    assert next(iter(stream))["type"] == "ADDED"
    assert time.monotonic() - began < 1.0
    thread.join(5)
    assert 1.8 < refused[0] < 3.0
    watch.finish.set()


def test_closing_ends_the_wait_and_the_plugin(api: Api, login: Login, hang: Path, tmp_path: Path) -> None:
    cluster = login()
    hang.touch()
    api.expect("GET", PATH, status=401)

    def close() -> None:
        # Before it runs there is nothing to end; its start takes seconds on a busy machine.
        pids(tmp_path)
        cluster.close()

    threading.Thread(target=close).start()
    began = time.monotonic()
    with pytest.raises(errors.Unrenewed, match="the connection was closed"):
        cluster.send(NODES, timeout=40, patience=60)
    assert time.monotonic() - began < 30.0
    eventually(lambda: not any(map(lives, pids(tmp_path))))


def test_what_a_plugin_leaves_running_is_not_waited_for(api: Api, tmp_path: Path) -> None:
    answer = '{"apiVersion": "v1", "kind": "ExecCredential", "status": {"token": "t1"}}'
    words = ["-c", f"sleep 3 & echo '{answer}'"]
    user = {"exec": {"apiVersion": "v1", "command": "sh", "args": words}}
    began = time.monotonic()
    cluster = connect(ConnectionOptions(kubeconfig=config(api.url, user)), user_agent="x")
    assert time.monotonic() - began < 2.0
    api.expect("GET", PATH)
    cluster.send(NODES)
    assert tokens(api) == ["Bearer t1"]


def test_a_plugin_is_told_of_its_cluster_and_environment(api: Api, tmp_path: Path) -> None:
    entry = {
        "insecure-skip-tls-verify": True,
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a1"}}],
    }
    seen = tmp_path / "seen"
    words = [
        "-c",
        f'echo "$KUBERNETES_EXEC_INFO $WORD" > {seen};'
        """ echo '{"apiVersion": "v1", "status": {"token": "t1"}}'""",
    ]
    user = {
        "exec": {
            "apiVersion": "v1",
            "command": "sh",
            "args": words,
            "env": [{"name": "WORD", "value": "w1"}],
            "provideClusterInfo": True,
        }
    }
    connect(ConnectionOptions(kubeconfig=config(api.url, user, entry)), user_agent="x").close()
    told = seen.read_text(encoding="utf-8")
    for words_told in (f'"server": "{api.url}"', '"audience": "a1"', '"interactive": false', " w1"):
        assert words_told in told


def test_a_file_that_never_comes_is_named(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system whose server is gone: nothing can stop such a reading."""
    monkeypatch.setattr(credentials, "ABANDONED_AFTER_SECONDS", 1.0)
    pipe = tmp_path / "token"
    os.mkfifo(pipe)
    path = written(tmp_path / "kc", config(api.url, {"tokenFile": str(pipe)}))
    began = time.monotonic()
    with pytest.raises(errors.ConfigError, match=r"takes longer than 1 s.*file systems"):
        connect(ConnectionOptions(kubeconfig=path), user_agent="x")
    assert time.monotonic() - began < 3.0
    os.close(os.open(pipe, os.O_RDWR))


def test_a_kubeconfig_that_leads_elsewhere_by_now_is_not_followed(api: Api, tmp_path: Path) -> None:
    path = written(tmp_path / "kc", config(api.url, {"token": "t1"}))
    cluster = connect(ConnectionOptions(kubeconfig=path), user_agent="x")
    written(tmp_path / "kc", config("http://127.0.0.1:9", {"token": "t2"}))
    api.expect("GET", PATH, status=401)
    with pytest.raises(errors.Unrenewed, match=r"now leads to http://127\.0\.0\.1:9"):
        cluster.send(NODES, patience=0.0)


def test_another_context_chosen_meanwhile_is_not_followed(api: Api, tmp_path: Path) -> None:
    path = written(tmp_path / "kc", config(api.url, {"token": "t1"}))
    cluster = connect(ConnectionOptions(kubeconfig=path), user_agent="x")
    content = config(api.url, {"token": "t2"})
    content["contexts"].append({"name": "two", "context": {"cluster": "c2", "user": "u"}})
    content["clusters"].append({"name": "c2", "cluster": {"server": "http://127.0.0.1:9"}})
    written(tmp_path / "kc", {**content, "current-context": "two"})
    api.expect("GET", PATH, status=401)
    api.expect("GET", PATH)
    cluster.send(NODES)
    assert tokens(api) == ["Bearer t1", "Bearer t2"]
