# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input ends in a clear error before the first write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import sampling
from support.arena import Arena
from support.lab import Lab
from support.plays import Player, Run
from support.waiting import until
from support.watching import Seen, Watch
from witness.api import Api, ApiError
from witness.log import Json


def refused(run: Run, seen: Seen | None, *words: str) -> None:
    assert not run.ok, run.text
    for word in words:
        assert word.lower() in run.words.lower(), f"{word!r} is not told:\n{run.text}"
    assert "Traceback" not in run.text
    if seen is not None:
        assert seen.writes == []


@pytest.mark.whole
def test_an_unknown_node(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here, "no-such-node"])
    refused(run, seen, "no-such-node")
    assert not arena.is_cordoned(here)


@pytest.mark.whole
def test_a_selector_that_matches_nothing(play: Player, watching: Watch) -> None:
    with watching() as seen:
        run = play("maintain", maintain_node_selector="no.such/label=here")
    refused(run, seen, "no.such/label=here")


@pytest.mark.whole
def test_neither_nodes_nor_a_selector(play: Player, watching: Watch) -> None:
    with watching() as seen:
        run = play("maintain")
    refused(run, seen, "maintain_nodes", "maintain_node_selector")


@contextlib.contextmanager
def no_other_nodes(arena: Arena, kept: str) -> Iterator[None]:
    """All nodes of the whole cluster but one are cordoned for a while."""
    shut = [
        node["metadata"]["name"]
        for node in arena.api.items("/api/v1/nodes")
        if not node["spec"].get("unschedulable") and node["metadata"]["name"] != kept
    ]
    for name in shut:
        arena.cordon(name)
    try:
        yield
    finally:
        for name in shut:
            arena.cordon(name, False)


@pytest.mark.whole
def test_the_last_schedulable_node(arena: Arena, play: Player, watching: Watch) -> None:
    (here,) = arena.nodes(1)
    arena.deployment("web", on=here)
    arena.settle()
    with no_other_nodes(arena, here), watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    refused(run, seen, here, "schedulable")


def kubeconfig(lab: Lab, folder: Path, server: str = "", user: Json | None = None) -> str:
    """The lab's kubeconfig with another server or another user."""
    config = yaml.safe_load(lab.kubeconfig.read_text(encoding="utf-8"))
    for entry in config["clusters"]:
        entry["cluster"]["server"] = server or entry["cluster"]["server"]
    for entry in config["users"]:
        entry["user"] = user or entry["user"]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


@pytest.mark.whole
def test_an_api_that_does_not_answer(lab: Lab, arena: Arena, play: Player, watching: Watch, tmp_path: Path) -> None:
    (here,) = arena.nodes(1)
    config = kubeconfig(lab, tmp_path, server="https://127.0.0.1:1")
    with watching() as seen:
        # A minute's patience would not fit: it says so at first contact.
        run = play("maintain", maintain_nodes=[here], env={"K8S_AUTH_KUBECONFIG": config}, within=45)
    refused(run, seen, "https://127.0.0.1:1", "connection refused", "check the address", config)


@pytest.mark.whole
def test_a_kubeconfig_that_is_not_there(arena: Arena, play: Player, watching: Watch, tmp_path: Path) -> None:
    (here,) = arena.nodes(1)
    missing = str(tmp_path / "missing")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], env={"K8S_AUTH_KUBECONFIG": missing})
    refused(run, seen, missing)


@pytest.mark.whole
def test_a_kubeconfig_that_is_none(arena: Arena, play: Player, watching: Watch, tmp_path: Path) -> None:
    (here,) = arena.nodes(1)
    broken = tmp_path / "broken"
    broken.write_text("just: some\ntext: [", encoding="utf-8")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], env={"K8S_AUTH_KUBECONFIG": str(broken)})
    refused(run, seen, str(broken))


def token(lab: Lab, arena: Arena) -> str:
    """A token of a service account as TokenRequest gives it (ten minutes at least)."""
    arena.api.create(arena.path("ServiceAccount"), {"metadata": {"name": "operator"}})
    asked = {"spec": {"expirationSeconds": 600}}
    made = arena.api.create(f"{arena.path('ServiceAccount', 'operator')}/token", asked)
    return str(made["status"]["token"])


@pytest.mark.whole
def test_a_token_that_has_ended_because_its_service_account_was_deleted(
    lab: Lab, arena: Arena, play: Player, watching: Watch, tmp_path: Path
) -> None:
    """The API server gives none that expires within a test; to its reader a token that has ended is the same."""
    (here,) = arena.nodes(1)
    given = token(lab, arena)
    config = kubeconfig(lab, tmp_path, user={"token": given})
    holder = Api(Path(config), "kubeops-test")

    def status() -> int:
        try:
            holder.get("/api/v1/nodes")
        except ApiError as error:
            return error.status
        return 200

    assert status() == 403, "it is somebody"
    arena.delete("ServiceAccount", "operator")
    until(lambda: status() == 401, 30, "the token has ended")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], env={"K8S_AUTH_KUBECONFIG": config})
    refused(run, seen, "401", config, "expired")
    assert given not in run.text


@pytest.fixture
def reader(lab: Lab) -> Iterator[str]:
    """A user who may read everything and write nothing."""
    base = "/apis/rbac.authorization.k8s.io/v1"
    role = {
        "metadata": {"name": "lab-reader"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    }
    binding = {
        "metadata": {"name": "lab-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lab-reader"},
        "subjects": [{"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    for kind, made in (("clusterroles", role), ("clusterrolebindings", binding)):
        with contextlib.suppress(ApiError):
            lab.api.create(f"{base}/{kind}", made)
    yield "reader"
    for kind in ("clusterrolebindings", "clusterroles"):
        lab.api.delete(f"{base}/{kind}/lab-reader")


def test_a_missing_permission_names_verb_and_resource(arena: Arena, play: Player, watching: Watch, reader: str) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], env=play.impersonating(reader))
    refused(run, None, "patch", "nodes")
    assert [request for request in seen.writes if request.accepted] == []


@pytest.mark.whole
@pytest.mark.parametrize(
    ("variables", "words"),
    sampling.first(
        4,
        [
            ({"maintain_timeout": "5 parsecs"}, ["5 parsecs", "timeout"]),
            ({"maintain_settle": "-3"}, ["-3", "settle"]),
            ({"maintain_tasks_timeout": "soon"}, ["soon", "timeout"]),
            ({"maintain_nodez": ["x"]}, ["maintain_nodez", "maintain_nodes"]),
            ({"maintain_serial": 0}, ["maintain_serial"]),
            ({"maintain_serial": "many"}, ["maintain_serial", "many"]),
            ({"maintain_max_failures": "some"}, ["maintain_max_failures", "some"]),
            ({"maintain_force": "perhaps"}, ["maintain_force", "perhaps"]),
            ({"maintain_backend": "magic"}, ["magic"]),
            ({"maintain_on_failure": "panic"}, ["panic"]),
            ({"maintain_tasks": "no/such/tasks.yml"}, ["no/such/tasks.yml"]),
            ({"maintain_before_pod": [{"pods": "app=web", "http": {"url": "web"}}]}, ["before_pod[0].http.url", "web"]),
            ({"maintain_run": "no-such-run"}, ["no-such-run"]),
        ],
    ),
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_variable(
    arena: Arena, play: Player, watching: Watch, variables: dict[str, Any], words: list[str]
) -> None:
    here, _unused = arena.nodes(2)
    with watching() as seen:
        run = play("maintain", **{"maintain_nodes": [here], **variables})
    refused(run, seen, *words)


@pytest.mark.whole
@pytest.mark.parametrize("playbook", sampling.first(2, ["maintain", "recover", "evacuate", "release", "plan"]))
def test_any_limit(arena: Arena, play: Player, watching: Watch, playbook: str) -> None:
    here, _unused = arena.nodes(2)
    with watching() as seen:
        nodes: Json = {} if playbook == "recover" else {"maintain_nodes": [here]}
        run = play(playbook, args=["--limit", here], **nodes)
    refused(run, seen, "limit")


@pytest.mark.whole
def test_strings_and_empty_strings_of_a_survey(arena: Arena, play: Player, watching: Watch) -> None:
    one, two, _unused = arena.nodes(3)
    web = arena.deployment("web", on=one)
    survey = {
        "maintain_nodes": f"{one}, {two}",
        "maintain_serial": "2",
        "maintain_max_failures": "",
        "maintain_reboot": "",
        "maintain_tasks": "",
        "maintain_node_selector": "",
        "maintain_force": "false",
        "maintain_delete_emptydir_data": "no",
        "maintain_timeout": "2m",
        "maintain_run": "",
        "maintain_reason": "from a survey",
    }
    with watching() as seen:
        run = play("maintain", survey=survey)
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert len(run.of("node_drain")) == 1


def test_hosts_on_which_the_users_tasks_cannot_run(arena: Arena, play: Player, watching: Watch) -> None:
    """One that nobody can connect to, one without Python, and one on which nobody becomes another user."""
    gone, bare, strict, _unused = arena.nodes(4)
    arena.deployment("web", on=gone)
    tasks = play.tasks({"name": "Work on it", "ansible.builtin.command": "true"})
    local: Json = {"ansible_connection": "local"}
    hosts: Json = {
        gone: {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
        bare: {**local, "ansible_python_interpreter": "/nowhere/python3"},
        strict: {
            **local,
            "ansible_python_interpreter": sys.executable,
            "ansible_become": True,
            "ansible_become_user": "nobody",
            "ansible_become_exe": "false",
        },
    }
    with watching() as seen:
        run = play("maintain", inventory=hosts, maintain_nodes=[*hosts], maintain_tasks=tasks)
    said = {gone: "is unreachable", bare: "answers, but no module", strict: "answers, but nobody becomes root"}
    refused(run, seen, *(f"Host {host} {words}" for host, words in said.items()))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    sampling.first(
        3,
        [
            ("node_drain", {"tiemout": "5m"}, ["tiemout", "timeout"]),
            ("node_drain", {"timeout": "five"}, ["five", "timeout"]),
            ("node_drain", {"grace_period": "-1s"}, ["grace_period"]),
            ("node_drain", {"pod_selector": "a in ("}, ["pod_selector"]),
            ("node_cordon", {"state": "gone"}, ["gone"]),
            ("node_cordon", {"lease_duration": "1 moon"}, ["1 moon"]),
            ("pdb_guard", {"settle": "x"}, ["settle", "x"]),
            ("maintenance_plan", {"node_selector": "a==b==c"}, ["node_selector"]),
        ],
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_of_a_module(
    arena: Arena, play: Player, watching: Watch, module: str, arguments: dict[str, Any], words: list[str]
) -> None:
    (here,) = arena.nodes(1)
    nodes: Json = {} if "node_selector" in arguments else {"nodes": [here]}
    with watching() as seen:
        run = play.module(module, **nodes, **arguments)
    refused(run, seen, *words)
