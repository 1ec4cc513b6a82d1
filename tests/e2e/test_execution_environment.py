# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The execution environment, and the thin project in it as AWX runs it: by ansible-runner, cancelled and run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml
from support.arena import Arena
from support.lab import ROOT, Lab
from support.waiting import until
from support.watching import Watch
from witness.log import Json

AWX = ROOT / "awx"
DRIVER = """
import json, pathlib, sys, ansible_runner
asked = json.loads(sys.argv[1])
run = ansible_runner.run(cancel_callback=pathlib.Path(asked.pop("cancel")).exists, **asked)
print("ended:", run.status, run.rc)
"""

pytestmark = pytest.mark.whole


class Environment:
    """A virtual environment of what the definition, and nothing else, brings into an image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.collections = folder / "collections"

    def run(self, *words: str | Path) -> str:
        """What a command of the environment prints; one that fails fails the test with all of it."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE", "K8S_AUTH", "PYTHON"))
        }
        env = {
            **kept,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            # It asks the server of the index at each installation, even that of a file.
            "ANSIBLE_GALAXY_SERVER": "http://127.0.0.1:9/",
        }
        done = subprocess.run(
            [str(word) for word in words], env=env, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pip(self, *words: str | Path) -> None:
        constraints = f"--constraint={ROOT / 'constraints.txt'}"
        self.run(self.bin / "python", "-m", "pip", "install", "--quiet", "--progress-bar=off", constraints, *words)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """As ansible-builder makes it: the archive is installed, then the packages that introspection finds."""
    made = Environment(tmp_path_factory.mktemp("image"))
    venv.create(made.bin.parent, with_pip=True)
    definition = yaml.safe_load((AWX / "execution-environment/execution-environment.yml").read_text("utf-8"))
    wanted = definition["dependencies"]
    made.pip(wanted["ansible_core"]["package_pip"], wanted["ansible_runner"]["package_pip"], "ansible-builder")
    context = made.folder / "context"
    made.run(
        "ansible-builder",
        "create",
        f"--file={AWX / 'execution-environment/execution-environment.yml'}",
        f"--context={context}",
        "--output-filename=Containerfile",
    )
    assert (context / "Containerfile").is_file()
    assert [
        one["name"] for one in yaml.safe_load((context / "_build/requirements.yml").read_text())["collections"]
    ] == ["kubeops.node_maintenance"]
    builder = Path(sys.executable).with_name("ansible-galaxy")
    made.run(builder, "collection", "build", "--output-path", made.folder, ROOT)
    (archive,) = made.folder.glob("*.tar.gz")
    made.run("ansible-galaxy", "collection", "install", "--offline", "-p", made.collections, archive)
    python, system = made.folder / "python.txt", made.folder / "system.txt"
    made.run("ansible-builder", "introspect", f"--write-pip={python}", f"--write-bindep={system}", made.collections)
    assert "kubernetes>=24.2.0" in python.read_text("utf-8")
    assert "openssh-clients" in system.read_text("utf-8")
    made.pip("-r", python)
    return made


class Job:
    """A job template of AWX: a private data directory with the thin project, credentials and a survey."""

    def __init__(self, image: Environment, lab: Lab, folder: Path, survey: Json) -> None:
        self.image = image
        self.folder = folder
        self.cancel = folder / "cancel"
        for name, content in {
            "env/envvars": {
                "K8S_AUTH_KUBECONFIG": str(lab.operator),
                "ANSIBLE_COLLECTIONS_PATH": str(image.collections),
            },
            "env/extravars": survey,
            "env/settings": {"idle_timeout": 300, "job_timeout": 300},
            "inventory/hosts.json": {"all": {"hosts": {}}},
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content), encoding="utf-8")
        (folder / "project").symlink_to(AWX / "project")

    def start(self, playbook: str, ident: str) -> subprocess.Popen[str]:
        asked = {
            "private_data_dir": str(self.folder),
            "playbook": playbook,
            "ident": ident,
            "cancel": str(self.cancel),
        }
        return subprocess.Popen(
            [str(self.image.bin / "python"), "-c", DRIVER, json.dumps(asked)],
            env={"PATH": f"{self.image.bin}:{os.environ['PATH']}", "HOME": str(self.image.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, playbook: str, ident: str) -> str:
        """What the job prints, its last line how it ended."""
        return self.ends(self.start(playbook, ident))

    def ends(self, job: subprocess.Popen[str]) -> str:
        try:
            text, _unused = job.communicate(timeout=300)
        finally:
            job.kill()
        return text

    def events(self, ident: str) -> list[Json]:
        files = sorted((self.folder / "artifacts" / ident / "job_events").glob("*.json"))
        return [json.loads(file.read_text("utf-8")) for file in files]


def test_a_job_that_is_cancelled_in_the_middle_goes_on_when_it_is_run_again(
    image: Environment, lab: Lab, arena: Arena, watching: Watch, tmp_path: Path
) -> None:
    here, _spare = arena.nodes(2)
    with arena.placing(here):
        web = arena.deployment("web", start="1s")
        api = arena.deployment("api", 4, start="2s", budget={"maxUnavailable": 1})
    report = tmp_path / "report"
    job = Job(image, lab, tmp_path / "job", {"maintain_nodes": here, "maintain_report_dir": str(report)})

    with watching() as seen:
        planned = job.run("plan.yml", "plan")
        assert "ended: successful 0" in planned, planned
        assert seen.until_now()
        assert not [request for request in seen.until_now() if request.writes]

        started = job.start("maintain.yml", "first")
        until(lambda: len(api.nodes()) == 4 and api.nodes().count(here) in (1, 2, 3), 120, "the drain is under way")
        job.cancel.touch()
        text = job.ends(started)
        assert "ended: canceled" in text, text
        assert arena.step(here), "the node's record says where it was"
        job.cancel.unlink()

        again = job.run("maintain.yml", "again")
        assert "ended: successful 0" in again, again
        arena.settle()
    seen.all_held()
    assert seen.dark_seconds(web) == seen.dark_seconds(api) == 0
    assert not arena.is_cordoned(here)
    told = "".join(event["stdout"] for event in job.events("again"))
    assert f"{here}  uncordoned" in told
    assert json.loads((report / "report.json").read_text("utf-8"))["nodes"]
