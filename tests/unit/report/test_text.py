# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a report says numbers, times and endings, at their edges."""

from __future__ import annotations

import typing as t
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, text
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report

EMPTY = build_report([])
SECOND = 1741921103.12
NODES, LINES, SPANS, WIDTH = 20, 8, 5, 100
"""What a terminal shows at most: rows of nodes, things to look at, dark spans of a Service, characters in a line."""


def totals(**changes: t.Any) -> model.Totals:
    return replace(EMPTY.totals, **changes)


def report(of: dict[str, t.Any] | None = None, **changes: t.Any) -> model.Report:
    """`of` are totals."""
    return replace(EMPTY, totals=totals(**(of or {})), **changes)


def line(name: str, outcome: model.Outcome = "back", **changes: t.Any) -> model.NodeLine:
    return replace(model.NodeLine(name, 1, outcome, "", (), (), 0, 0, ()), **changes)


def lane(name: str, **changes: t.Any) -> model.PodLane:
    """A pod of `web` that a plan surges."""
    known = {field.name: None for field in fields(model.PodLane)}
    words = dict.fromkeys(("uid", "code", "outcome", "reason", "blocked_by", "rule", "remedy", "target"), "")
    place = {"namespace": "shop", "name": name, "node": "n1", "owner": "Deployment shop/web", "route": "surge"}
    flags = {"moved": False, "failed": False, "refused": 0, "spans": (), "marks": ()}
    return model.PodLane(**{**known, **words, **place, **flags, **changes})


def service(name: str = "web", *dark: model.Span, **changes: t.Any) -> model.ServiceLine:
    return replace(model.ServiceLine("shop", name, 2, (), True, 1, 2, tuple(dark), 0.0), **changes)


def advice(*objects: str, **texts: str) -> model.Advice:
    """Steps by their sentences, each with its command."""
    steps = (model.Step("code", "", "", "", said.replace("_", " "), command) for said, command in texts.items())
    return model.Advice(("bare_pod",), objects, tuple(steps))


def dark(start: float, seconds: float, still: bool = False) -> model.Span:
    return model.Span("dark", start, start + seconds, still)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "-"),
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.95, "10 s"),
        (41.4, "41 s"),
        (59.4, "59 s"),
        (59.5, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (4020, "1 h 07 min"),
        (4049, "1 h 07 min"),
        (7199, "2 h 00 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_a_length_of_time_for_people(seconds: float | None, words: str) -> None:
    assert text.duration(seconds) == words


@given(st.floats(0, 10**6))
def test_a_length_of_time_is_told_to_one_part_in_two_of_its_smallest_unit(seconds: float) -> None:
    units = {"s": 1.0, "min": 60.0, "h": 3600.0}
    words = text.duration(seconds).split()
    told = sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    smallest = 0.1 if seconds < 9.95 else units[words[-1]]
    assert abs(told - seconds) <= smallest / 2 + 0.5 + 1e-6


@pytest.mark.parametrize(("number", "words"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (1234, "1,234 pods")])
def test_a_number_with_its_noun(number: int, words: str) -> None:
    assert text.count(number, "pod") == words


def test_instants_are_in_utc() -> None:
    assert text.rfc3339(SECOND) == "2025-03-14T02:58:23.120Z"
    assert (text.clock(SECOND), text.day(SECOND)) == ("02:58:23", "2025-03-14")
    assert text.rfc3339(None) is None


@pytest.mark.parametrize(
    ("started", "ended", "words"),
    [
        (SECOND, SECOND + 60, "2025-03-14 02:58:23 to 02:59:23 UTC"),
        (SECOND, SECOND + 86400, "2025-03-14 02:58:23 to 2025-03-15 02:58:23 UTC"),
        (None, SECOND, ""),
        (SECOND, None, ""),
    ],
)
def test_when_a_run_was(started: float | None, ended: float | None, words: str) -> None:
    assert text.when(report(started=started, ended=ended)) == words


LANE = model.PodLane(
    "shop", "p", "", "n", "", "", "", "", "", None, None, True, False, 0, "", "", "", None, "", None, (), ()
)
WAITING = replace(LANE, moved=False, route="evict")
PROBLEM = model.Failure("run", "It failed.")
OUT = (model.Span("cordoned", 0, 1), model.Span("out", 1, 2))


@pytest.mark.parametrize(
    ("of", "changes", "words"),
    [
        ({}, {"verdict": "never_dark"}, "Never dark"),
        ({"nodes": 3, "nodes_failed": 1}, {"verdict": "never_dark"}, "Never dark, but 1 of 3 nodes failed"),
        ({}, {"verdict": "never_dark", "problems": (PROBLEM,)}, "Never dark, but the run failed"),
        (
            {"nodes": 3, "nodes_failed": 1},
            {"verdict": "never_dark", "nodes": (line("a"), line("b", "failed", tasks_failed=True))},
            "Never dark, but your tasks failed on 1 of 3 nodes",
        ),
        (
            {"nodes": 3, "nodes_failed": 2},
            {"verdict": "never_dark", "nodes": (line("a", "failed"), line("b", "failed", tasks_failed=True))},
            "Never dark, but 2 of 3 nodes failed",
        ),
        ({"out_seconds": 100.0, "watched_seconds": 90.1}, {"verdict": "never_dark"}, "Never dark"),
        ({"out_seconds": 1000.0, "watched_seconds": 900.1}, {"verdict": "never_dark"}, "Never dark"),
        (
            {"out_seconds": 100.0, "watched_seconds": 89.0},
            {"verdict": "never_dark"},
            "Never dark while watched (1 min 29 s of 1 min 40 s)",
        ),
        ({"pods_moved": 0}, {"verdict": "no_pod_moved"}, "No pod had to move"),
        ({"pods_moved": 3}, {"verdict": "no_pod_moved"}, "No pod was left to move"),
        ({}, {"verdict": "failed"}, "Failed before the first pod moved"),
        ({"nodes": 1, "nodes_failed": 1}, {"verdict": "failed"}, "Failed before the first pod moved"),
        (
            {"nodes": 1, "nodes_failed": 1},
            {"verdict": "failed", "nodes": (line("a", "failed", spans=OUT, tasks_failed=True),)},
            "Your tasks failed on 1 of 1 node",
        ),
        (
            {"nodes": 1, "nodes_failed": 1},
            {"verdict": "failed", "nodes": (line("a", "failed", spans=OUT),)},
            "1 of 1 node failed",
        ),
        ({}, {"verdict": "dark", "services": (service("web", dark(0, 4)),)}, "shop/web was dark for 4.0 s"),
        (
            {},
            {"verdict": "dark", "services": (service("a", dark(0, 4)), service("b", dark(0, 3), dark(9, 3)))},
            "2 Services went dark (shop/b longest, 6.0 s)",
        ),
        ({}, {"verdict": "check"}, "Check mode: nothing was changed"),
        ({"pods_moved": 1}, {"verdict": "not_watched"}, "1 pod moved, no Service was watched"),
        ({}, {"verdict": "stopped"}, "Stopped before the first pod: 0 blockers"),
        ({}, {"verdict": "planned", "pods": (WAITING, replace(WAITING, route="skip"))}, "Planned: 1 pod to move"),
    ],
)
def test_the_verdict_in_one_sentence(of: dict[str, t.Any], changes: dict[str, t.Any], words: str) -> None:
    assert text.headline(report(of, **changes)) == words


@pytest.mark.parametrize(
    ("of", "changes", "words"),
    [
        ({}, {}, "No node took part."),
        ({"nodes": 2, "waves": 1}, {"check": True}, "2 nodes in 1 wave planned."),
        (
            {"nodes": 3, "pods_moved": 5, "seconds": 41.0},
            {"nodes": (line("a"), line("b", "failed"), line("c"))},
            "3 nodes: 2 back in service, 1 failed; 5 pods moved in 41 s.",
        ),
        ({"nodes": 1}, {"nodes": (line("a", "parked"),)}, "1 node: 1 out of service, as asked; 0 pods moved."),
        (
            {"nodes": 1, "pods_moved": 2},
            {"nodes": (line("a", pods_moved=None),), "earlier": model.Earlier(None, (), 2, 1.0, 1.0, whole=False)},
            "1 node: 1 back in service; at least 2 pods moved.",
        ),
        (
            {"nodes": 1},
            {"nodes": (line("a", pods_moved=None),)},
            "1 node: 1 back in service; what was moved before it was interrupted is not known.",
        ),
        (
            {"nodes": 1, "pods_moved": 2},
            {"nodes": (line("a"),), "earlier": model.Earlier(None, (), 2, 1.0, 1.0, whole=False)},
            "1 node: 1 back in service; 2 pods moved.",
        ),
    ],
)
def test_how_it_ended_in_one_sentence(of: dict[str, t.Any], changes: dict[str, t.Any], words: str) -> None:
    assert text.subline(report(of, **changes)) == words


def fact(name: str, found: model.Report) -> str:
    """What a line of the summary says, empty if it is left out."""
    lines = [one.split(maxsplit=1) for one in text.summary_text(found).splitlines() if one.startswith("  ")]
    return next((words[1] for words in lines if words and words[0] == name), "")


@pytest.mark.parametrize(
    ("of", "changes", "words"),
    [
        ({"pods_moved": 3}, {"pods": ()}, ""),
        ({"pods_moved": 3}, {"pods": (LANE,)}, "3 moved"),
        ({"pods_moved": 3, "pods_surged": 1}, {"pods": (LANE,)}, "3 moved (1 surged)"),
        (
            {"pods_moved": 3, "pods_surged": 1, "pods_replaced": 2},
            {"pods": (LANE,)},
            "3 moved (2 replaced first, 1 surged)",
        ),
        ({"pods_moved": 3, "pods_left": 2, "pods_failed": 1}, {"pods": (LANE,)}, "3 moved, 2 left in place, 1 failed"),
        ({"pods_moved": 3, "requests": 0}, {"pods": (LANE,)}, "3 moved, 0 requests"),
        (
            {"pods_left": 1},
            {"pods": (WAITING, WAITING, replace(WAITING, route="skip")), "check": True},
            "2 to move, 1 left in place",
        ),
        (
            {},
            {"pods": (WAITING, replace(WAITING, route="refuse")), "check": True},
            "1 to move, 1 blocked, 0 left in place",
        ),
    ],
)
def test_what_became_of_the_pods(of: dict[str, t.Any], changes: dict[str, t.Any], words: str) -> None:
    assert fact("pods", report(of, **changes)) == words


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({}, "other"),
        ({"context": "prod", "server": "https://one:6443"}, "prod (https://one:6443)"),
        ({"context": "in-cluster", "server": "https://10.96.0.1"}, "in-cluster (https://10.96.0.1)"),
        ({"context": "", "server": "https://one:6443"}, "https://one:6443"),
    ],
)
def test_the_summary_names_the_cluster(cluster: dict[str, str], words: str) -> None:
    found = build_report([{"msg": "no cluster"}, {"cluster": cluster}, {"cluster": {"context": "other"}}])
    assert fact("cluster", found) == words


@pytest.mark.parametrize(
    ("of", "changes", "words"),
    [
        ({"out_seconds": 30.0, "watched_seconds": 20.0}, {}, ""),
        ({"out_seconds": 300.0, "watched_seconds": 0.0}, {}, ""),
        ({"out_seconds": 300.0, "watched_seconds": 20.0}, {"check": True}, ""),
        ({"out_seconds": 300.0, "watched_seconds": 20.0}, {}, "4 min 40 s of 5 min 00 s"),
        (
            {"out_seconds": 300.0, "watched_seconds": 20.0},
            {"nodes": tuple(line(n, spans=(model.Span("out", at, at + 90.0),)) for n, at in (("a", 0.0), ("b", 60.0)))},
            "4 min 40 s of 5 min 00 s; your tasks took 2 min 30 s",
        ),
    ],
)
def test_for_how_long_nobody_looked(of: dict[str, t.Any], changes: dict[str, t.Any], words: str) -> None:
    assert fact("unwatched", report(of, **changes)) == words


def refusal(wait: float | None = None, *stuck: str) -> model.Refusal:
    return model.Refusal("PodDisruptionBudget shop/web", "", "", 1, None, None, (), stuck, wait)


@pytest.mark.parametrize(
    ("refusals", "words"),
    [
        ((), ""),
        ((refusal(),), "7 evictions by 1 rule, all accepted later"),
        ((refusal(3.0), refusal(41.0)), "7 evictions by 2 rules, all accepted later, held back 41 s at most"),
        ((refusal(None, "shop/a"), refusal()), "7 evictions by 2 rules, 1 pod still there"),
    ],
)
def test_what_was_refused(refusals: tuple[model.Refusal, ...], words: str) -> None:
    assert fact("refused", report({"refusals": 7}, refusals=refusals)) == words


WATCHED = (model.Span("watched", 0, 10),)


@pytest.mark.parametrize(
    ("of", "changes", "words"),
    [
        ({}, {}, ""),
        ({"watched_seconds": 41.0}, {"watched": WATCHED}, "0 changed in 41 s of watching, none went dark"),
        (
            {"watched_seconds": 41.0, "services_watched": 8},
            {"watched": WATCHED, "services": (service("a"), service("b", lowest=0, desired=4), service("c", lowest=2))},
            "2 of 8 changed in 41 s of watching, none went dark; lowest: shop/b at 0 of 4",
        ),
        (
            {"watched_seconds": 41.0, "services_dark": 1},
            {"watched": WATCHED, "services": (service("a", dark(0, 4)),)},
            "1 changed in 41 s of watching, 1 went dark",
        ),
    ],
)
def test_what_the_services_saw(of: dict[str, t.Any], changes: dict[str, t.Any], words: str) -> None:
    assert fact("services", report(of, **changes)) == words


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ({}, ""),
        ({"forecast_seconds": 41.0}, "41 s from cordon to drained"),
        ({"forecast_seconds": 41.0, "forecast_range": (14.0, 41.0)}, "14 to 41 s from cordon to drained"),
        (
            {"forecast_seconds": 41.0, "forecast_range": (9.5, 62.0), "moving_seconds": 12.0},
            "9.5 s to 1 min 02 s from cordon to drained, took 12 s",
        ),
        ({"forecast_seconds": 0.0, "moving_seconds": 0.0}, "0.0 s from cordon to drained, took 0.0 s"),
    ],
)
def test_what_was_foreseen(of: dict[str, t.Any], words: str) -> None:
    assert fact("forecast", report(of)) == words


def table(found: model.Report) -> list[str]:
    return [one for one in text.summary_text(found).splitlines() if one.startswith(("  n", "  …"))]


@pytest.mark.parametrize("count", [0, 1, NODES, NODES + 1])
def test_nodes_are_listed_while_they_are_few(count: int) -> None:
    shown = table(report(nodes=tuple(line(f"n{index}") for index in range(count))))
    assert len(shown) == (count + 1 if 0 < count <= NODES else 0)
    assert not table(report(nodes=(line("n1"),), check=True))


@pytest.mark.parametrize("failed", [1, NODES, NODES + 2])
def test_of_many_nodes_those_in_trouble_are_listed(failed: int) -> None:
    good = NODES + 1
    nodes = [line(f"n{index}", "failed" if index < failed else "back") for index in range(good + failed)]
    shown = min(failed, NODES)
    found = table(report(nodes=tuple(nodes)))
    hidden = good + failed - shown
    assert len(found) == shown + 2
    assert found[-1] == f"  … and {hidden} more nodes"


def test_columns_are_as_wide_as_the_longest_name() -> None:
    nodes = (line("n1", pods_moved=7), line("n-with-a-long-name", wave=0, spans=(model.Span("out", 0, 61),)))
    head, first, second = table(report(nodes=nodes))
    assert head.index("wave") == 2 + len("n-with-a-long-name") + 2
    assert len(head) == len(first) == len(second)
    assert second.split() == ["n-with-a-long-name", "-", "back", "1", "min", "01", "s", "0"]
    assert first.split() == ["n1", "1", "back", "-", "7"]


def looked_at(found: model.Report) -> list[str]:
    return text.summary_text(found).partition("To look at:")[2].splitlines()[1:]


@pytest.mark.parametrize("count", [LINES - 1, LINES, LINES + 1])
def test_what_to_look_at_is_cut_at_its_limit(count: int) -> None:
    found = looked_at(report(problems=tuple(model.Failure(f"node n{n}", "It failed.") for n in range(count))))
    more = max(count - LINES, 0)
    assert sum(one.startswith("    node") for one in found) == min(count, LINES)
    assert found[-1] == (f"    … and {more} more, all in the report" if more else "      It failed.")


def test_a_message_is_wrapped_to_the_width_of_a_terminal() -> None:
    found = looked_at(report(problems=(model.Failure("run", "word " * 60), model.Failure("run", ""))))
    widths = [len(one) for one in found if one.startswith("      ")]
    assert max(widths) <= WIDTH - 2
    assert max(widths) > WIDTH - 2 - len(" word ")


@pytest.mark.parametrize("count", [1, SPANS, SPANS + 1])
def test_the_first_dark_spans_of_a_service_are_told(count: int) -> None:
    spans = [dark(SECOND + 60 * n, 2) for n in range(count)]
    ((_place, told),) = text.to_look(report(services=(service("web", *spans),)))["Service"]
    assert told.count("UTC for 2.0 s") == min(count, SPANS)
    assert ("and later" in told) is (count > SPANS)
    assert "still dark" not in told
    ((_place, told),) = text.to_look(report(services=(service("web", dark(0, 1, still=True)),)))["Service"]
    assert "still dark" in told


def test_the_data_have_instants_as_texts_and_what_is_computed() -> None:
    found = text.as_json(
        report(
            started=SECOND,
            nodes=(line("n1", spans=(model.Span("out", SECOND, SECOND + 1.23456),), left=(("daemonset", 2),)),),
            services=(service("web", watches=(model.Watch(((SECOND, 1),), SECOND + 2),)),),
        )
    )
    (shown,), (watched,) = found["nodes"], found["services"]
    assert (found["version"], found["started"], found["ended"]) == (1, "2025-03-14T02:58:23.120Z", None)
    assert (shown["seconds"], shown["left"], shown["spans"][0]["seconds"]) == (1.235, {"daemonset": 2}, 1.235)
    assert watched["watches"][0]["samples"] == [["2025-03-14T02:58:23.120Z", 1]]
    assert (watched["dark_seconds"], found["failed"], found["headline"]) == (0, False, "Nothing to do")


def advised(*found: model.Advice, verdict: model.Verdict = "stopped") -> list[str]:
    blocker = model.Finding("bare_pod", "No owner.", "Move it.", "blocker", "Pod a/b")
    findings = (blocker,) if verdict == "stopped" else ()
    lines = text.summary_text(report(verdict=verdict, findings=findings, advice=found)).splitlines()
    starts = [index for index, one in enumerate(lines) if one.startswith("  What would")]
    return lines[starts[0] :] if starts else []


def test_each_advice_is_an_item_with_the_command_in_a_line_of_its_own() -> None:
    command = "kubectl patch pdb web -n shop --type=merge -p " + "x" * 100
    told = advised(advice("Pod a/b", Relax_it=command, Scale_it=""), advice("Pod a/c", Say_so="-e maintain_force=true"))
    assert told == [
        "  What would unblock it:",
        "    bare_pod: Pod a/b",
        "      - Relax it",
        f"          {command}",
        "      - Scale it",
        "    bare_pod: Pod a/c",
        "      - Say so",
        "          -e maintain_force=true",
    ]


@pytest.mark.parametrize(("objects", "steps", "shown"), [(1, 3, 3), (1, 5, 3), (2, 3, 2), (500, 500, 2)])
def test_an_advice_is_short_however_many_objects_it_is_for(objects: int, steps: int, shown: int) -> None:
    texts = {f"Do_{number}": f"-e maintain_x={number}" for number in range(steps)}
    told = advised(advice(*(f"Pod a/p{number}" for number in range(objects)), **texts))
    assert sum(one.startswith("      - Do ") for one in told) == shown
    assert len(told) <= 3 + 2 * shown + 1
    assert (f"{steps - shown:,} more change" in told[-1]) is (steps > shown)


@pytest.mark.parametrize(
    ("outcomes", "left_out"),
    [(("blocked", "planned"), ("n0",)), (("blocked", "blocked"), ()), (("planned", "planned"), ())],
)
def test_nodes_can_be_left_out_where_others_go_on(
    outcomes: tuple[model.Outcome, ...], left_out: tuple[str, ...]
) -> None:
    nodes = tuple(line(f"n{number}", outcome) for number, outcome in enumerate(outcomes))
    found = report(verdict="stopped", nodes=nodes)
    assert found.skippable == left_out
    assert ("maintain_on_blocked=skip" in text.summary_text(found)) is bool(left_out)
    assert report(verdict="planned", nodes=nodes).skippable == ()


@pytest.mark.parametrize(
    ("more", "told"), [(-1, []), (0, []), (1, ["    … and 21 more pods"]), (2, ["    … and 22 more pods"])]
)
def test_the_first_pods_to_move_are_listed_and_the_others_counted(more: int, told: list[str]) -> None:
    pods = tuple(lane(f"web-{number}") for number in range(text.PODS_SHOWN + more))
    lines = text.summary_text(report(verdict="planned", pods=pods)).splitlines()
    assert [one for one in lines if "more pod" in one] == told
    shown = text.PODS_SHOWN + more if more < 1 else text.PODS_OF_MANY
    assert sum(one.strip().endswith("(Deployment shop/web)") for one in lines) == shown


def test_pods_that_have_finished_are_not_to_move() -> None:
    pods = (lane("web"), lane("job", code="finished", route="evict"), lane("old", outcome="cleared", route="evict"))
    shown = text.summary_text(report(verdict="planned", pods=pods))
    assert "1 to move" in shown
    assert "shop/job" not in shown
    assert "shop/old" not in shown


def test_advice_is_told_only_before_the_run() -> None:
    assert advised(advice("Pod a/b", Say_so=""), verdict="never_dark") == []
    assert advised() == []
