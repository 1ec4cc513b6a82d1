# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads every import of the collection and fails on an arrow that the architecture does not have.

Within plugins it also fails where a name is imported and not the module that has it, without exception, and where a
variable hides such a module. The rooms and their arrows are explained in docs/docsite/rst/guide_architecture.rst.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
OURS = "ansible_collections.kubeops.node_maintenance."
UTILS = "plugins/module_utils/"
CONNECTION = f"{UTILS}_cluster/connection.py"

# room -> the rooms it may import from, besides itself
ROOMS = {
    "_plan": set[str](),
    "_cluster": set[str](),
    "_run": {"_plan", "_cluster"},
    "_edge": {"_plan", "_run"},
    "plugin_utils": {"_edge"},
    "modules": {"_edge"},
    "action": {"_edge", "plugin_utils"},
    "callback": {"_edge", "plugin_utils"},
    "inventory": {"_edge", "plugin_utils"},
    "filter": {"_edge", "plugin_utils"},
    "doc_fragments": set[str](),
}
# `_plan` is pure: it may not wait, roll dice, look at the machine or talk to anybody.
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
    ),
    *("secrets", "select", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile"),
    *("threading", "time", "urllib", "uuid"),
}
# room -> what it may import of Ansible; the others may import none of it.
ANSIBLE = {
    "_edge": ("ansible.module_utils",),
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
    """The room that a name of ours is in: plugins.module_utils._plan.x -> _plan; or ""."""
    parts = dotted.removeprefix(OURS).split(".")
    if parts[0] != "plugins":
        return ""
    return (parts[2:3] if parts[1:2] == ["module_utils"] else parts[1:2] or [""])[0]


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
        if target != room and target not in ROOMS.get(room, set()):
            return f"{room} does not import from {target or 'outside the rooms'}"
        if not (HERE / f"{name.removeprefix(OURS).replace('.', '/')}.py").is_file():
            return "import the module, so that the name shows where it comes from and a test replaces it in one place"
    elif top == "ansible":
        if not any(inside(name, package) for package in ANSIBLE.get(room, ())):
            return f"{room} does not know this part of Ansible"
        if name.endswith("Display") and room not in ("plugin_utils", "action"):
            return "only plugin_utils and action know Ansible's Display"
    elif top == "kubernetes" and path != CONNECTION:
        return f"only {CONNECTION} imports the kubernetes package"
    elif room == "_plan" and (top in IMPURE or top not in sys.stdlib_module_names):
        return "_plan is pure: no clock, no I/O, no third party"
    elif path.startswith("plugins/modules/") and top != "__future__":
        return "a module is documentation, arguments and a short main: it imports only _edge"
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
    assert hidden(f"from {OURS}plugins.module_utils._plan.model import names, objects\n{line}") == ["names"]
    assert hidden(f"import names\n{line}") == []


def test_the_plan_reads_no_clock_and_no_file() -> None:
    found = {path.name: clocks_and_files(path.read_text()) for path in HERE.glob(f"{UTILS}_plan/**/*.py")}
    assert {name: calls for name, calls in found.items() if calls} == {}
    assert clocks_and_files("datetime.now(UTC); open('x')") == ["now", "open"]


def house() -> types.ModuleType:
    """The script that draws the wings."""
    spec = importlib.util.spec_from_file_location("house", HERE / "docs/house.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_wings_stand_as_the_guide_draws_them() -> None:
    draws = house()
    assert draws.drawing().strip() == draws.drawn(draws.GUIDE.read_text()), "python docs/house.py draws them anew"
    assert draws.PICTURE.read_text() == draws.picture(), "python docs/house.py draws it anew"


def test_an_arrow_back_between_wings_is_caught() -> None:
    draws = house()
    assert draws.floors({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"c": 1, "b": 2, "a": 3}
    with pytest.raises(draws.ArrowBackError, match="a, b"):
        draws.floors({"a": {"b"}, "b": {"a"}, "c": set()})


def test_every_file_under_plugins_is_in_a_known_room() -> None:
    files = [str(path.relative_to(HERE)) for path in HERE.glob("plugins/**/*.py")]
    assert files, "no plugins found: is the path of the collection still right?"
    rooms = {path: room_of(OURS + path.replace("/", ".")) for path in files}
    assert {path: room for path, room in rooms.items() if room not in ROOMS} == {}


def test_plugins_are_namespace_packages() -> None:
    assert list(HERE.glob("plugins/**/__init__.py")) == []


FROM_PLAN = f"from {OURS}plugins.module_utils._plan.model import snapshots"
A_NAME = f"from {OURS}plugins.module_utils._plan.model.snapshots import Snapshot"
FROM_RUN = f"from {OURS}plugins.module_utils._run.drain import drain"
FROM_CLUSTER = f"from {OURS}plugins.module_utils._cluster import client"
FROM_EDGE = f"from {OURS}plugins.module_utils._edge import specs"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (f"{UTILS}_plan/preflight/waves.py", FROM_CLUSTER),
        (f"{UTILS}_plan/preflight/waves.py", FROM_RUN),
        (f"{UTILS}_plan/preflight/waves.py", A_NAME),
        (f"{UTILS}_plan/preflight/waves.py", "import time"),
        (f"{UTILS}_plan/preflight/waves.py", "from threading import Lock"),
        (f"{UTILS}_plan/preflight/waves.py", "import os.path"),
        (f"{UTILS}_plan/preflight/waves.py", "def f():\n    import random"),
        (f"{UTILS}_plan/preflight/waves.py", "import yaml"),
        (f"{UTILS}_plan/preflight/waves.py", "from ansible.module_utils.basic import AnsibleModule"),
        (f"{UTILS}_plan/preflight/waves.py", "from .snapshots import Pod"),
        (f"{UTILS}_plan/preflight/waves.py", f"import {OURS}plugins.module_utils._cluster.client"),
        (f"{UTILS}_plan/preflight/waves.py", f"from {OURS}plugins.module_utils import _cluster"),
        (f"{UTILS}_plan/preflight/waves.py", f"from {OURS}tests.unit import anything"),
        (f"{UTILS}_cluster/client.py", FROM_PLAN),
        (f"{UTILS}_cluster/client.py", "import kubernetes"),
        (
            f"{UTILS}_cluster/client.py",
            "try:\n    from kubernetes import client\nfinally: 0",
        ),
        (f"{UTILS}_run/drain/drain.py", FROM_EDGE),
        (f"{UTILS}_run/drain/drain.py", "from ansible.utils.display import Display"),
        (f"{UTILS}_edge/spec.py", FROM_CLUSTER),
        (f"{UTILS}_edge/spec.py", "from ansible.utils.display import Display"),
        ("plugins/modules/node_drain.py", FROM_RUN),
        ("plugins/modules/node_drain.py", f"from {OURS}plugins.module_utils._edge.drain import SPEC"),
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
        (f"{UTILS}_plan/preflight/waves.py", FROM_PLAN),
        (f"{UTILS}_plan/preflight/waves.py", "import json, re, datetime, dataclasses"),
        (f"{UTILS}_plan/preflight/waves.py", f"from {OURS}plugins.module_utils._plan.model import names"),
        (CONNECTION, "import kubernetes.client"),
        (f"{UTILS}_run/drain/drain.py", FROM_CLUSTER),
        (f"{UTILS}_edge/spec.py", FROM_PLAN),
        (f"{UTILS}_edge/spec.py", "from ansible.module_utils.basic import AnsibleModule"),
        ("plugins/modules/node_drain.py", FROM_EDGE),
        ("plugins/modules/node_drain.py", "from ansible.module_utils.basic import AnsibleModule"),
        ("plugins/plugin_utils/_base.py", "from ansible.utils.display import Display"),
        ("plugins/action/node_drain.py", f"from {OURS}plugins.plugin_utils import _in_process"),
        ("tests/e2e/witness/watch.py", f"from {OURS}tests.e2e.witness import api"),
        ("tests/unit/plan/test_waves.py", A_NAME),
    ],
)
def test_a_right_import_passes(path: str, line: str) -> None:
    assert faults(path, line) == []
