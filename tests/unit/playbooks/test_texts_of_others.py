# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a tenant, a kubelet or another run has written into objects, nothing of it steers what people read.

Every text that the API server stores unchecked is hostile in a simulated cluster, on which the modules are called. Then
all that leaves them is looked at: results, progress, the screen, the playbooks' messages, report, webhook and
Events.
"""

from __future__ import annotations

import importlib
import json
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubeops.node_maintenance.plugins.filter import maintain_summary
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import connection, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import printable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import (
    screen_waits,
    screen_words,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import arguments_event, run_files
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _progress
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.summed import asked
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

Raw = dict[str, t.Any]

FORGED = "Never dark. 1 node: 1 back in service."
EVIL = f"x\x1b[2J\r\n{FORGED}\r\x9b1A\u202e\u2028{FORGED}" + "y" * 50_000
OWNERS = [{"apiVersion": "example.com/v1", "kind": EVIL, "name": EVIL, "uid": "u", "controller": True}]
GANGS: tuple[dict[str, t.Any], ...] = (
    {"labels": {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-key": "g"}},
    {"annotations": {"gang.scheduling.koordinator.sh/name": EVIL}},
    {"annotations": {"kueue.x-k8s.io/pod-group-name": EVIL}},
)


def pod(name: str, node: str, *, owners: t.Sequence[Raw] = (), **meta: t.Any) -> Raw:
    """A running pod whose every unchecked text is hostile."""
    waiting = {"waiting": {"reason": EVIL, "message": EVIL}}
    conditions = [{"type": kind, "status": "False", "reason": EVIL, "message": EVIL} for kind in ("Ready", EVIL)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app": "web", **meta.get("labels", {})},
            "annotations": {EVIL: EVIL, **meta.get("annotations", {})},
            "ownerReferences": list(owners),
        },
        "spec": {"nodeName": node, **manifests.template("web")["spec"], "tolerations": [{"key": EVIL, "value": EVIL}]},
        "status": {
            "phase": "Running",
            "reason": EVIL,
            "message": EVIL,
            "conditions": conditions,
            "containerStatuses": [{"name": "c", "ready": False, "state": waiting}],
        },
    }


def record(run: str, node: str) -> str:
    plain = {"since": EVIL, "step": "cordoned", "node_uid": node, "lease": f"{names.NAMESPACE}/node-{node}"}
    prior = {"unschedulable": False, "conditions": [EVIL], "taints": [EVIL]}
    rest: Raw = {"added": [], "marks": {}, "prior": prior}
    return json.dumps({"v": 1, "run": run, "nonce": EVIL, "by": EVIL, "reason": EVIL, **plain, **rest})


def node(name: str, **annotations: str) -> Raw:
    raw = manifests.node(name)
    raw["metadata"]["annotations"] = {EVIL: EVIL, **annotations}
    raw["status"]["conditions"] += [{"type": "KernelDeadlock", "status": "True", "reason": EVIL, "message": EVIL}]
    return raw


def objects() -> list[Raw]:
    """Two nodes, of which one has a forged record, with pods of unknown owners, of gangs, and under odd budgets."""
    ours = {"namespace": names.NAMESPACE, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}
    stored = {
        "by": EVIL,
        "since": EVIL,
        "fingerprint": EVIL,
        "input": "{}",
        "plan": "[]",
        "finished": json.dumps([EVIL]),
    }
    guard = manifests.budget(f"{names.GUARD_PREFIX}x", "web", maxUnavailable=1)
    guard["metadata"] |= {"labels": ours["labels"], "annotations": {names.SERVES_NODES: json.dumps([EVIL])}}
    gangs = [pod(f"gang-{number}-{member}", "n1", **more) for number, more in enumerate(GANGS) for member in "ab"]
    daemon = manifests.daemon_set("kured", namespace="kube-system")
    daemon["metadata"]["annotations"] = {"weave.works/kured-node-lock": json.dumps({"nodeID": EVIL, "metadata": EVIL})}
    return [
        manifests.namespace("default"),
        node("n1"),
        node("n2", **{names.RECORD: record(EVIL, "n2")}),
        node("n3", **{names.RECORD: EVIL}),
        *gangs,
        pod("owned", "n1", owners=OWNERS),
        pod("other", "n2", owners=OWNERS),
        guard,
        manifests.budget("two", "web", maxUnavailable=0),
        daemon,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "run-1", **ours}, "data": stored},
        *(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, **ours, "annotations": {names.SURGE: EVIL, names.HEARTBEAT: EVIL}},
                "spec": {"holderIdentity": f"{EVIL}/{EVIL}", "leaseDurationSeconds": 5},
            }
            for name in ("node-n1", "node-n2", "run-1", "surge-x")
        ),
    ]


CALLS: list[tuple[str, Raw]] = [
    ("planning.arguments", {"nodes": ["n1", "n2", "n3"], "allow_interruption": True}),
    (
        "nodes.arguments_ready",
        {
            "nodes": ["n2", "n3"],
            "gates": ["ready", "daemonsets", "pressure", "conditions", "stable"],
            "timeout": "1s",
            "wait": True,
        },
    ),
    ("runs.arguments", {"state": "listed"}),
    ("runs.arguments", {"state": "undone", "parked": True}),
    ("nodes.arguments_cordon", {"nodes": ["n1", "n2", "n3"], "state": "cordoned", "run": "r1/aa", "reason": "test"}),
    ("surge.arguments", {"nodes": ["n1", "n2"], "run": "r1/aa", "timeout": "5s"}),
    ("drain.arguments", {"nodes": ["n1", "n2"], "run": "r1/aa", "force": True, "timeout": "30s"}),
    (
        "nodes.arguments_taint",
        {"nodes": ["n1", "n2"], "taints": [{"key": "a", "effect": "NoExecute"}], "allow_no_execute": True},
    ),
    ("nodes.arguments_cordon", {"nodes": ["n1", "n2"], "state": "uncordoned", "run": "r1/aa"}),
    ("runs.arguments", {"state": "listed"}),
]


class Said(t.NamedTuple):
    """What left a module."""

    result: Raw
    events: list[specs.Event]


def called(actor: Actor, spec: specs.ClusterModuleSpec, given: Raw) -> Said:
    """Call a module as a task does."""
    events: list[specs.Event] = []
    checked = ArgumentSpecValidator(spec.argument_spec, **spec.rules).validate(given)
    assert not checked.error_messages
    call = specs.Call(progress=events.append, diff=True)
    return Said(actor.run(lambda ctx: specs.run_call(spec, checked.validated_parameters, call)), events)


@pytest.fixture(scope="module")
def said() -> t.Iterator[tuple[World, Actor, list[Said]]]:
    with World(objects(), settle=False) as world, pytest.MonkeyPatch.context() as patch:
        me = world.process("me")
        patch.setattr(connection, "connect", lambda *_options, **_more: me.cluster())
        base = "ansible_collections.kubeops.node_maintenance.plugins.module_utils."
        yield world, me, [called(me, importlib.import_module(base + name).SPEC, given) for name, given in CALLS]


def texts(value: t.Any, *, apart: t.Collection[str] = ()) -> t.Iterator[str]:
    """All texts in plain data, keys too, but for what is below the keys ``apart``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, t.Mapping):
        for key, inner in value.items():
            yield from texts([key, *([] if key in apart else [inner])])
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner, apart=apart)


def harmless(found: t.Iterable[str], parts: int = 1) -> bool:
    """Whether each is one line without commands for a terminal, of a bounded length; it has so many ``parts``."""
    lines = list(found)
    assert lines
    for line in lines:
        assert line.isprintable(), ascii(line[:300])
        assert len(line) <= parts * (printable.LONGEST_OF_ALL + 100), ascii(line[:300])
        assert not line.startswith(FORGED)
    return True


Everything = tuple[World, Actor, list[Said]]


def test_the_calls_came_upon_it(said: Everything) -> None:
    _world, _me, found = said
    assert sum(json.dumps(each.result).count(FORGED) > 0 for each in found) >= 5
    assert "drained" in json.dumps(found[6].result) or found[6].result["msg"]


def test_results_and_progress(said: Everything) -> None:
    _world, _me, found = said
    for each in found:
        assert harmless(texts(each.result, apart=["diff", "invocation"]))
        for text in texts(each.result.get("diff") or ()):
            assert all(line.isprintable() for line in text.split("\n"))
    assert harmless(text for each in found for event in each.events for text in vars_of(event))


def vars_of(event: specs.Event) -> list[str]:
    return [getattr(event, name) for name in event.__dataclass_fields__] + [specs.line(event)]


def test_the_screen(said: Everything) -> None:
    _world, _me, found = said
    plan = found[0].result
    assert harmless(screen_words.plan_lines(plan), parts=2)
    for each in found:
        shown = screen_words.failure_lines(each.result, action="a", path="/p:1", most=20)
        assert harmless([*shown, *(line for pair in screen_words.troubles(each.result) for line in pair)])
        held = screen_waits.Waits()
        for event in each.events:
            line = _progress.Line.of(event)
            held.see(line.event, 0.0)
            assert harmless([line, *held.due(100.0, event.at)])


def test_the_messages_of_the_playbooks(said: Everything) -> None:
    _world, _me, found = said
    summary = maintain_summary.FilterModule().filters()["maintain_summary"]
    plan, listed = found[0].result, found[2].result
    wanted = {"window": "", "tasks": "", "reboot": False, **asked()}
    known = {"hosts": [], "wanted": wanted}
    assert harmless(texts(summary({"plan": plan}, "plan", {})), parts=2)
    assert harmless(texts(summary({"listed": listed}, "traces", {})), parts=4)
    assert harmless(texts(summary({"listed": listed, "plan": plan}, "start", known)), parts=40)


def test_report_webhook_and_events(said: Everything, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, me, found = said
    results = [each.result for each in found]
    written = run_files.write_report(results, str(tmp_path), check=False)
    assert harmless(written["summary"].split("\n"), parts=2)
    assert all(line.isprintable() for line in (tmp_path / "report.html").read_text(encoding="utf-8").split("\n"))
    assert harmless(texts(json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))))
    sent: list[Raw] = []

    def send(_http: object, body: Raw, _timeout: float) -> int:
        sent.append(body)
        return 200

    monkeypatch.setattr(arguments, "send", send)
    for run, shape in (("r1/aa", "json"), ("r2/aa", "slack")):
        webhook = {"url": "https://chat.example.com/x", "format": shape}
        given = {
            "moment": "failed",
            "results": results,
            "errors": [EVIL],
            "reason": EVIL,
            "run": run,
            "events": True,
        }
        assert harmless(
            texts(
                called(me, arguments_event.SPEC, given | {"webhook": webhook}).result,
                apart=["diff", "invocation", "announcement"],
            )
        )
    assert all(line.isprintable() for body in sent for text in texts(body) for line in text.split("\n"))
    assert len(sent) == 2
    events = list(world.store.of(kinds.NEW_EVENTS.resource).values())
    assert harmless(text for raw in events for text in texts([raw.get("note"), raw.get("reason")]))
