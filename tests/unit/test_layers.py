# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads every import of the collection and fails on an arrow that the architecture does not have.

Within plugins it also fails where a name is imported and not the module that has it, without exception, and where a
variable hides such a module. docs/docsite/rst/guide_architecture.rst has the packages and what each may import.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
OURS = "ansible_collections.kubeops.node_maintenance."
UTILS = "plugins/module_utils/"
CONNECTION = f"{UTILS}kube/connection.py"

# Folders of plugins outside module_utils -> the kinds of module_utils and the folders that they may import.
FOLDERS = {
    "plugin_utils": {"arguments"},
    "modules": {"arguments"},
    "action": {"arguments", "plugin_utils"},
    "callback": {"arguments", "plugin_utils"},
    "inventory": {"arguments", "plugin_utils"},
    "filter": {"arguments", "plugin_utils"},
    "doc_fragments": set[str](),
}
# A kind of file in module_utils -> the kinds that it may import; which packages is in the guide's table.
KINDS = {"rules": {"rules"}, "run": {"rules", "run"}, "arguments": {"rules", "run", "arguments"}}
# Rules are pure: they may not wait, roll dice, look at the machine or talk to anybody.
IMPURE = {
    *(
        "asyncio",
        "concurrent",
        "http",
        "io",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "select",
        "shutil",
    ),
    *("signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid"),
}
PAGE = "plugins/module_utils/report/page.py"
"""Draws the report with Jinja, which comes with ansible-core."""
# What each may import of Ansible; the others may import none of it.
ANSIBLE = {
    "arguments": ("ansible.module_utils",),
    "modules": ("ansible.module_utils.basic",),
    "plugin_utils": ("ansible",),
    "action": ("ansible",),
    "callback": ("ansible",),
    "inventory": ("ansible",),
    "filter": ("ansible.parsing.dataloader", "ansible.utils.vars"),
}


SCOPES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def imports(source: str) -> Iterator[tuple[int, str]]:
    """The line and the full dotted name of each thing that is imported, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def room_of(dotted: str) -> str:
    """The kind of a file of module_utils, or the folder of plugins that a name of ours is in; or ""."""
    parts = dotted.removeprefix(OURS).split(".")
    if parts[0] != "plugins":
        return ""
    if parts[1:2] == ["module_utils"]:
        return packages().part_of("/".join(parts[2:]))[1] if len(parts) > 3 else ""
    return (parts[1:2] or [""])[0]


def inside(name: str, package: str) -> bool:
    """Whether the dotted name is the package or in it."""
    return name == package or name.startswith(package + ".")


def fault(path: str, name: str) -> str | None:
    """What is wrong with importing `name` in the file `path` (from our root), or None."""
    if path.startswith("tests/e2e/witness"):
        ours = inside(name, OURS[:-1]) and not name.startswith(f"{OURS}tests.e2e.witness")
        return "the witness stands on its own: it imports nothing of the collection" if ours else None
    if not path.startswith("plugins/"):
        return None
    room = room_of(OURS + path.removesuffix(".py").replace("/", "."))
    top = name.partition(".")[0]
    if name.startswith("."):
        return "imports are absolute: AnsiballZ and readers follow them better"
    if inside(name, OURS[:-1]):
        target = room_of(name)
        if target != room and target not in {**FOLDERS, **KINDS}.get(room, set()):
            return f"{room} does not import {target or 'a whole package'}"
        if not (HERE / f"{name.removeprefix(OURS).replace('.', '/')}.py").is_file():
            return "import the module, so that the name shows where it comes from and a test replaces it in one place"
    elif top == "ansible":
        if not any(inside(name, package) for package in ANSIBLE.get(room, ())):
            return f"{room} does not know this part of Ansible"
        if name.endswith("Display") and room not in ("plugin_utils", "action"):
            return "only plugin_utils and action know Ansible's Display"
    elif top == "kubernetes" and path != CONNECTION:
        return f"only {CONNECTION} imports the kubernetes package"
    elif room == "rules" and (top in IMPURE or (top not in sys.stdlib_module_names and path != PAGE)):
        return "rules are pure: no clock, no I/O, no third party"
    elif path.startswith("plugins/modules/") and top != "__future__":
        return "a module is documentation, arguments and a short main: it imports only what Ansible passes"
    return None


def faults(path: str, source: str) -> list[str]:
    """All wrong arrows of a file, one line each."""
    found = ((line, name, fault(path, name)) for line, name in imports(source))
    return [f"{path}:{line}: {name}: {why}" for line, name, why in found if why]


def hidden(source: str) -> list[str]:
    """Modules of ours that a file imports and that a variable in one of its functions hides."""
    tree = ast.parse(source)
    own = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS)]
    found = set[str]()
    for scope in (node for node in ast.walk(tree) if isinstance(node, SCOPES)):
        for node in ast.walk(scope):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.ExceptHandler):
                found.add(node.name or "")
    return sorted(found & {alias.asname or alias.name for node in own for alias in node.names})


def clocks_and_files(source: str) -> list[str]:
    """Calls that look at the clock or at files although nothing had to be imported for them."""
    called = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    words = [call.attr for call in called if isinstance(call, ast.Attribute)]
    found = [word for word in words if word in ("now", "utcnow", "today")]
    return found + [call.id for call in called if isinstance(call, ast.Name) and call.id in ("open", "print", "input")]


def sources() -> list[Path]:
    """Every Python file that a rule speaks of."""
    found = [*HERE.glob("plugins/**/*.py"), *HERE.glob("tests/e2e/witness*/**/*.py")]
    return sorted([*found, *HERE.glob("tests/e2e/witness*.py")])


def test_every_import_follows_the_layers() -> None:
    wrong = [line for path in sources() for line in faults(str(path.relative_to(HERE)), path.read_text())]
    assert not wrong, "\n".join(wrong)


def test_no_variable_hides_an_imported_module() -> None:
    found = {str(path.relative_to(HERE)): hidden(path.read_text()) for path in HERE.glob("plugins/**/*.py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "def f(names): ...",
        "def f():\n    for names in (): ...",
        "[names for names in ()]",
        "lambda names: names",
        "def f():\n    try: ...\n    except OSError as names: ...",
    ],
)
def test_a_variable_that_hides_a_module_is_caught(line: str) -> None:
    assert hidden(f"from {OURS}plugins.module_utils.cluster import names, objects\n{line}") == ["names"]
    assert hidden(f"import names\n{line}") == []


def test_rules_read_no_clock_and_no_file() -> None:
    found = {path.name: clocks_and_files(path.read_text()) for path in rules()}
    assert {name: calls for name, calls in found.items() if calls} == {}
    assert clocks_and_files("datetime.now(UTC); open('x')") == ["now", "open"]


def rules() -> list[Path]:
    """The files of module_utils that are pure."""
    utils = HERE / UTILS
    return [path for path in utils.rglob("*.py") if packages().part_of(str(path.relative_to(utils)))[1] == "rules"]


@functools.cache
def packages() -> types.ModuleType:
    """The script that writes the table of packages."""
    spec = importlib.util.spec_from_file_location("packages", HERE / "docs/packages.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_packages_are_as_the_guide_shows_them() -> None:
    script = packages()
    assert script.table().strip() == script.shown(script.GUIDE.read_text()), "python docs/packages.py writes them anew"


@functools.cache
def imported(path: str) -> frozenset[str]:
    """The files of ours that a file imports, all from our root."""
    names = (name for _line, name in imports((HERE / path).read_text()) if inside(name, OURS[:-1]))
    return frozenset(f"{name.removeprefix(OURS).replace('.', '/')}.py" for name in names)


def loaded(path: str) -> set[str]:
    """The files of ours that a file loads, by its own imports and by theirs."""
    found, left = set[str](), {path}
    while left:
        found |= left
        left = {more for one in left for more in imported(one)} - found
    return found - {path}


def test_a_module_loads_little_more_than_it_needs() -> None:
    """A client, the objects of a cluster, Ansible's side and the roles that it may lack."""
    assert len(loaded("plugins/modules/node_taint.py")) <= 52


def test_the_filter_of_the_results_loads_no_engine() -> None:
    """Each playbook loads it when it starts."""
    found = loaded("plugins/filter/maintain_summary.py")
    engines = {f"{UTILS}{path}.py" for path in ("drain/run_drain", "planning/run_plan", "surge/run_guard")}
    assert engines & loaded("plugins/modules/maintenance_wave.py") == engines
    assert not engines & found, sorted(found)


def test_only_what_reads_or_restores_a_descheduler_loads_its_package() -> None:
    modules = [str(path.relative_to(HERE)) for path in sorted(HERE.glob("plugins/modules/*.py"))]
    reading = [path for path in modules if any(f"{UTILS}descheduler/" in one for one in loaded(path))]
    assert [Path(path).stem for path in reading] == [
        "descheduler_config",
        "maintenance_plan",
        "maintenance_state",
        "maintenance_wave",
        "node_drain",
        "pod_migration_job",
    ]


def test_a_circle_of_packages_is_caught() -> None:
    script = packages()
    one, two, low = ("a", "run"), ("b", "run"), ("c", "rules")
    assert script.levels({one: {two, low}, two: {low}, low: set()}) == {low: 1, two: 2, one: 3}
    with pytest.raises(script.CircleError, match="a run, b run"):
        script.levels({one: {two}, two: {one}, low: set()})


def test_every_file_under_plugins_is_in_a_known_room() -> None:
    files = [str(path.relative_to(HERE)) for path in HERE.glob("plugins/**/*.py")]
    assert files, "no plugins found: is the path of the collection still right?"
    rooms = {path: room_of(OURS + path.replace("/", ".")) for path in files}
    assert {path: room for path, room in rooms.items() if room not in {**FOLDERS, **KINDS}} == {}


def test_plugins_are_namespace_packages() -> None:
    assert list(HERE.glob("plugins/**/__init__.py")) == []


FROM_PLAN = f"from {OURS}plugins.module_utils.cluster import snapshots"
A_NAME = f"from {OURS}plugins.module_utils.cluster.snapshots import Snapshot"
FROM_RUN = f"from {OURS}plugins.module_utils.drain import run_drain"
FROM_CLUSTER = f"from {OURS}plugins.module_utils.kube import client"
FROM_EDGE = f"from {OURS}plugins.module_utils.ansible import specs"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (f"{UTILS}planning/waves.py", FROM_CLUSTER),
        (f"{UTILS}planning/waves.py", FROM_RUN),
        (f"{UTILS}planning/waves.py", A_NAME),
        (f"{UTILS}planning/waves.py", "import time"),
        (f"{UTILS}planning/waves.py", "from threading import Lock"),
        (f"{UTILS}planning/waves.py", "import os.path"),
        (f"{UTILS}planning/waves.py", "def f():\n    import random"),
        (f"{UTILS}planning/waves.py", "import yaml"),
        (f"{UTILS}planning/waves.py", "from ansible.module_utils.basic import AnsibleModule"),
        (f"{UTILS}planning/waves.py", "from .snapshots import Pod"),
        (f"{UTILS}planning/waves.py", f"import {OURS}plugins.module_utils.kube.client"),
        (f"{UTILS}planning/waves.py", f"from {OURS}plugins.module_utils import kube"),
        (f"{UTILS}planning/waves.py", f"from {OURS}tests.unit import anything"),
        (f"{UTILS}kube/client.py", "import kubernetes"),
        (
            f"{UTILS}kube/client.py",
            "try:\n    from kubernetes import client\nfinally: 0",
        ),
        (f"{UTILS}drain/run_drain.py", FROM_EDGE),
        (f"{UTILS}drain/run_drain.py", "from ansible.utils.display import Display"),
        (f"{UTILS}ansible/specs.py", "from ansible.utils.display import Display"),
        ("plugins/modules/node_drain.py", FROM_RUN),
        ("plugins/modules/node_drain.py", f"from {OURS}plugins.module_utils.drain.arguments import SPEC"),
        ("plugins/modules/node_drain.py", "import json"),
        ("plugins/action/node_drain.py", FROM_RUN),
        ("plugins/action/node_drain.py", f"from {OURS}plugins.plugin_utils._in_process import InProcess"),
        ("plugins/inventory/cluster_nodes.py", "from ansible.utils.display import Display"),
        ("tests/e2e/witness/watch.py", FROM_CLUSTER),
        ("tests/e2e/witness.py", "import ansible_collections.kubeops.node_maintenance"),
    ],
)
def test_a_wrong_import_is_caught(path: str, line: str) -> None:
    assert faults(path, line) != []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (f"{UTILS}planning/waves.py", FROM_PLAN),
        (f"{UTILS}planning/waves.py", "import json, re, datetime, dataclasses"),
        (f"{UTILS}planning/waves.py", f"from {OURS}plugins.module_utils.cluster import names"),
        (CONNECTION, "import kubernetes.client"),
        (f"{UTILS}drain/run_drain.py", FROM_CLUSTER),
        (f"{UTILS}ansible/specs.py", FROM_PLAN),
        (f"{UTILS}ansible/specs.py", "from ansible.module_utils.basic import AnsibleModule"),
        ("plugins/modules/node_drain.py", FROM_EDGE),
        ("plugins/modules/node_drain.py", "from ansible.module_utils.basic import AnsibleModule"),
        ("plugins/plugin_utils/_base.py", "from ansible.utils.display import Display"),
        ("plugins/action/node_drain.py", f"from {OURS}plugins.plugin_utils import _in_process"),
        ("tests/e2e/witness/watch.py", f"from {OURS}tests.e2e.witness import api"),
        ("tests/unit/planning/test_waves.py", A_NAME),
    ],
)
def test_a_right_import_passes(path: str, line: str) -> None:
    assert faults(path, line) == []
