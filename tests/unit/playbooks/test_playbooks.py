# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Input that stops a playbook before its first request, to an API server that allows nothing."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import ansible_collections.kubeops.node_maintenance as collection

REPOSITORY = Path(__file__).parents[3]
TREE = next(iter(collection.__path__)).removesuffix("/ansible_collections/kubeops/node_maintenance")
ASKED = "not allowed (403 Forbidden)"
"""In the output of whoever asked the server."""


@contextmanager
def forbidding() -> Iterator[tuple[str, list[str]]]:
    """The address of an API server that allows nothing, and the paths that it was asked for."""
    asked: list[str] = []
    answer = json.dumps({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(403)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def play(folder: Path, playbook: str, *words: str, variables: dict[str, object] | None = None) -> tuple[int, str]:
    """Exit code and output, with runs of white space as one space; of a playbook of ours or a file.

    The output says it if, and only if, the server was asked for anything.
    """
    with forbidding() as (address, asked):
        code, text = played(folder, address, playbook, *words, variables=variables)
    assert (ASKED in text) is bool(asked), text
    return code, text


def played(
    folder: Path, address: str, playbook: str, *words: str, variables: dict[str, object] | None
) -> tuple[int, str]:
    name = playbook if playbook.endswith(".yml") else f"kubeops.node_maintenance.{playbook}"
    command = [sys.executable, "-m", "ansible", "playbook", name, *words]
    if variables:
        command += ["-e", json.dumps(variables)]
    known = {key: value for key, value in os.environ.items() if not key.startswith(("K8S_AUTH_", "KUBECONFIG"))}
    environ = {
        **known,
        "ANSIBLE_COLLECTIONS_PATH": TREE,
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
        "K8S_AUTH_HOST": address,
        "K8S_AUTH_API_KEY": "canary-token",
    }
    (folder / "ansible.cfg").touch()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    text = " ".join((done.stdout + done.stderr).replace("\\n", " ").split())
    assert "canary-token" not in text
    return done.returncode, text


@pytest.mark.parametrize(
    ("playbook", "words", "said"),
    [
        ("plan", ["--limit", "all"], "--limit"),
        ("plan", ["--limit", "localhost", "-i", "localhost,"], "--limit"),
        ("descheduler", ["--start-at-task", "Roll out", "-i", "a,", "--limit", "a"], "--start-at-task"),
        ("release", ["--skip-tags", "all"], "Tags (--tags all --skip-tags all)"),
        ("fence", ["--tags", "patch"], "Tags (--tags patch --skip-tags none)"),
    ],
)
def test_an_option_that_leaves_calls_out_is_an_error(
    tmp_path: Path, playbook: str, words: list[str], said: str
) -> None:
    variables: dict[str, object] = {"maintain_nodes": ["worker-1"]} if playbook in ("plan", "release") else {}
    code, text = play(tmp_path, playbook, *words, variables=variables)
    assert code != 0
    assert f"{said} cannot be used with this playbook" in text
    assert ASKED not in text


def test_a_limit_that_leaves_no_host_out_is_fine(tmp_path: Path) -> None:
    """ansible-rulebook gives it to each playbook of a ruleset with all hosts."""
    limited = ["-i", "localhost,", "--limit", "all"]
    _code, text = play(tmp_path, "plan", *limited, variables={"maintain_nodes": ["worker-1"]})
    assert ASKED in text


def test_tags_that_leave_no_calls_out_are_fine(tmp_path: Path) -> None:
    site = [{"ansible.builtin.import_playbook": "kubeops.node_maintenance.fence", "tags": "fence"}]
    (tmp_path / "site.yml").write_text(yaml.safe_dump(site))
    for words in (["--tags", "fence"], ["--tags", "all", "--skip-tags", "slow"]):
        _code, text = play(tmp_path, "site.yml", *words)
        assert ASKED in text


@pytest.mark.parametrize("playbook", sorted((REPOSITORY / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_refuses_to_be_cut(playbook: Path) -> None:
    first = yaml.safe_load(playbook.read_text(encoding="utf-8"))[0]
    if imported := first.get("ansible.builtin.import_playbook"):
        assert imported in ("plays/choose.yml", "maintain.yml")
        first = yaml.safe_load((REPOSITORY / "playbooks/plays/choose.yml").read_text(encoding="utf-8"))[0]
    assert first["serial"].startswith("{{ undef(hint=_maintain_cut) if _maintain_cut else")
    tasks = first.get("pre_tasks", first.get("tasks", []))
    assert tasks[0]["ansible.builtin.import_tasks"].endswith(("tasks/whole.yml", "tasks/input.yml"))


@pytest.mark.parametrize("playbook", ["maintain", "plan"])
def test_everything_wrong_is_said_before_the_first_request(tmp_path: Path, playbook: str) -> None:
    wrong = {"maintain_node": "a", "maintain_serial": 0, "maintain_timeout": "soon", "maintain_tasks": "no.yml"}
    (tmp_path / "vars.yml").write_text("order: name\n")
    code, text = play(tmp_path, playbook, "-e", "force=true", "-e", "@vars.yml", variables=wrong)
    assert code == 2
    assert "maintain_node is not a variable of this playbook. Did you mean maintain_nodes" in text
    assert "maintain_serial: 0 cannot be used" in text
    assert "maintain_timeout: 'soon' cannot be used" in text
    assert "file no.yml does not exist" in text
    assert f"Playbook {playbook} needs nodes" in text
    # Extra variables without the prefix.
    assert "force is not a variable of this playbook. Did you mean maintain_force?" in text
    assert "order is not a variable of this playbook. Did you mean maintain_order?" in text
    assert ASKED not in text


def test_a_variable_of_the_inventory_without_our_prefix_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {vars: {force: true, timeout: 5m}}\n")
    code, text = play(tmp_path, "maintain", "-i", "hosts.yml", "-e", "maintain_nodes=worker-1")
    assert code == 2
    assert "Did you mean" not in text
    assert ASKED in text


@pytest.mark.parametrize("playbook", ["plan", "maintain"])
def test_a_plan_that_cannot_be_made_fails_with_the_cause(tmp_path: Path, playbook: str) -> None:
    code, text = played(tmp_path, "https://127.0.0.1:1", playbook, variables={"maintain_nodes": "worker-1"})
    assert code == 2
    assert "cannot be reached" in text
    # What ansible-core 2.21 says instead where a condition of ours failed the task.
    assert "evaluated to" not in text


def conditions(found: object) -> Iterator[str]:
    """By which tasks fail, but for those that never do."""
    if isinstance(found, dict):
        if "failed_when" in found and found["failed_when"] is not False:
            yield str(found["failed_when"])
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from conditions(each)


def test_every_condition_by_which_a_call_of_ours_fails_shows_its_cause() -> None:
    """ansible-core 2.21 and later say instead of it that the condition was true, unless that cannot be evaluated."""
    paths = [*(REPOSITORY / "playbooks").glob("**/*.yml"), *(REPOSITORY / "roles").glob("*/tasks/*.yml")]
    found = [each for path in paths for each in conditions(yaml.safe_load(path.read_text(encoding="utf-8")))]
    ours = [each for each in found if "_maintain_" in each or "_result" in each]
    assert len(ours) >= 10
    for condition in ours:
        register = re.search(r"_maintain_\w+", condition)
        assert register, condition
        assert condition.endswith(f" and undef(hint={register.group()}.msg)"), condition


def test_a_value_that_the_shell_took_apart_is_an_error(tmp_path: Path) -> None:
    code, text = play(tmp_path, "maintain", "-e", "maintain_nodes=worker-1 worker-2")
    assert code == 2
    assert "worker-2" in text
    assert "does not belong to any variable" in text


def test_recover_knows_its_variables(tmp_path: Path) -> None:
    code, text = play(tmp_path, "recover", variables={"recover_state": "gone", "recover_runs": "ab12"})
    assert code == 2
    assert "recover_state must be listed, finished or undone" in text
    assert ASKED not in text


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "b has no credentials"),
        (
            {"descheduler_environment": {"K8S_AUTH_KUBECONFIG": "/none"}, "descheduler_timout": "1m"},
            "descheduler_timout",
        ),
        (
            {"descheduler_environment": {"K8S_AUTH_KUBECONFIG": "/none"}, "descheduler_config": {"kind": "x"}},
            "kind is 'x'",
        ),
    ],
)
def test_a_fleet_is_checked_before_its_first_cluster(tmp_path: Path, variables: dict[str, object], said: str) -> None:
    code, text = play(tmp_path, "descheduler", "-i", "a,b,", variables=variables)
    assert code == 2
    assert said in text
    assert "canary first" not in text
    assert ASKED not in text


def test_without_a_kubeconfig_that_exists_the_error_names_it(tmp_path: Path) -> None:
    wrong = tmp_path / "site.yml"
    wrong.write_text(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - kubeops.node_maintenance.node_cordon:\n"
        "        nodes: a\n      environment: {K8S_AUTH_HOST: '', K8S_AUTH_KUBECONFIG: /nowhere}\n"
    )
    command = [sys.executable, "-m", "ansible", "playbook", str(wrong)]
    environ = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": TREE, "ANSIBLE_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "/nowhere does not exist" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "playbook",
    sorted(path for folder in (".", "plays") for path in (REPOSITORY / "playbooks" / folder).glob("*.yml")),
    ids=lambda path: path.stem,
)
def test_no_strategy_of_the_users_configuration_takes_plays_apart(playbook: Path) -> None:
    """With `strategy = free` in ansible.cfg `add_host` fails, and the steps of a wave overtake each other."""
    plays = [play for play in yaml.safe_load(playbook.read_text(encoding="utf-8")) if "hosts" in play]
    assert [play.get("strategy") for play in plays] == ["ansible.builtin.linear"] * len(plays)
