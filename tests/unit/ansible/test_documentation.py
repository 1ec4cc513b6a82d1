# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib
import runpy
import types
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs as entry
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.specs import ModuleSpec

MODULES = (
    "cluster_copy",
    "descheduler_config",
    "maintenance_access",
    "maintenance_event",
    "maintenance_hooks",
    "maintenance_plan",
    "maintenance_report",
    "maintenance_state",
    "maintenance_wave",
    "node_cordon",
    "node_drain",
    "node_ready",
    "node_taint",
    "pdb_guard",
    "pod_migration_job",
)
PLUGINS = "ansible_collections.kubeops.node_maintenance.plugins"


def documented(module: Any) -> dict[str, Any]:
    """A module's options with those of its fragments."""
    doc = yaml.safe_load(module.DOCUMENTATION)
    found: dict[str, Any] = dict(doc.get("options") or {})
    for name in doc["extends_documentation_fragment"]:
        file, _dot, part = name.removeprefix("kubeops.node_maintenance.").partition(".")
        fragment = importlib.import_module(f"{PLUGINS}.doc_fragments.{file}").ModuleDocFragment
        text = getattr(fragment, part.upper() if part else "DOCUMENTATION")
        found.update(yaml.safe_load(text).get("options") or {})
    return found


def spec_of(module: types.ModuleType) -> ModuleSpec:
    """What the module runs."""
    with pytest.MonkeyPatch.context() as patch:
        run: list[ModuleSpec] = []
        patch.setattr(entry, "run_module", run.append)
        runpy.run_path(str(module.__file__), run_name="__main__")
    (spec,) = run
    return spec


def compared(options: dict[str, Any]) -> dict[str, Any]:
    """What documentation and argument spec both say."""
    return {
        name: {
            "type": option.get("type", "str"),
            "elements": option.get("elements"),
            "required": option.get("required", False),
            "default": option.get("default"),
            "choices": option.get("choices"),
            "aliases": option.get("aliases", []),
            "options": compared(option.get("options") or option.get("suboptions") or {}),
        }
        for name, option in options.items()
    }


@pytest.mark.parametrize("name", MODULES)
def test_the_documentation_is_the_argument_spec(name: str) -> None:
    module = importlib.import_module(f"{PLUGINS}.modules.{name}")
    assert compared(documented(module)) == compared(spec_of(module).argument_spec)


@pytest.mark.parametrize("name", MODULES)
def test_both_faces_are_one(name: str) -> None:
    module = importlib.import_module(f"{PLUGINS}.modules.{name}")
    action = importlib.import_module(f"{PLUGINS}.action.{name}")
    assert action.ActionModule.spec is spec_of(module)
    assert spec_of(module).name == name


@pytest.mark.parametrize("name", MODULES)
def test_secrets_are_marked(name: str) -> None:
    spec = spec_of(importlib.import_module(f"{PLUGINS}.modules.{name}")).argument_spec
    if "api_key" in spec:
        assert spec["api_key"]["no_log"]
        assert spec["password"]["no_log"]
        assert spec["proxy_headers"]["options"]["basic_auth"]["no_log"]


@pytest.mark.parametrize("name", [name for name in MODULES if name != "maintenance_report"])
def test_the_engine_takes_what_the_module_offers(name: str) -> None:
    """Every option reaches the engine's own options, none is invented."""
    spec: Any = spec_of(importlib.import_module(f"{PLUGINS}.modules.{name}"))
    given = {name: option.get("default") for name, option in spec.options.items()}
    if name == "maintenance_wave":
        given["state"] = "out"
    given["nodes"] = ["a"]
    given["moment"] = "planned"
    given["config"] = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}
    seen: list[Any] = []

    class Stop(Exception):
        pass

    class Context:
        """Enough to see the engine begin; everything else is for the engine's own tests."""

        def __getattr__(self, attribute: str) -> Any:
            seen.append(attribute)
            raise Stop

    with pytest.raises(Stop):
        spec.engine(Context(), spec.prepare(spec.converted(given)))
    assert seen


def test_the_action_group_is_the_modules() -> None:
    from pathlib import Path

    runtime = Path(__file__).parents[3] / "meta" / "runtime.yml"
    groups = yaml.safe_load(runtime.read_text())["action_groups"]
    assert sorted(groups["node_maintenance"]) == sorted(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_no_result_has_what_ansible_takes_for_something_else(name: str) -> None:
    """A host whose result has `unreachable` is lost to the play, one with `skipped` counts as skipped."""
    module = importlib.import_module(f"{PLUGINS}.modules.{name}")
    found = set(yaml.safe_load(module.RETURN) or {})
    assert not found & {"unreachable", "skipped", "rc", "results", "ansible_facts", "exception", "invocation"}
