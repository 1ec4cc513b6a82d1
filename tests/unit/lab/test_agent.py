# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's agent: how a container becomes a process, and how its end and restart are told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab_container import Container
from lab_rewrite import command, configured, flag, ports

CHART = """\
# as in the chart
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
healthzBindAddress: 0.0.0.0:10251  # everywhere
metricsBindAddress: 0.0.0.0:10251
deschedulingInterval: 10s
"""


@pytest.mark.parametrize(
    "text",
    [
        CHART,
        CHART + "clientConnection:\n  qps: 5\n",
        CHART + "clientConnection:\n    kubeconfig: /mine\n    qps: 5\n",
        CHART + "clientConnection: {qps: 5}\n",
        CHART + "clientConnection: {}\n",
        CHART + "clientConnection:\n",
        "kind: DeschedulerConfiguration\n",
        "kind: DeschedulerConfiguration\nhealthzBindAddress:\n",
        '{"kind": "DeschedulerConfiguration", "deschedulingInterval": "10s"}',
        "---\n  kind: DeschedulerConfiguration\n  profiles:\n  - name: x\n",
    ],
)
def test_three_settings_are_ours_and_all_others_stay(text: str) -> None:
    before: dict[str, Any] = yaml.safe_load(text)
    after = yaml.safe_load(configured(text, "/k", 4711))
    assert after.pop("clientConnection").pop("kubeconfig") == "/k"
    assert {after.pop("healthzBindAddress"), after.pop("metricsBindAddress")} == {"127.0.0.1:4711"}
    ours = {"clientConnection", "healthzBindAddress", "metricsBindAddress"}
    assert after == {key: value for key, value in before.items() if key not in ours}


def test_other_settings_of_the_connection_stay() -> None:
    text = configured(CHART + "clientConnection:\n  qps: 5\n", "/k", 1)
    assert yaml.safe_load(text)["clientConnection"] == {"kubeconfig": "/k", "qps": 5}
    assert "# everywhere" in text


@pytest.mark.parametrize(
    "text",
    [
        "kind: [unclosed\n",
        "kind: DeschedulerPolicy\nprofiles: []\n",
        "- kind: DeschedulerConfiguration\n",
        "",
        "just words",
        CHART + "---\n" + CHART,
    ],
)
def test_what_is_no_configuration_reaches_the_program_as_it_is(text: str) -> None:
    assert configured(text, "/k", 1) == text


def test_faults_are_left_for_the_program_to_find() -> None:
    text = configured(CHART + "typo: 1\ntypo: 2\nclientConnection: words\nhealthzBindAddress: 7\n", "/k", 1)
    assert text.count("typo:") == 2
    assert "healthzBindAddress: 7" in text


def test_words_are_changed_where_the_program_would_leave_the_lab(tmp_path: Path) -> None:
    words = ["/koord-descheduler", "--v=4", "--config=/config/x", "--secure-port", "1", "--bind-address=0.0.0.0"]
    found = command(words, {"/config": tmp_path}, tmp_path / "certs", "/k", 4712)
    assert found[1:3] == ["--v=4", f"--config={tmp_path}/x"]
    assert (flag(found, "--secure-port"), flag(found, "--bind-address")) == ("4712", "127.0.0.1")
    assert not any("kubeconfig" in word for word in found)


def test_the_sigs_descheduler_gets_a_kubeconfig_unless_it_has_one(tmp_path: Path) -> None:
    words = ["/bin/descheduler", "--policy-config-file", "/policy-dir/policy.yaml"]
    mounts = {"/policy-dir": tmp_path}
    found = command(words, mounts, tmp_path, "/k", 1)
    assert flag(found, "--client-connection-kubeconfig") == "/k"
    assert flag(found, "--policy-config-file") == f"{tmp_path}/policy.yaml"
    assert (
        flag(command([*words, "--kubeconfig=/own"], mounts, tmp_path, "/k", 1), "--client-connection-kubeconfig") == ""
    )


def test_ports_of_the_container_are_found_on_this_machine() -> None:
    assert ports(["/koord-descheduler"], CHART, 1, 2) == {10251: 1, 10258: 2}
    other = CHART.replace("healthzBindAddress: 0.0.0.0:10251", "healthzBindAddress: 0.0.0.0:8080")
    assert ports(["/koord-descheduler", "--secure-port=9"], other, 1, 2) == {8080: 1, 9: 2}
    assert ports(["/bin/descheduler"], "", 1, 2) == {10258: 2}
    assert ports(["/bin/other"], "", 1, 2) == {}


def made(tmp_path: Path, script: str, policy: str = "Always", **spec: Any) -> Container:
    program = tmp_path / "programs" / "program"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    folder = tmp_path / "pod" / "main"
    folder.mkdir(parents=True)
    known = {"name": "main", "command": ["/program"], "terminationMessagePolicy": "FallbackToLogsOnError", **spec}
    return Container(known, folder, "pod", policy, program.parent, "/k")


def ended(container: Container, now: float) -> None:
    until = time.monotonic() + 10
    while container.process is not None and time.monotonic() < until:
        container.look(now)
        time.sleep(0.01)
    assert container.process is None


def test_a_crash_is_told_with_the_last_words_and_restarts_wait_longer_and_longer(tmp_path: Path) -> None:
    container = made(tmp_path, "echo doing; echo no such thing >&2; exit 3")
    container.start({}, 100.0)
    ended(container, 101.0)
    status = container.status(101.0)
    assert status["lastState"]["terminated"] | {"startedAt": "", "finishedAt": ""} == {
        "exitCode": 3,
        "reason": "Error",
        "message": "doing\nno such thing\n",
        "startedAt": "",
        "finishedAt": "",
    }
    assert container.due == 101.0  # the first restart comes at once
    dues = []
    now = 101.0
    for _again in range(3):
        container.start({}, now)
        ended(container, now + 1)
        dues.append(container.due - now - 1)
        now = container.due
    assert dues == [10.0, 20.0, 40.0]
    assert container.status(now - 5)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container.restarts == 3
    assert container.log.read_text(encoding="utf-8").splitlines()[0].endswith(" stdout F doing")


def test_a_process_without_a_probe_is_ready_and_ends_when_asked(tmp_path: Path) -> None:
    container = made(tmp_path, "exec sleep 60")
    container.start({}, 1.0)
    container.look(1.0)
    assert (container.ready, container.running) == (True, True)
    container.stop(hard=True)
    ended(container, 2.0)
    assert container.exited is not None
    assert container.exited["exitCode"] == 137


@pytest.mark.parametrize(("policy", "script", "finished"), [("Never", "exit 1", True), ("OnFailure", "exit 0", True)])
def test_a_job_s_container_stays_ended(tmp_path: Path, policy: str, script: str, finished: bool) -> None:
    container = made(tmp_path, script, policy)
    container.start({}, 1.0)
    ended(container, 2.0)
    assert container.finished is finished
    assert "terminated" in container.status(3.0)["state"]


def test_an_unknown_program_cannot_start_and_no_program_is_pretended(tmp_path: Path) -> None:
    container = made(tmp_path, "", command=["/other"])
    container.start({}, 1.0)
    assert container.exited is not None
    assert (container.exited["reason"], container.exited["exitCode"]) == ("StartError", 128)
    pretended = Container({"name": "main"}, tmp_path, "pod", "Always", tmp_path, "/k")
    pretended.start({}, 1.0)
    pretended.look(1.0)
    assert (pretended.ready, pretended.status(2.0)["state"]) == (
        True,
        {"running": {"startedAt": "1970-01-01T00:00:01Z"}},
    )
