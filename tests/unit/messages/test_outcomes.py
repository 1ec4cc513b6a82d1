# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The closed lists of outcomes: each is documented as it is, and whatever becomes or asks for an outcome is on one."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions, unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import Outcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model

HERE = Path(__file__).parents[3]
UTILS = HERE / "plugins/module_utils"

DOCUMENTED: dict[str, tuple[type[Outcome], ...]] = {
    "descheduler_config: outcome": (outcomes.ConfigOutcome,),
    "maintenance_access: objects outcome": (outcomes.AccessOutcome,),
    "maintenance_access: kubeconfig outcome": (outcomes.AccessOutcome,),
    "maintenance_event: events outcome": (outcomes.EventOutcome,),
    "maintenance_plan: nodes outcome": (outcomes.PlanOutcome,),
    "maintenance_state: nodes outcome": (outcomes.StateOutcome,),
    "maintenance_wave: nodes outcome": (outcomes.PlaybookOutcome,),
    "node_cordon: nodes outcome": (outcomes.CordonOutcome,),
    "node_drain: nodes outcome": (outcomes.DrainOutcome,),
    "node_drain: nodes pods outcome": (outcomes.PodOutcome,),
    "node_ready: nodes outcome": (outcomes.GateOutcome,),
    "node_taint: nodes outcome": (outcomes.TaintOutcome,),
    "maintenance_hooks: nodes outcome": (outcomes.HookOutcome,),
    "pdb_guard: nodes outcome": (outcomes.GuardOutcome,),
    "pdb_guard: workloads outcome": (outcomes.WorkloadOutcome,),
    "pod_migration_job: jobs outcome": (outcomes.JobOutcome,),
}
"""What a module returns as an outcome, by the way to it in its documentation."""
KINDS: list[type[Outcome]] = [kind for kinds in DOCUMENTED.values() for kind in kinds]
MEMBERS = [pytest.param(member, id=f"{kind.__name__}.{member.name}") for kind in KINDS for member in kind]


def returned(module: str) -> dict[str, t.Any]:
    """The RETURN block of a module."""
    tree = ast.parse((HERE / f"plugins/modules/{module}.py").read_text())
    block = next(x for x in tree.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "RETURN")
    found: dict[str, t.Any] = yaml.safe_load(ast.literal_eval(block.value))
    return found


def places(fields: dict[str, t.Any], *above: str) -> t.Iterator[tuple[str, list[str]]]:
    """Every field named outcome, with its description."""
    for name, field in fields.items():
        if name == "outcome":
            yield " ".join((*above, name)), field["description"]
        yield from places(field.get("contains", {}), *above, name)


def as_documented(kinds: tuple[type[Outcome], ...]) -> list[str]:
    """The lines that the documentation has to have."""
    return [f"V({one}){', a failure' if one.failed else ''} - {one.meaning}." for kind in kinds for one in kind]


def test_every_outcome_that_a_module_returns_is_known_here() -> None:
    modules = [path.stem for path in (HERE / "plugins/modules").glob("*.py")]
    assert {f"{module}: {way}" for module in modules for way, _told in places(returned(module))} == set(DOCUMENTED)


def test_a_pod_has_moved_if_it_is_not_on_its_node_any_more() -> None:
    moved = {"evicted", "deleted", "surged", "replaced", "migrated", "let_go", "gone", "already_gone"}
    assert {one.value for one in outcomes.PodOutcome if one.moved} == moved
    assert not any(one.moved and one.failed for one in outcomes.PodOutcome)


@pytest.mark.parametrize(
    ("outcome", "word", "failed"),
    [
        (None, "", False),
        (outcomes.DrainOutcome.DRAINED, "drained", False),
        (outcomes.DrainOutcome.FAILED, "failed", True),
    ],
)
def test_an_entry_says_its_outcome_and_whether_that_is_a_failure(
    outcome: outcomes.Outcome | None, word: str, failed: bool
) -> None:
    assert outcomes.entry("n1", outcome, "why") == {"name": "n1", "outcome": word, "failed": failed, "message": "why"}


@pytest.mark.parametrize("way", DOCUMENTED)
def test_the_documentation_has_the_list_as_it_is(way: str) -> None:
    module, _colon, field = way.partition(": ")
    told = dict(places(returned(module)))[field]
    assert [line for line in told if "V(" in line] == as_documented(DOCUMENTED[way])


def test_the_guide_has_the_outcomes_of_a_report() -> None:
    guide = (HERE / "docs/docsite/rst/guide_report.rst").read_text()
    told = guide[guide.index("A node's ``outcome`` is") :].partition(". ")[0]
    assert re.findall(r"``(\w+)``", told)[1:] == list(t.get_args(model.Outcome))


def test_the_runbook_says_how_to_go_on_after_each_failure_of_a_node() -> None:
    guide = (HERE / "docs/docsite/rst/guide_runbook.rst").read_text()
    table = guide.partition("What to do with each failure\n")[2].partition(".. _ansible_collections")[0]
    failures = {one.value for one in (*outcomes.CordonOutcome, *outcomes.DrainOutcome) if one.failed}
    assert failures <= set(re.findall(r"``(\w+)``", "\n".join(re.findall(r"^   \* - (.*)", table, re.MULTILINE))))


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_is_its_word_however_it_is_written(member: Outcome) -> None:
    assert member.meaning
    assert {str(member), f"{member}", f"{member:s}"} == {member.value}
    assert not isinstance(outcomes.word_of(member), Outcome)
    assert type(member)(member.value) is type(member).read(member.value) is member
    assert copy.deepcopy(member) is pickle.loads(pickle.dumps(member)) is member


def test_no_pod_has_both_failed_and_left() -> None:
    assert not [pod for pod in outcomes.PodOutcome if pod.failed and pod.moved]


def calls(file: str, name: str) -> t.Iterator[list[ast.expr]]:
    """The arguments of every call of that name."""
    for node in ast.walk(ast.parse((UTILS / file).read_text())):
        if isinstance(node, ast.Call) and name in (getattr(node.func, "attr", ""), getattr(node.func, "id", "")):
            yield node.args


def test_every_pod_that_is_skipped_has_an_outcome_of_that_name() -> None:
    told = [[ast.unparse(arg) for arg in args[:2]] for args in calls("drain/disposition_rules.py", "plan")]
    codes = {ast.literal_eval(code) for route, code in told if route == "'skip'"}
    assert codes >= {"mirror", "not_selected"}
    for code in codes | {dispositions.TOLERATES, unreachable.FENCED}:
        assert not outcomes.PodOutcome(code).failed


def test_whatever_blocks_a_surge_is_a_failure_of_its_workload() -> None:
    codes = {ast.literal_eval(args[0]) for args in calls("surge/steps.py", "Reason")} - {"workload_gone"}
    assert "surge_refused" in codes
    assert all(outcomes.WorkloadOutcome(code).failed for code in codes)


def test_playbooks_and_roles_ask_for_words_that_there_are() -> None:
    texts = [path.read_text() for top in ("playbooks", "roles") for path in (HERE / top).rglob("*.yml")]
    asked = [found for text in texts for found in re.findall(r"attr\('outcome', '(?:eq|in)', (\[.*?\]|'.*?')\)", text)]
    words = {word for found in asked for word in re.findall(r"\w+", found)}
    assert words >= {"gone", "unreachable"}
    assert words <= {outcome.value for kind in outcomes.OF_NODES for outcome in kind}


def test_a_summary_tells_every_word_of_its_own_list_and_asks_for_those_of_others() -> None:
    texts = [path.read_text() for package in ("playbooks", "waves") for path in (UTILS / package).glob("*.py")]
    used = {found for text in texts for found in re.findall(r"outcomes\.(\w+)\.([A-Z_]+)", text)}
    told = {member for kind, member in used if kind == "PlaybookOutcome"}
    assert told == {member.name for member in outcomes.PlaybookOutcome}
    assert used >= {("CordonOutcome", "GONE"), ("CordonOutcome", "ADOPTED_BY")}
    assert not [text for text in texts if re.search(r"""outcome"[\])]* (?:==|!=|in|not in) ["'(]""", text)]
