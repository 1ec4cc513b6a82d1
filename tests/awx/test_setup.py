# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The set-up of AWX, by the modules of awx.awx, which check every argument: what it creates, and that it does so once.

AWX_COLLECTIONS is a folder with the collection awx.awx, as the package `ansible` of the Python index has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from awx import controller

ROOT = Path(__file__).resolve().parents[2]
SECRET = "canary-of-the-cluster"
AUTHORITY = "-----BEGIN CERTIFICATE-----"
GIVEN: dict[str, Any] = {
    "awx_kubernetes_token": SECRET,
    "awx_kubernetes_ca": AUTHORITY,
    "awx_machine_credential": "hosts",
    "awx_clusters_inventory": "clusters",
    "awx_descheduler_slices": 2,
    "awx_notification_type": "webhook",
    "awx_notification_configuration": {
        "url": "https://chat.example.com/hook",
        "http_method": "POST",
        "headers": {},
        "username": "",
        "password": "",
        "disable_ssl_verification": False,
    },
}
PLAYBOOKS = ("plan", "maintain", "evacuate", "release", "recover")


@pytest.fixture(scope="module")
def awx() -> Iterator[tuple[controller.Controller, str]]:
    made, server = controller.serving()
    yield made, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def set_up(address: str, home: Path, *args: str, fails: bool = False) -> str:
    """What the playbook prints; it has to succeed or, if it ``fails``, to fail."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CONTROLLER", "TOWER", "ANSIBLE"))}
    env |= {
        "ANSIBLE_COLLECTIONS_PATH": os.environ["AWX_COLLECTIONS"],
        "ANSIBLE_HOME": str(home),
        "CONTROLLER_HOST": address,
        "CONTROLLER_OAUTH_TOKEN": "awx-token",
        "NO_PROXY": "127.0.0.1",
    }
    given = home / "given.json"
    given.write_text(json.dumps(GIVEN), encoding="utf-8")
    playbook = [str(Path(sys.executable).parent / "ansible-playbook"), str(ROOT / "awx/setup.yml")]
    command = [*playbook, "-e", f"@{given}", *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def printed(awx: tuple[controller.Controller, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return set_up(awx[1], tmp_path_factory.mktemp("first"), "-vvvv")


@pytest.fixture
def made(awx: tuple[controller.Controller, str], printed: str) -> controller.Controller:
    return awx[0]


def test_each_playbook_of_the_project_has_a_template(made: controller.Controller) -> None:
    project = {path.stem for path in (ROOT / "awx/project").glob("*.yml")} - {"nodes.cluster_nodes"}
    assert project == {*PLAYBOOKS, "descheduler"}
    for name in project:
        found = made.named("job_templates", f"Node maintenance: {name}")
        assert found["playbook"] == f"awx/project/{name}.yml"
        assert (ROOT / found["playbook"]).is_file()
        assert not found["allow_simultaneous"]
        assert found["execution_environment"] == made.named("execution_environments", "Node maintenance")["id"]
        assert found["project"] == made.named("projects", "Node maintenance")["id"]
    assert len(made.objects["job_templates"]) == 6


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_template_asks_for_what_its_playbook_reads(made: controller.Controller, name: str) -> None:
    found = made.named("job_templates", f"Node maintenance: {name}")
    survey = made.parts[f"job_templates/{found['id']}/survey_spec"]
    asked = [question["variable"] for question in survey["spec"]]
    surveys = yaml.safe_load((ROOT / "awx/surveys.yml").read_text(encoding="utf-8"))
    assert asked == surveys["awx_asked"][name]
    assert found["survey_enabled"]
    assert not found["ask_limit_on_launch"]
    assert found["job_slice_count"] == 1
    for question in survey["spec"]:
        assert question["type"] in ("text", "textarea", "password", "multiplechoice")
        assert question["default"] == ""
        assert not question["required"]
        assert question["question_name"]
        assert question["type"] != "multiplechoice" or len(question["choices"]) > 1


def test_the_credentials_reach_the_jobs(made: controller.Controller) -> None:
    cluster = made.named("credentials", "Node maintenance cluster")
    assert cluster["credential_type"] == 17
    assert cluster["inputs"]["bearer_token"] == SECRET
    for name in PLAYBOOKS:
        ids = made.associated("job_templates", f"Node maintenance: {name}", "credentials")
        assert sorted(ids) == [90, cluster["id"]]
    assert made.named("inventory_sources", "Node maintenance")["credential"] == cluster["id"]


def test_the_api_server_is_verified(made: controller.Controller) -> None:
    inputs = made.named("credentials", "Node maintenance cluster")["inputs"]
    assert (inputs["verify_ssl"], inputs["ssl_ca_cert"]) == (True, AUTHORITY)


def test_without_an_authority_nothing_is_set_up(tmp_path: Path) -> None:
    other, server = controller.serving()
    text = set_up(f"http://127.0.0.1:{server.server_port}", tmp_path, "-e", "awx_kubernetes_ca=", fails=True)
    server.shutdown()
    assert "awx_kubernetes_ca" in text
    assert other.writes == []


def test_only_who_says_so_goes_without_verification_and_is_warned(tmp_path: Path) -> None:
    other, server = controller.serving()
    told = ("-e", json.dumps({"awx_kubernetes_ca": "", "awx_kubernetes_verify_ssl": False}))
    text = set_up(f"http://127.0.0.1:{server.server_port}", tmp_path, *told)
    server.shutdown()
    assert "WARNING: awx_kubernetes_verify_ssl is false" in text
    assert other.named("credentials", "Node maintenance cluster")["inputs"]["verify_ssl"] is False


def test_what_runs_with_the_token_is_pinned_to_this_release() -> None:
    def loaded(path: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
        return found

    release = loaded("galaxy.yml")["version"]
    ours = {"name": "kubeops.node_maintenance", "version": release}
    assert loaded("awx/project/collections/requirements.yml")["collections"] == [ours]
    built = loaded("awx/execution-environment/execution-environment.yml")["dependencies"]
    assert built["galaxy"]["collections"] == [ours]
    settings = loaded("awx/settings.yml")
    assert settings["awx_project_branch"] == release
    assert settings["awx_image"].endswith(f":{release}")


def test_only_the_fleet_is_sliced_and_runs_on_its_own_inventory(made: controller.Controller) -> None:
    fleet = made.named("job_templates", "Node maintenance: descheduler")
    assert (fleet["job_slice_count"], fleet["inventory"]) == (2, 91)
    assert not made.associated("job_templates", "Node maintenance: descheduler", "credentials")


def test_the_workflow_waits_for_a_person_between_plan_and_maintenance(made: controller.Controller) -> None:
    nodes = {node["identifier"]: node for node in made.objects["workflow_job_template_nodes"]}
    assert sorted(nodes) == ["approval", "maintain", "plan", "recover"]
    ways = {
        (identifier, kind): made.parts.get(f"workflow_job_template_nodes/{node['id']}/{kind}", [])
        for identifier, node in nodes.items()
        for kind in ("success_nodes", "failure_nodes", "always_nodes")
    }
    assert {way: ids for way, ids in ways.items() if ids} == {
        ("plan", "success_nodes"): [nodes["approval"]["id"]],
        ("approval", "success_nodes"): [nodes["maintain"]["id"]],
        ("maintain", "failure_nodes"): [nodes["recover"]["id"]],
    }
    for name in ("plan", "maintain", "recover"):
        template = made.named("job_templates", f"Node maintenance: {name}")
        assert nodes[name]["unified_job_template"] == template["id"]
    (approval,) = made.objects["workflow_approval_templates"]
    assert (approval["name"], approval["timeout"]) == ("Approve the plan", 86400)


def test_people_are_told_of_starts_failures_and_approvals(made: controller.Controller) -> None:
    told = made.named("notification_templates", "Node maintenance")["id"]
    for kind in ("started", "error"):
        part = f"notification_templates_{kind}"
        assert made.associated("job_templates", "Node maintenance: maintain", part) == [told]
    part = "notification_templates_approvals"
    assert made.associated("workflow_job_templates", "Node maintenance", part) == [told]


def test_the_plan_is_scheduled(made: controller.Controller) -> None:
    schedule = made.named("schedules", "Node maintenance")
    plan = made.named("job_templates", "Node maintenance: plan")
    assert schedule["unified_job_template"] == plan["id"]
    assert schedule["extra_data"] == {"maintain_nodes": "reboot_required"}


def test_no_secret_is_printed(made: controller.Controller, printed: str) -> None:
    assert made.writes
    assert SECRET not in printed
    assert "awx-token" not in printed


def test_the_second_time_nothing_changes(
    made: controller.Controller, awx: tuple[controller.Controller, str], tmp_path: Path
) -> None:
    before = len(made.writes)
    text = set_up(awx[1], tmp_path)
    assert made.writes[before:] == []
    assert "changed=0" in text
