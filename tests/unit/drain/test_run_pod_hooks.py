# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hooks of a drain's pods, turn by turn: who is asked and held back, what is recorded, and who is told what."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.pod_selectors import PodSelector
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import DrainOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import Bench

ENDING: Raw = {"deleting": "2026-01-01T00:00:00Z"}


def rule(
    hook: hook_definitions.Hook, action: hook_definitions.Action = "http", app: str = "web", name: str = ""
) -> hook_definitions.Rule:
    http = hook_definitions.Http(f"http://{{name}}.example/{name or hook}") if action == "http" else None
    tasks = "/tasks.yml" if action == "tasks" else ""
    selects = PodSelector(selectors.parse(f"app={app}"))
    return hook_definitions.Rule(hook, name or action, action, 60.0, selects, http=http, tasks=tasks)


BEFORE, AFTER = rule("before_pod"), rule("after_pod")
FILE_BEFORE, FILE_AFTER = rule("before_pod", "tasks"), rule("after_pod", "tasks")


class Hooked(Bench):
    """A drain with hooks, one turn after the other; `calls` are those that were made, by rule and pod."""

    def __init__(self, *rules: hook_definitions.Rule, status: int = 200, **options: t.Any) -> None:
        before = tuple(one for one in rules if one.hook == "before_pod")
        after = tuple(one for one in rules if one.hook == "after_pod")
        super().__init__(hooks=hook_definitions.Rules(before, after), send=self.send, **options)
        self.calls: list[tuple[str, str]] = []
        self.told: list[t.Mapping[str, t.Any]] = []
        self.status = status
        self.pods: dict[str, Raw] = {}
        self.hooks = self.work.hooks

    def send(self, http: hook_definitions.Http, variables: t.Mapping[str, t.Any], timeout: float) -> int:
        del http, timeout
        self.calls.append((variables["rule"], variables["name"]))
        self.told.append(variables)
        return self.status

    def pod(self, name: str, state: t.Any = "waiting", route: t.Any = "evict", **changes: t.Any) -> PodDrain:
        """A pod that is there, with a move."""
        on = changes.pop("on", "n1")
        self.pods[name] = objects.pod(name, on, **changes.get("pod", {}))
        return self.move(name, state, route, on=on, **changes)

    def gone(self, name: str) -> None:
        del self.pods[name]
        for node_drain in self.node_drains.values():
            if move := node_drain.moves.get(f"uid-{name}"):
                move.state = "gone"

    def turn(self, count: int = 1) -> list[str]:
        """Turns of the hooks, with a second for what they begin; the nodes whose record could not be written."""
        found: list[str] = []
        for _turn in range(count):
            seen = objects.snapshot(pods=[*self.pods.values()])
            told = self.do(lambda s=seen: self.hooks.step(s))  # type: ignore[misc]
            found += [f"{node_drain.name} {why.outcome.value}" for node_drain, why in told]
            self.world.machine.run_for(1.0)
        return found

    def recorded(self, node: str = "n1") -> dict[str, str]:
        """The states in the node's record, by hook and pod."""
        seen = objects.snapshot(nodes=[self.world.get(kinds.NODES, node)]).nodes[node]
        record = t.cast("node_records.Record", node_records.record_of(seen))
        return {f"{key.partition('/')[0]} {entry['name']}": entry["state"] for key, entry in record.hooks.items()}

    def record(self, found: hook_definitions.Rule, name: str, state: hook_definitions.State) -> None:
        """As an earlier call left it."""
        call = hook_definitions.Call(found, "n1", "shop", name, f"uid-{name}")
        raw = self.world.get(kinds.NODES, "n1")
        known = t.cast("node_records.Record", node_records.record_of(objects.snapshot(nodes=[raw]).nodes["n1"]))
        text = cordon.hooked(known, {call.key: call.entry(state)}).dump()
        self.world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: text}}})
        self.node_drain.node = objects.snapshot(nodes=[self.world.get(kinds.NODES, "n1")]).nodes["n1"]
        self.node_drain.read_record(self.ctx)

    def sentences(self) -> list[str]:
        return [change.sentence for change in self.ctx.changes]


def said(move: PodDrain) -> str:
    """What the move waits for."""
    return (move.blocked_by or {}).get("message", "")


Make = t.Callable[..., Hooked]


@pytest.fixture
def hooked() -> t.Iterator[Make]:
    made: list[Hooked] = []

    def make(*rules: hook_definitions.Rule, **options: t.Any) -> Hooked:
        made.append(Hooked(*rules, **options))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


# -- who is asked, and who is held ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "closed", "held"),
    [
        pytest.param({}, False, "the hooks of Pod shop/p0", id="nobody knows yet what it has"),
        pytest.param(ENDING, False, "", id="it is ending already"),
        pytest.param({"on": "n9"}, False, "", id="it is on a node that is not drained"),
        pytest.param({}, True, "", id="its node was given up"),
    ],
)
def test_a_pod_is_held_until_its_hooks_are_known(hooked: Make, changes: Raw, closed: bool, held: str) -> None:
    one = hooked(BEFORE)
    one.node_drain.outcome = DrainOutcome.FAILED if closed else None
    assert one.hooks.waits_for(Pod.of(objects.pod("p0", **changes))) == held
    assert hooked().hooks.waits_for(Pod.of(objects.pod("p0", **changes))) == "", "there are none"


@pytest.mark.parametrize(
    ("state", "held", "asked"),
    [("waiting", False, True), ("waiting", True, False), ("leaving", False, False), ("leaving", True, False)],
)
def test_a_pod_is_asked_when_it_waits_and_it_is_its_turn(hooked: Make, state: t.Any, held: bool, asked: bool) -> None:
    one = hooked(BEFORE)
    one.pod("p0", state, waits_for_turn=held)
    one.turn()
    assert one.calls == ([("http", "p0")] if asked else [])


def test_a_pod_that_was_to_stay_is_asked_once_it_is_to_leave_after_all(hooked: Make) -> None:
    one = hooked(BEFORE)
    move = one.pod("p0", route="wait")
    one.turn()
    move.plan = PodPlan(move.pod, "evict", "replicas", "", None)
    one.turn()
    assert one.calls == [("http", "p0")]


def test_the_hooks_of_a_pod_follow_each_other_and_each_is_called_once(hooked: Make) -> None:
    first, second = rule("before_pod", name="first"), rule("before_pod", name="second")
    one = hooked(first, second)
    one.pod("p0")
    one.turn()
    assert one.calls == [("first", "p0")]
    one.turn(3)
    assert one.calls == [("first", "p0"), ("second", "p0")]
    assert sum(event.message.endswith(": called") for event in one.me.told) == 2


def test_a_hook_that_is_under_way_is_not_begun_again(hooked: Make) -> None:
    one = hooked(BEFORE, rule("before_pod", name="second"), status=503)
    one.pod("p0")
    one.turn(3)
    assert sum(event.message.endswith(": called") for event in one.me.told) == 1


def test_while_its_hook_is_under_way_a_pod_says_so_and_then_what_else_blocks_it(hooked: Make) -> None:
    one = hooked(BEFORE, status=503)
    waiting, leaving = one.pod("p0"), one.pod("p1")
    one.turn()
    leaving.state, leaving.blocked_by = "leaving", None
    one.turn()
    assert said(waiting).startswith("Pod shop/p0: hook before_pod, rule http (")
    assert leaving.blocked_by is None
    one.status = 200
    one.turn(8)
    assert said(waiting) == ""
    waiting.block(Ref("PodDisruptionBudget", "web", "shop"), "It allows nothing.")
    one.turn()
    assert said(waiting) == "It allows nothing."


def test_a_pod_whose_hook_failed_fails_with_that_and_one_that_left_meanwhile_does_not(hooked: Make) -> None:
    one = hooked(BEFORE, status=503)
    waiting, leaving = one.pod("p0"), one.pod("p1")
    one.turn()
    leaving.state = "leaving"
    one.status = 404
    one.turn(8)
    assert (waiting.state, waiting.outcome) == ("failed", "hook_failed")
    assert "404" in waiting.reason
    assert (leaving.state, leaving.outcome) == ("leaving", None)


def test_a_node_whose_record_is_unknown_or_lost_keeps_no_other_from_its_hooks(hooked: Make) -> None:
    one = hooked(BEFORE)
    for number, name in enumerate(("n1", "n2")):
        one.pod(f"p{number}", on=name)
    one.node_drain.record = None
    one.turn()
    assert one.calls == [("http", "p1")]
    one = hooked(BEFORE)
    one.pod("p0")
    one.world.cordon("n1", False)
    assert one.turn() == ["n1 uncordoned"]
    for number, name in enumerate(("n1", "n2"), 1):
        one.pod(f"p{number}", on=name)
    assert one.turn() == []
    assert one.calls == [("http", "p2")]


def test_the_hooks_of_all_nodes_are_called_in_the_same_turn(hooked: Make) -> None:
    one = hooked(BEFORE)
    for number, name in enumerate(("n1", "n2")):
        one.pod(f"p{number}", on=name)
    one.turn()
    assert sorted(one.calls) == [("http", "p0"), ("http", "p1")]


# -- the record ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "state"), [(200, "done"), (404, "failed")])
def test_how_each_hook_ended_is_in_the_record_and_among_the_changes(hooked: Make, status: int, state: str) -> None:
    one = hooked(BEFORE, AFTER, status=status)
    one.pod("p0")
    one.turn()
    assert one.recorded() == {"before_pod p0": "begun", "after_pod p0": "due"}
    one.turn()
    assert one.recorded() == {"before_pod p0": state, "after_pod p0": "due"}
    one.gone("p0")
    one.turn(2)
    assert one.recorded() == {"before_pod p0": state, "after_pod p0": state}
    before, after = (hook_definitions.Call(found, "n1").what for found in (BEFORE, AFTER))
    assert one.sentences() == [
        f"Call {before} for Pod shop/p0",
        f"Record it as {state} for Pod shop/p0",
        f"Call {after} for Pod shop/p0",
        f"Record it as {state} for Pod shop/p0",
    ]


def test_what_is_due_after_the_pods_is_recorded_before_they_leave(hooked: Make) -> None:
    one = hooked(AFTER)
    one.pod("p0")
    one.pod("p1", "leaving")
    one.turn()
    assert one.recorded() == {"after_pod p0": "due"}
    assert one.sentences() == ["Record the hooks that are due on node n1"]


def test_what_was_told_by_an_earlier_call_is_not_due_again(hooked: Make) -> None:
    one = hooked(AFTER)
    one.record(AFTER, "p0", "done")
    one.pod("p0")
    one.turn()
    one.gone("p0")
    one.turn()
    assert (one.recorded(), one.calls) == ({"after_pod p0": "done"}, [])


@pytest.mark.parametrize("closed", [False, True])
def test_a_node_that_was_given_back_is_told_once_and_only_if_it_was_still_in_work(hooked: Make, closed: bool) -> None:
    one = hooked(AFTER)
    one.pod("p0")
    assert one.turn() == []
    one.world.cordon("n1", False)
    one.node_drain.outcome = DrainOutcome.FAILED if closed else None
    one.gone("p0")
    assert [one.turn(), one.turn()] == [[] if closed else ["n1 uncordoned"], []]
    assert (one.hooks.missing("n1"), one.hooks.idle) == ([], True), "nobody can be told any more"


# -- after the pods ------------------------------------------------------------------------------------


def test_each_pod_that_has_gone_is_told_of_once_and_waited_for(hooked: Make) -> None:
    one = hooked(AFTER)
    for name in ("p0", "p1"):
        one.pod(name)
    one.turn()
    for count, name in enumerate(("p0", "p1"), 1):
        one.gone(name)
        one.status = 503
        one.turn()
        assert one.hooks.missing("n1") == [f"Pod shop/{name}: {hook_definitions.Call(AFTER, 'n1').what}"]
        one.status = 200
        one.turn(4)
        assert one.hooks.missing("n1") == []
        assert {name for _rule, name in one.calls} == {"p0", "p1"} if count == 2 else {"p0"}
    assert {told["moved"] for told in one.told} == {True}


def test_a_hook_that_takes_long_delays_none_of_other_pods(hooked: Make) -> None:
    one = hooked(AFTER, status=503)
    for name in ("p0", "p1"):
        one.pod(name)
    one.turn()
    for name in ("p0", "p1"):
        one.gone(name)
        one.turn()
    assert {name for _rule, name in one.calls} == {"p0", "p1"}


def test_the_last_word_on_pods_of_a_closed_node_is_waited_for(hooked: Make) -> None:
    one = hooked(AFTER)
    one.pod("p0")
    one.turn()
    assert one.hooks.idle, "the node is in work"
    one.node_drain.outcome = DrainOutcome.FAILED
    one.gone("p0")
    assert not one.hooks.idle, "nobody has looked at it since"
    one.status = 503
    one.turn()
    assert not one.hooks.idle, "its hook is under way"
    one.status = 200
    one.turn(5)
    assert one.hooks.idle
    assert hooked().hooks.idle


def given_up(hooked: Make, *after: hook_definitions.Rule) -> Hooked:
    """A node that is given up because of p0; what the others were asked is known from earlier calls.

    p1 was about to be asked, p2 and p3 said no or yes, p4 was not asked; p5 is gone, p6 has been for long.
    """
    one = hooked(rule("before_pod", "tasks", "other"), BEFORE, *after)
    for name, state in (("p1", "begun"), ("p2", "failed"), ("p3", "done")):
        one.record(BEFORE, name, t.cast("hook_definitions.State", state))
    one.record(after[0], "p6", "due")
    one.pod("p0", pod={"labels": {"app": "other"}})
    for number in range(1, 6):
        one.pod(f"p{number}")
    one.turn()
    one.gone("p5")
    one.node_drain.outcome = DrainOutcome.FAILED
    one.turn(2)
    return one


STAYS = {"p1": False, "p2": False, "p3": False, "p5": True, "p6": True}


def test_pods_that_were_asked_are_told_that_they_stay_and_those_that_were_not_hear_nothing(hooked: Make) -> None:
    one = given_up(hooked, AFTER)
    assert {told["name"]: told["moved"] for told in one.told} == STAYS
    assert len(one.told) == len(STAYS)


def test_task_files_are_left_to_run_for_the_same_pods(hooked: Make) -> None:
    one = given_up(hooked, FILE_AFTER)
    shown = [told for told in one.hooks.to_dicts(one.node_drain) if told["hook"] == "after_pod"]
    assert {told["name"]: told["moved"] for told in shown} == STAYS
    assert {told["state"] for told in shown} == {"due"}
    assert one.calls == []


# -- check mode ----------------------------------------------------------------------------------------


def test_check_mode_tells_of_what_is_left_to_call_and_predicts_the_record(hooked: Make) -> None:
    one = hooked(BEFORE, AFTER, FILE_AFTER, check=True)
    one.record(BEFORE, "p0", "done")
    for name in ("p0", "p1"):
        one.pod(name)
    one.hooks.predict(one.node_drain)
    assert sorted((event.name, event.message.split()[1]) for event in one.me.told) == [
        ("p0", "after_pod,"),
        ("p0", "after_pod,"),
        ("p1", "after_pod,"),
        ("p1", "after_pod,"),
        ("p1", "before_pod,"),
    ]
    assert all(event.message.endswith(": would be called") for event in one.me.told)
    assert one.sentences() == ["Call the hooks"]
    shown = one.hooks.to_dicts(one.node_drain)
    assert {told["moved"] for told in shown if told["hook"] == "after_pod"} == {True}
    assert sorted((told["hook"], told["name"], told["state"]) for told in shown if told["action"] == "http") == [
        ("after_pod", "p0", "due"),
        ("after_pod", "p1", "due"),
        ("before_pod", "p0", "done"),
        ("before_pod", "p1", "due"),
    ]
    assert len([told for told in shown if told["action"] == "tasks"]) == 2, "each once"
    assert one.recorded() == {"before_pod p0": "done"}


def test_check_mode_says_nothing_of_a_node_without_hooks(hooked: Make) -> None:
    one = hooked(check=True)
    one.pod("p0")
    one.hooks.predict(one.node_drain)
    assert (one.sentences(), one.me.told, one.hooks.to_dicts(one.node_drain)) == ([], [], [])


def test_a_node_that_never_had_a_record_has_no_task_files_to_run(hooked: Make) -> None:
    one = hooked(FILE_AFTER)
    one.pod("p0")
    one.node_drain.record = None
    assert one.hooks.to_dicts(one.node_drain) == []
