# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page, read by a parser as a browser would."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import page as pages
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import NONCE, TOKEN, Sample, at

VOID = {"meta", "br", "input", "link", "img"}
HOSTILE = "</title></script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}{% raw %}&amp;"


class Page(html.parser.HTMLParser):
    """Every tag with its attributes, all text, and whether tags are closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def count(self, tag: str, kind: str = "") -> int:
        return (
            sum(t == tag and kind in a.get("class", "").split() for t, a in self.tags)
            if kind
            else sum(t == tag for t, _a in self.tags)
        )

    def text(self, *tags: str) -> str:
        return " ".join(data for tag, data in self.texts if (tag in tags if tags else tag not in ("style", "script")))


def page(results: t.Iterable[t.Any], **more: t.Any) -> Page:
    return Page(pages.render(build_report(results, **more)))


def test_the_page_shows_every_part_of_a_run() -> None:
    found = page(Sample(fail_tasks=[1]).results)
    assert found.open == []
    assert found.text("h1") == "Never dark while watched (30 s of 5 min 58 s), but your tasks failed on 1 of 3 nodes"
    titles = found.text("h2")
    for title in (
        "To look at",
        "Nodes over time",
        "Ready endpoints",
        "refused",
        "protected",
        "Findings",
        "Pods",
        "kept",
    ):
        assert title in titles
    everything = found.text()
    for text in ("worker-03", "dpkg was interrupted", "PodDisruptionBudget billing/mail", "kubectl uncordon worker-02"):
        assert text in everything
    assert found.count("details", "node") == 3
    assert found.count("rect", "out") == 3
    assert found.count("rect", "refused") == 18
    assert "surged" in everything


def test_a_dark_service_heads_the_page_and_its_chart() -> None:
    found = page(Sample(nodes=1, pods=6, dark=True).results)
    assert found.text("h1") == "billing/api-1 was dark for 5.0 s"
    assert found.count("rect", "dark") == 1
    assert "0 ready endpoints for 5.0 s, 02:58:10 to 02:58:15" in found.text("title")


def test_the_page_needs_nothing_but_itself() -> None:
    found = page(Sample().results)
    for tag, attributes in found.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    style = found.text("style")
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme:dark" in style
    assert "@media print" in style


def test_only_our_own_script_may_run() -> None:
    found = page(Sample().results)
    policy = next(a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(found.text("script").encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_the_page_can_be_read_without_eyes() -> None:
    found = page(Sample().results)
    assert ("html", {"lang": "en"}) in found.tags
    for tag, attributes in found.tags:
        if tag == "svg" and attributes.get("role") == "img":
            assert attributes["aria-label"]
        if tag == "th":
            assert attributes["scope"] == "col"
        if tag == "section":
            assert ("h2", {"id": attributes["aria-labelledby"]}) in found.tags
    ids = [a["id"] for _tag, a in found.tags if "id" in a]
    assert len(ids) == len(set(ids))
    used = {a["href"][1:] for tag, a in found.tags if tag == "use"}
    assert used <= set(ids)


def hostile(value: t.Any) -> t.Any:
    """The same result with every text that is no key word replaced."""
    plain = {"at", "what", "outcome", "route", "severity", "node", "namespace", "uid"}
    if isinstance(value, dict):
        return {k: v if k in plain or k == "samples" else hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


def test_no_name_of_a_cluster_becomes_a_part_of_the_page() -> None:
    plain, found = page(Sample(nodes=2).results), page(hostile(Sample(nodes=2).results))
    assert found.open == []
    assert found.count("script") == plain.count("script") == 1
    assert found.count("img") == 0
    assert {a for _tag, attributes in found.tags for a in attributes} <= {
        a for _tag, attributes in plain.tags for a in attributes
    }
    assert HOSTILE in found.text("td", "b")
    assert "49" not in found.text("td", "b")


def test_no_secret_is_on_the_page() -> None:
    source = pages.render(build_report(Sample().results))
    assert NONCE not in source
    assert TOKEN not in source


@pytest.mark.parametrize(("nodes", "pods", "most"), [(1, 5, 40_000), (3, 14, 140_000), (100, 30, 4_500_000)])
def test_the_page_stays_small(nodes: int, pods: int, most: int) -> None:
    source = pages.render(build_report(Sample(nodes, pods, fail_tasks=[0]).results))
    assert len(source.encode()) < most
    found = Page(source)
    assert found.count("details", "node") == nodes
    assert "worker-01" in found.text("td")


def test_what_is_left_out_is_said_and_is_never_what_failed() -> None:
    results = Sample(nodes=2, pods=400).results
    blocked = {"kind": "PodDisruptionBudget", "namespace": "shop", "name": "x", "message": "full"}
    stuck = {"namespace": "shop", "name": "stuck-one", "route": "evict", "outcome": "not_moved", "blocked_by": blocked}
    results.append({"failed": True, "nodes": [{"name": "worker-02", "outcome": "timed_out", "pods": [stuck]}]})
    found = page(results)
    assert "shop/stuck-one" in found.text("td")
    assert "more pods had no trouble: see report.json." in found.text("p")
    assert sum("data-find" in attributes for _tag, attributes in found.tags) == 240


def dark_services(amount: int) -> list[dict[str, t.Any]]:
    """Services that lose their only endpoint at the last moment of the call."""
    samples = [[at(0), 1], [at(9), 0]]
    return [{"namespace": "shop", "name": f"web-{n}", "desired": 1, "samples": samples} for n in range(amount)]


def test_many_dark_services_do_not_hide_what_failed() -> None:
    node = {"name": "worker-02", "outcome": "timed_out", "message": "It did not end in time."}
    found = page([{"services": dark_services(200)}, {"failed": True, "nodes": [node]}])
    assert "It did not end in time." in found.text("li")
    assert "50 more Services: see report.json." in found.text("p")


def test_darkness_at_the_last_look_is_inside_the_picture() -> None:
    found = page([{"services": dark_services(1)}])
    (dark,) = [attributes for tag, attributes in found.tags if tag == "rect" and attributes["class"] == "dark"]
    assert float(dark["x"].rstrip("%")) + float(dark["width"].rstrip("%")) <= 100


def test_check_mode_shows_what_would_be_changed() -> None:
    result = {"actions": ["Cordon node n1", "Evict Pod shop/web-1 from node n1"], "nodes": []}
    found = page([result], check=True)
    assert found.text("h1") == "Check mode: nothing was changed"
    assert found.text("li").splitlines() == ["Cordon node n1 Evict Pod shop/web-1 from node n1"]
    assert "What would be changed" in found.text("h2")
    planned = page(Sample(nodes=1).results[:1], check=True)
    assert "Pods to move" in planned.text("dt")
    assert planned.text("dd").split() == ["1", "14", "11", "s"]


def test_a_blocker_is_told_once() -> None:
    finding = {"code": "bare_pod", "severity": "blocker", "object": "Pod a/b", "message": "No owner.", "remedy": "Go."}
    warned = {**finding, "severity": "warning", "message": "It goes."}
    pod = {"namespace": "a", "name": "b", "node": "n1", "route": "refuse", "reason": "No owner.", "remedy": "Go."}
    planned = {"feasible": False, "findings": [finding, warned], "pods": [pod], "waves": [["n1"]]}
    found = page([planned])
    assert found.text("li").count("No owner.") == 1
    assert "What was refused, and why" not in found.text("h2")
    assert (found.text("td").count("No owner."), found.text("td").count("It goes.")) == (0, 1)


def test_a_plan_says_how_each_pod_would_move_and_draws_nothing() -> None:
    moving = {"namespace": "a", "name": "c", "node": "n1", "route": "evict", "reason": "It has 3 replicas."}
    foreseen = {"fits": True, "target": "n2", "seconds": 4.5}
    nowhere = {**moving, "name": "d", "fits": False, "target": None, "seconds": 75}
    stuck = {"namespace": "a", "name": "b", "node": "n1", "route": "refuse", "code": "bare_pod"}
    pods = [{**moving, **foreseen}, stuck, nowhere]
    found = page([{"feasible": False, "findings": [], "pods": pods, "waves": [["n1"]]}])
    assert "wave 1, 2 pods to move, 1 refused" in found.text("span")
    told = "evict n2 4.5 s It has 3 replicas. a/d evict nowhere 1 min 15 s It has 3 replicas."
    assert found.text("td", "code").startswith(f"a/b refuse bare_pod , see above a/c {told}")
    assert (found.count("svg"), found.count("p", "legend")) == (0, 0)


def test_what_a_plan_refuses_is_not_left_out() -> None:
    pods = [{"namespace": "a", "name": f"p{n:03}", "node": "n1", "route": "evict"} for n in range(200)]
    stuck = {"namespace": "a", "name": "stuck", "node": "n1", "route": "refuse"}
    found = page([{"feasible": False, "findings": [], "pods": [*pods, stuck], "waves": [["n1"]]}])
    assert "a/stuck" in found.text("td")
    assert found.count("tr") == 1 + 120


def test_a_plan_of_several_waves_says_why_nodes_wait() -> None:
    waits = [{"node": "n2", "reason": "wave 1 has n1 of the same zone"}, {"node": "n3", "reason": "wave 1 is full"}]
    planned = {"feasible": True, "waves": [["n1"], ["n2", "n3"]], "waits": waits}
    found = page([planned])
    assert "Waves" in found.text("h2").split()
    assert found.text("td") == "1 n1 2 n2, n3 n2: wave 1 has n1 of the same zone; n3: wave 1 is full"
    assert "Waves" not in page([{**planned, "waves": [["n1"]]}]).text("h2").split()
    went = page(Sample(nodes=2).results)
    assert "Waves" not in went.text("h2").split()


def test_an_empty_run_makes_a_page_too() -> None:
    assert page([]).text("h1") == "Nothing to do"


def test_equal_runs_make_equal_pages() -> None:
    assert pages.render(build_report(Sample().results)) == pages.render(build_report(Sample().results))


def test_without_jinja_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MISSING", "No module named 'jinja2'")
    with pytest.raises(pages.NoTemplates, match="write the report on the controller"):
        pages.render(build_report([]))


def test_what_would_unblock_a_plan_is_on_its_page() -> None:
    finding = {"code": "stateful_single", "severity": "blocker", "object": "StatefulSet a/db", "message": "One pod."}
    steps = [{"code": "allow_interruption", "text": "Allow it.", "command": "kubectl annotate <db>"}]
    steps.append({"code": "set_option", "text": "For all.", "command": ""})
    advice = [{"codes": ["stateful_single"], "objects": ["StatefulSet a/db"], "changes": steps}]
    planned = {"feasible": False, "findings": [finding], "pods": [], "waves": [["n1"]], "advice": advice}
    found = page([planned])
    assert found.open == []
    assert "What would unblock it" in found.text("h2")
    assert "kubectl annotate <db>" in found.text("code")
    assert "stateful_single: StatefulSet a/db" in found.text("b")
    for said in ("Allow it.", "For all."):
        assert said in " ".join(found.text("li").split())
    assert found.count("section", "advice") == 1
    assert page([{**planned, "advice": []}]).count("section", "advice") == 0


def test_advice_of_an_earlier_plan_is_not_repeated() -> None:
    old = {"feasible": False, "advice": [{"changes": [{"text": "Old."}]}], "waves": [["n1"]]}
    assert "Old." in page([old]).text("li")
    assert "Old." not in page([old, {"feasible": True, "advice": [], "waves": [["n1"]]}]).text("li")
