# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation promises closed lists of codes; they are read from the code here and compared."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    dispositions,
    released,
    replacement,
    unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

HERE = Path(__file__).parents[3]
UTILS = HERE / "plugins/module_utils"
GUIDE = (HERE / "docs/docsite/rst/guide_plan.rst").read_text()
SAYING = (
    "drain/unreachable.py",
    "drain/devices.py",
    "drain/eviction_requests.py",
    "drain/other_runs.py",
    "drain/disposition_rules.py",
    "drain/disposition_rules.py",
    "surge/eligibility.py",
    "planning/newcomers.py",
    "nodes/gate_checks.py",
    "nodes/lookup.py",
    "planning/forecast_findings.py",
    "planning/neighbours.py",
    "planning/preflight.py",
    "planning/wave_times.py",
    "planning/service_findings.py",
    "planning/preflight.py",
    "planning/neighbours.py",
    "access/permissions.py",
    "planning/drafts.py",
    "planning/service_findings.py",
    "planning/run_trials.py",
    "planning/run_plan.py",
    "koordinator/run_installed.py",
    "koordinator/run_installed.py",
    "koordinator/installations.py",
)
# calls that name a code -> the argument that is the code
NAMING = {
    "plan": 1,
    "_unless_allowed": 1,
    "_evictable": 1,
    "Finding": 0,
    "Reason": 0,
    "_finding": 0,
    "_blocker": 0,
    "of_node": 1,
}


def said(files: t.Iterable[str] = SAYING, naming: t.Mapping[str, int] = NAMING) -> set[str]:
    """Every code that the sources hand to a plan or a finding as a word."""
    found = set[str]()
    for file in files:
        for call in ast.walk(ast.parse((UTILS / file).read_text())):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            place = naming.get(name)
            if place is not None and len(call.args) > place and isinstance(call.args[place], ast.Constant):
                found.add(str(t.cast("ast.Constant", call.args[place]).value))
    return found


def documented() -> set[str]:
    return set(re.findall(r"^   \* - ``(\w+)``$", GUIDE, re.MULTILINE))


def test_every_code_is_documented_and_no_other() -> None:
    # The verdicts that a rule passes on as they are, and what stops the whole call.
    passed_on = {
        "unhealthy_blocked",
        "operator_budget",
        "bad_surge",
        dispositions.TOLERATES,
        unreachable.FENCED,
        devices.NOWHERE,
        replacement.FIRST,
        replacement.NOT_REPLACED,
        released.CODE,
        "no_job",
    }
    assert documented() == said() | passed_on


def test_what_has_to_be_asked_for_is_off() -> None:
    default = drain_policy.DrainPolicy()
    on = [field.name for field in dataclasses.fields(default) if getattr(default, field.name) is True]
    assert on == ["ignore_daemonsets"]
    assert default.operator_budget_wait == 600


PAGES = HERE / "docs/docsite/rst"
ELSEWHERE = {
    # Codes of these packages are told by their own modules, and documented there.
    "koordinator": [
        "docs/docsite/rst/koordinator_jobs.rst",
        "docs/docsite/rst/guide_troubleshooting.rst",
        "plugins/modules/pod_migration_job.py",
    ],
    "descheduler": ["docs/docsite/rst/descheduler_rules.rst", "plugins/modules/descheduler_config.py"],
}


# Why a pod gets no job, and that a surge has nothing to do any more: others show the message alone.
UNSHOWN = {"eviction_policy", "mode", "object_limiter", "workload_gone"}


def told_by(wing: str) -> set[str]:
    """Every code that the sources of a package hand to a reason as a word."""
    files = [file for file in (UTILS / wing).glob("*.py") if not file.name.startswith("arguments")]
    return said((str(file.relative_to(UTILS)) for file in files), {**NAMING, "CallAborted": 0})


def wings() -> set[str]:
    return {path.name for path in UTILS.iterdir() if path.is_dir()} - {"ansible", "playbooks"}


def test_the_page_of_all_codes_has_every_code_of_a_finding() -> None:
    page = set(re.findall(r"^``(\w+)``$", (PAGES / "guide_troubleshooting.rst").read_text(), re.MULTILINE))
    # pdb_guard makes findings of the outcomes of workloads that failed.
    failures = {each.value for each in outcomes.WorkloadOutcome if each.failed}
    told = failures.union(*(told_by(wing) for wing in wings() - set(ELSEWHERE))) - UNSHOWN
    assert told - page == set()


@pytest.mark.parametrize("wing", ELSEWHERE)
def test_codes_of_other_modules_are_in_their_documentation(wing: str) -> None:
    text = "\n".join((HERE / path).read_text() for path in ELSEWHERE[wing])
    assert {code for code in told_by(wing) if f"``{code}``" not in text and f"V({code})" not in text} == set()
