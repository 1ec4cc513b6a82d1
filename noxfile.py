# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks, each in an environment of its own below .build/nox.

`make test-whole` runs all; one alone: `nox -s unit -- -k budgets`, `nox -s "unit(core-2.16)"`,
`nox -s explore`. They work from a plain checkout in any folder: what needs the path
ansible_collections/kubeops/node_maintenance gets it here, as a link (Python, Ansible) or as a copy
(ansible-test and antsibull-docs look at the real path).
"""

from __future__ import annotations

import ast
import configparser
import functools
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nox

HERE = Path(__file__).parent.resolve()
BUILD = HERE / ".build"
TREE = BUILD / "collections"
IN_TREE = Path("ansible_collections/kubeops/node_maintenance")
PINS = f"--constraint={HERE / 'constraints.txt'}"

SIDE_BY_SIDE = ("--numprocesses=3", "--dist=worksteal")
"""For the unit tests: those of the connection wait most of their time,
and the slow ones stand side by side.
"""

Session = Callable[..., Any]

nox.needs_version = ">=2025.2.9"
nox.options.envdir = str(BUILD / "nox")
nox.options.reuse_venv = "yes"
# uv takes a second for an environment whose packages it has seen before,
# on this machine, in any checkout.
nox.options.default_venv_backend = "uv"
nox.options.stop_on_first_error = True
nox.options.sessions = ["lint", "sanity", "unit", "clients", "browser", "explore"]


@dataclass(frozen=True, slots=True)
class Leg:
    """One combination that is supported; `python` is the interpreter it runs on.

    `tests`: all of them on the oldest, and on that which `make check` takes; on the
    others those of what touches Ansible and the client.
    """

    core: str
    python: str
    client: str
    sanity: bool = False
    tests: tuple[str, ...] = ("tests/unit",)

    @property
    def name(self) -> str:
        """As it is called on the command line: core-2.19."""
        return f"core-{self.core.rpartition('.')[0]}"


EDGE = (
    "tests/unit/ansible",
    "tests/unit/playbooks",
    "tests/unit/kube",
    "tests/unit/test_layers.py",
)
"""What touches Ansible, and the client."""
LEGS = [
    Leg(core="2.19.14", python="3.11", client="37.0.2", sanity=True),
    Leg(core="2.16.14", python="3.11", client="24.2.0", sanity=True),
    Leg(core="2.18.19", python="3.11", client="31.0.0", tests=EDGE),
    Leg(core="2.20.10", python="3.12", client="36.0.2", tests=EDGE),
    Leg(core="2.21.5", python="3.13", client="37.0.2", sanity=True, tests=EDGE),
    Leg(core="2.22.0rc1", python="3.13", client="37.0.2", tests=EDGE),
]
CLIENTS = ["29.0.0", "35.0.0"]
"""Other lines of the client, beside those of the legs."""
NEWEST_CLIENT = "37.0.2"
# The newest ansible-core that runs on the interpreter of `make`.
CORE = "2.19.14" if sys.version_info < (3, 12) else "2.21.5"


def interpreter(version: str) -> str | None:
    """The path of a Python that really runs, or None: the shims of pyenv may exist and fail."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), sys.executable]
    found += [str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python"))]
    probe = "import ssl, sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, found):
        answer = subprocess.run([path, "-c", probe], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return path
    return None


@contextmanager
def step(session: nox.Session, what: str) -> Iterator[None]:
    """Says what is done and, at its end, how long it took."""
    session.log(f"{session.name}: {what} ...")
    start = time.monotonic()
    yield
    session.log(f"{session.name}: {what}: done in {time.monotonic() - start:.1f} s")


def link() -> None:
    """The checkout under the path that Python and Ansible import it by."""
    path = TREE / IN_TREE
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink() or path.resolve() != HERE:
        path.unlink(missing_ok=True)
        path.symlink_to("../../../..")


def copy(name: str) -> Path:
    """A copy of the files that git knows or would add, below .build/<name>; returns the collection.

    `tests/output` of an earlier copy stays: the environments of ansible-test are in it.
    """
    target = BUILD / name / IN_TREE
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.name == "tests":
            for inner in (path for path in old.iterdir() if path.name != "output"):
                remove(inner)
        else:
            remove(old)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listing, cwd=HERE, capture_output=True, text=True, check=True).stdout
    for file in filter(None, files.split("\0")):
        if os.path.lexists(HERE / file):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE / file, target / file, follow_symlinks=False)
    # Else ansible-test finds the checkout's .git further up, which ignores all of .build.
    subprocess.run(["git", "init", "--quiet"], cwd=target, check=True)
    return target


def remove(path: Path) -> None:
    """Removes a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


PIP = [sys.executable, "-m", "pip"]


@functools.cache
def pip_settings() -> dict[str, str]:
    """The settings of the caller's pip, from its files and variables,
    by their names without a section: index-url.
    """
    listing = subprocess.run(
        [*PIP, "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = {}
    for line in listing.splitlines():
        name, value = line.split("=", 1)
        settings[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    return settings


def uv_settings() -> dict[str, str]:
    """The same for uv, which does not read them: where packages are taken from."""
    known = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
    }
    settings = {known[name]: value for name, value in pip_settings().items() if name in known}
    if certificate := pip_settings().get("cert"):
        settings["SSL_CERT_FILE"] = certificate
    return {"UV_PYTHON_DOWNLOADS": "never", **settings}


def environment(session: nox.Session, tree: Path = TREE) -> None:
    """Nothing of the user's own Ansible takes part, and nothing is written into it."""
    link()
    config = BUILD / "ansible.cfg"
    config.touch()
    session.env.update(
        uv_settings(),
        ANSIBLE_CONFIG=str(config),
        ANSIBLE_HOME=str(BUILD / "ansible"),
        ANSIBLE_COLLECTIONS_PATH=str(tree),
        PYTHONPATH=str(tree),
        # Else every process of every test would compile all of it again where Python is told
        # to write no bytecode.
        PYTHONDONTWRITEBYTECODE=None,
        PYTHONPYCACHEPREFIX=str(BUILD / "pycache"),
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, licences, documentation, changelog, ansible-lint's production profile."""
    environment(session)
    tools = [
        "ruff",
        "mypy",
        "yamllint",
        "ansible-lint",
        "antsibull-docs",
        "reuse[charset-normalizer]",
    ]
    typed = ["types-PyYAML", "pytest", "hypothesis", "nox"]
    with step(session, "environment"):
        session.install(PINS, f"ansible-core=={CORE}", *tools, *typed)
    with step(session, "ruff"):
        session.run("ruff", "check", ".")
        session.run("ruff", "format", "--check", ".")
    with step(session, "mypy"):
        session.run("mypy")
        others = ["noxfile.py", ".ci/*.py", "docs/*.py", "bench", "roles/*/files/*.py"]
        others += ["tests/mutants.py", "tests/awx", "tests/e2e", "tests/chaos"]
        session.run("mypy", *(str(path) for name in others for path in HERE.glob(name)))
    with step(session, "reuse"):
        session.run("reuse", "lint", "--lines")
    with step(session, "yamllint"):
        session.run("yamllint", "--strict", ".")
    with step(session, "antsibull-changelog"):
        # Away from Sphinx, of which it would start one for each sentence.
        session.run("uv", "tool", "run", PINS, "antsibull-changelog", "lint", external=True)
    docs = ["--plugin-docs", "--skip-rstcheck", "--check-extra-docs-refs"]
    with step(session, "antsibull-docs"):
        docs += ["--validate-collection-refs=self", "."]
        session.run("antsibull-docs", "lint-collection-docs", *docs)
    noted = BUILD / "playbooks"
    shutil.rmtree(noted, ignore_errors=True)
    noted.mkdir()
    with step(session, "ansible-lint"):
        path = os.pathsep.join([str(HERE / ".ci/syntax"), session.bin, os.environ["PATH"]])
        told = [f"PATH={path}", f"PLAYBOOKS={noted}", f"REAL={session.bin}/ansible-playbook"]
        session.run(
            "env", *told, "ansible-lint", "--offline", "--profile=production", external=True
        )
    with step(session, "syntax of playbooks and roles"):
        session.run(
            "ansible-playbook",
            "--syntax-check",
            *(noted / "names").read_text().split(),
            silent=True,
        )


def on(legs: list[Leg]) -> Callable[[Session], Session]:
    """Makes one session of each leg, on the interpreter of the leg where there is one."""
    chosen = [(interpreter(leg.python) or sys.executable, leg) for leg in legs]
    return nox.parametrize(
        "python,leg", [nox.param(python, leg, id=leg.name) for python, leg in chosen]
    )


def skip_without_interpreter(session: nox.Session, leg: Leg) -> None:
    """Says loudly what stays untested on this machine."""
    if interpreter(leg.python) is None:
        session.skip(f"NOT TESTED with ansible-core {leg.core}: no Python {leg.python} here")


@nox.session
@on([leg for leg in LEGS if leg.sanity])
def sanity(session: nox.Session, leg: Leg) -> None:
    """`ansible-test sanity`, all its tests, no ignore file."""
    skip_without_interpreter(session, leg)
    name = f"sanity-{leg.name}"
    environment(session, tree=BUILD / name)
    with step(session, "environment"):
        session.install(PINS, f"ansible-core=={leg.core}")
    # One of its own: legs may go on side by side.
    home = BUILD / f"home-{leg.name}"
    stand_in(home / ".ansible/test/cache")
    pip_configuration(home / ".config/pip/pip.conf")
    session.env["HOME"] = str(home)
    session.env["PYTHONPATH"] = None
    session.chdir(copy(name))
    with step(session, f"ansible-test sanity on Python {leg.python}"):
        session.run("ansible-test", "sanity", "--venv", "--python", leg.python, *session.posargs)


def stand_in(cache: Path) -> None:
    """Puts what ansible-test would fetch from its own file server where it looks first.

    The server is out of reach on a closed network. The stand-in installs the same pip, from the
    package index that is configured here: these versions the supported ansible-test ask for.
    """
    cache.mkdir(parents=True, exist_ok=True)
    for version in ("23.1.2", "24.2", "25.2"):
        script = cache / f"get_pip_{version.replace('.', '_')}.py"
        shutil.copy2(HERE / ".ci/get_pip.py", script)


def pip_configuration(path: Path) -> None:
    """Writes the settings of the caller's pip to `path`: ansible-test drops all PIP_* variables."""
    settings = configparser.RawConfigParser()
    settings.read_dict({"global": {**pip_settings(), "quiet": "1", "progress-bar": "off"}})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        settings.write(file)


@nox.session
@on(LEGS)
def unit(session: nox.Session, leg: Leg) -> None:
    """The unit tests, on each ansible-core that is supported."""
    skip_without_interpreter(session, leg)
    environment(session)
    with step(session, f"environment (Python {leg.python}, kubernetes {leg.client})"):
        packages = [f"ansible-core=={leg.core}", f"kubernetes=={leg.client}", "PySocks", "jmespath"]
        tools = [
            "pytest",
            "pytest-xdist",
            "pytest-rerunfailures",
            "hypothesis",
            "greenlet",
            "distlib",
        ]
        session.install(PINS, *packages, *tools)
    others = [] if os.environ.get("WHOLE") else [*TOOLS]
    others += PLAYING if os.environ.get("QUICK") else ()
    left_out = [f"--ignore=tests/unit/{path}" for path in others]
    session.run(
        "pytest", *SIDE_BY_SIDE, "--durations=10", *(session.posargs or [*left_out, *leg.tests])
    )


TOOLS = ("bench", "chaos", "lab/test_reruns.py", "lab/test_sharing.py")
"""Tests of the benchmark and of tools for tests: with `WHOLE` only,
because every use of these shows the same.
"""
PLAYING = (
    "ansible/test_cluster_nodes.py",
    "lab/test_release.py",
    "playbooks/test_hosts_in_reach.py",
    "playbooks/test_playbooks.py",
    "playbooks/test_reboot_required.py",
    "playbooks/test_roles_that_fail.py",
    "playbooks/test_screen.py",
    "playbooks/test_screen_in_pipes.py",
    "playbooks/test_wave_fact.py",
)
"""Tests that start ansible-playbook, some for seconds: not with `QUICK`."""


BACKGROUND = [
    "setsid",
    "sh",
    "-c",
    'echo $$ > "$0"; { echo 19 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 19 "$@"',
    str(BUILD / "explorations.pid"),
]
"""Before a command: it gets what others leave of the processors,
also where Linux shares them by session first.

The number of its process group, by which it can be ended, is written to that file.
"""


@nox.session
def explore(session: nox.Session) -> None:
    """Every fault at every request, and orders in which runs and people act,
    in a simulated cluster.

    `ORDERS` orders (100,000) from `SEED` (1) on. With `SAMPLE` one of so many. With `BACKGROUND`
    set they give way to whatever else runs.
    """
    environment(session)
    with step(session, "environment"):
        packages = [
            f"ansible-core=={CORE}",
            f"kubernetes=={NEWEST_CLIENT}",
            "greenlet",
            "pytest",
            "pytest-xdist",
        ]
        session.install(PINS, *packages)
    behind = BACKGROUND if os.environ.get("BACKGROUND") else []
    session.run(
        *behind,
        "pytest",
        "--numprocesses=2",
        *(session.posargs or ["tests/explore"]),
        external=bool(behind),
    )


@nox.session
def mutants(session: nox.Session) -> None:
    """How many random mutants of rules and loops the unit tests notice,
    on two copies of the checkout.

    `SAMPLE` mutants of each (100), drawn by `SEED` (1), of one folder or file with
    `PACKAGE` (`drain`).
    """
    environment(session)
    with step(session, "environment"):
        packages = [
            f"ansible-core=={CORE}",
            f"kubernetes=={NEWEST_CLIENT}",
            "PySocks",
            "jmespath",
            "greenlet",
        ]
        session.install(
            PINS, *packages, "pytest", "pytest-xdist", "pytest-cov", "hypothesis", "cosmic-ray"
        )
    told = [
        f"--{name.lower()}={os.environ.get(name, '')}" for name in ("SAMPLE", "SEED", "PACKAGE")
    ]
    # A mutant of the same size and second would be taken for the bytecode of another one.
    session.env["PYTHONDONTWRITEBYTECODE"] = "1"
    copies = [str(copy(f"mutants/{number}")) for number in (1, 2)]
    session.run("python", "tests/mutants.py", *told, *copies)


@nox.session
def clients(session: nox.Session) -> None:
    """The tests of the connection with the lines of the kubernetes client that `unit` leaves
    out, one after another.
    """
    environment(session)
    for client in CLIENTS:
        with step(session, f"kubernetes {client}"):
            session.install(
                PINS,
                f"kubernetes=={client}",
                "pytest",
                "pytest-xdist",
                "hypothesis",
                "PySocks",
                "PyYAML",
            )
            session.run(
                "pytest", "--quiet", "--numprocesses=6", *(session.posargs or ["tests/unit/kube"])
            )


@nox.session
def browser(session: nox.Session) -> None:
    """The reports in a real browser. Without one they are not tested,
    which is a failure if `WHOLE` is set.
    """
    if absent := [
        program for program in ("chromium", "chromedriver") if shutil.which(program) is None
    ]:
        told = (
            f"{' and '.join(absent)} not on PATH (on Debian: apt install chromium chromium-driver)"
        )
        (session.error if os.environ.get("WHOLE") else session.skip)(
            f"The reports are NOT TESTED in a browser: {told}"
        )
    environment(session)
    with step(session, "environment"):
        packages = [
            f"ansible-core=={CORE}",
            f"kubernetes=={NEWEST_CLIENT}",
            "greenlet",
            "pytest",
            "selenium",
        ]
        session.install(PINS, *packages)
    # Selenium talks to its driver on this machine.
    session.env["no_proxy"] = "localhost"
    session.run("pytest", *(session.posargs or ["tests/browser"]))


def caption_menus(index: Path) -> None:
    """Gives the parts of the menu the titles of their sections,
    which antsibull-docs only puts into the page.
    """
    text = index.read_text(encoding="utf-8")
    text = text.replace("Kubeops.Node_Maintenance", "kubeops.node_maintenance")
    titled = r"^(.+)\n-+\n\n\.\. toctree::\n"
    index.write_text(
        re.sub(titled, r"\g<0>    :caption: \1\n", text, flags=re.MULTILINE), encoding="utf-8"
    )


ANSIBLE = "12.3.0"
"""The newest package `ansible` that has the collection awx.awx (24.6.1)."""


@nox.session
def awx(session: nox.Session) -> None:
    """The set-up of AWX, by the modules of awx.awx, against a server that keeps what
    they create and write.
    """
    environment(session)
    collection = "ansible_collections/awx/awx/"
    collections = BUILD / "awx" / ANSIBLE
    with step(session, "environment"):
        session.install(PINS, f"ansible-core=={CORE}", "pytest", "PyYAML")
        if not (collections / collection).is_dir():
            wheels = BUILD / "awx" / "wheels"
            download = [
                *PIP,
                "download",
                "--quiet",
                "--no-deps",
                f"--dest={wheels}",
                f"ansible=={ANSIBLE}",
            ]
            session.run(*download, external=True)
            with zipfile.ZipFile(next(wheels.glob(f"ansible-{ANSIBLE}-*.whl"))) as wheel:
                wheel.extractall(
                    collections, [name for name in wheel.namelist() if name.startswith(collection)]
                )
    session.env["AWX_COLLECTIONS"] = str(collections)
    session.run("pytest", *(session.posargs or ["tests/awx"]))


@nox.session
def molecule(session: nox.Session) -> None:
    """Each role on the lab LAB_NAME (molecule): converge, idempotence, verify.
    `-- taint` chooses scenarios.
    """
    environment(session)
    with step(session, "environment"):
        session.install(
            PINS, f"ansible-core=={CORE}", f"kubernetes=={NEWEST_CLIENT}", "jmespath", "molecule"
        )
    name = os.environ.get("LAB_NAME", "molecule")
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    session.env.update(
        LAB_NAME=name,
        LAB_HOME=str(state / "kubeops-lab/labs" / name),
        ANSIBLE_LOCALHOST_WARNING="false",
    )
    session.run(
        "molecule", "test", *([f"--scenario-name={one}" for one in session.posargs] or ["--all"])
    )


@nox.session
def release(session: nox.Session) -> None:
    """The archive as it is published, in .build/release: of equal bytes for equal sources,
    with checksum and SBOM.

    The archive has to pass galaxy-importer with its ansible-lint, and to have the tags that
    certification requires.
    """
    environment(session)
    with step(session, "environment"):
        session.install(
            PINS, f"ansible-core=={CORE}", "distlib", "galaxy-importer", "cyclonedx-bom"
        )
    folder = BUILD / "release"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    when = ["git", "log", "-1", "--format=%ct"]
    seconds = subprocess.run(
        when, cwd=HERE, capture_output=True, text=True, check=True
    ).stdout.strip()
    built = []
    for number in (1, 2):
        to = folder / str(number)
        session.run(
            "ansible-galaxy",
            "collection",
            "build",
            "--output-path",
            str(to),
            str(copy(f"release-{number}")),
        )
        (archive,) = to.glob("*.tar.gz")
        session.run("python", ".ci/repack.py", str(archive), seconds)
        built.append(archive)
    if built[0].read_bytes() != built[1].read_bytes():
        session.error("Two builds of the same sources differ.")
    for path in built[0].parent.iterdir():
        path.rename(folder / path.name)
    with step(session, "bill of materials"):
        session.run(
            "cyclonedx-py",
            "requirements",
            "requirements.txt",
            "--output-reproducible",
            f"--output-file={folder / built[0].name.removesuffix('.tar.gz')}.cdx.json",
        )
    with step(session, "galaxy-importer"):
        settings = folder / "galaxy-importer.cfg"
        wanted = {
            "check_required_tags": "True",
            "run_ansible_lint": "True",
            "run_ansible_test": "False",
        }
        settings.write_text(
            "[galaxy-importer]\n" + "".join(f"{name} = {value}\n" for name, value in wanted.items())
        )
        session.env["GALAXY_IMPORTER_CONFIG"] = str(settings)
        # It writes its result where it is.
        session.chdir(folder)
        told = str(
            session.run(
                "python", "-m", "galaxy_importer.main", str(folder / built[0].name), silent=True
            )
        )
    faults = [line for line in told.splitlines() if line.startswith(("WARNING", "ERROR"))]
    if faults:
        session.error("galaxy-importer: " + "\n".join(faults))


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, .build/site/html/index.html."""
    environment(session, tree=BUILD / "docs")
    ours = copy("docs")
    with step(session, "environment"):
        tools = ["antsibull-docs", "antsibull-changelog"]
        session.install(PINS, *tools, f"ansible-core=={CORE}", "sphinx-ansible-theme")
    site = BUILD / "site"
    shutil.rmtree(site, ignore_errors=True)
    (site / "rst").mkdir(parents=True, mode=0o755)
    us = "kubeops.node_maintenance"
    common = ["--use-current", "--squash-hierarchy", f"--dest-dir={site}"]
    with step(session, "pages"):
        # In the copy: the page of changes has what the next release will have.
        with session.chdir(ours):
            session.run("antsibull-changelog", "release", "--update-existing", silent=True)
        session.run("antsibull-docs", "sphinx-init", *common, us, silent=True)
        common[-1] += "/rst"
        config = f"--config-file={site / 'antsibull-docs.cfg'}"
        session.run("antsibull-docs", config, "collection", *common, us)
    with step(session, "site"):
        shutil.copytree(HERE / "docs/images", site / "images")
        shutil.copytree(HERE / "docs/site", site / "static")
        caption_menus(site / "rst/index.rst")
        settings = {
            # Without intersphinx, which would fetch the indexes of other sites.
            "extensions": "sphinx.ext.autodoc,sphinx_antsibull_ext",
            "project": us,
            "html_title": us,
            "html_short_title": us,
            "html_static_path": str(site / "static"),
            "html_css_files": "site.css",
        }
        defined = [f"--define={name}={value}" for name, value in settings.items()]
        session.run(
            "sphinx-build",
            "-q",
            "-b",
            "html",
            "-c",
            f"{site}",
            *defined,
            f"{site}/rst",
            f"{site}/html",
        )
    session.log(f"docs: {site}/html/index.html")
