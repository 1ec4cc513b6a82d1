# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of hooks as users write them, and their HTTP calls, sent to a server on the loopback."""

from __future__ import annotations

import dataclasses
import http.server
import json
import threading
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments as hooks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions as model
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks.run_hook_calls import NoAnswerError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

URL = {"url": "http://{ip}:8080/drain?token=s3cret"}


def rules(value: t.Any, hook: model.Hook = "before_pod") -> tuple[model.Rule, ...]:
    return hooks.read(f"maintain_{hook}", value, hook)


def fault(value: t.Any, hook: model.Hook = "before_pod") -> str:
    with pytest.raises(option_values.BadOption) as caught:
        rules(value, hook)
    return str(caught.value)


def plan(**more: t.Any) -> drain_policy.PodPlan:
    raw = objects.pod("db-0", owner=objects.owned("ReplicaSet", "db-1"), **more)
    raw["metadata"]["labels"] = {"app": "db"}
    (found,) = objects.snapshot(pods=[raw]).pods
    return drain_policy.PodPlan(found, "evict", "", "", Ref("Deployment", "db", found.namespace))


@pytest.mark.parametrize(
    ("hook", "rule", "said"),
    [
        ("before_pod", "app=web", "a list of rules"),
        ("before_pod", [{"pods": "app=web"}], "exactly one of tasks, http, annotation"),
        ("after_pod", [{"pods": "app=web"}], "exactly one of tasks, http."),
        ("before_pod", [{"pods": "a=b", "tasks": "x", "http": URL}], "['tasks', 'http'] cannot be used"),
        ("before_pod", [{"tasks": "x.yml"}], "pods or namespaces or owners"),
        ("before_node", [{"tasks": "x.yml"}], "nodes, which says what the rule is for"),
        ("before_pod", [{"pods": "a=b", "annotation": True, "then": 1}], "maintain_before_pod[0].then: 1"),
        ("after_pod", [{"pods": "a=b", "annotation": True}], "maintain_after_pod[0].annotation"),
        ("before_node", [{"nodes": "a=b", "namespaces": ["x"], "tasks": "x"}], "maintain_before_node[0].namespaces"),
        ("before_pod", [{"pods": "a=b", "annotation": "yes"}], "annotation: 'yes'"),
        ("before_pod", [{"pods": "a in b", "annotation": True}], "a label selector such as"),
        ("before_pod", [{"owners": "Stateful Set", "annotation": True}], "a text such as StatefulSet"),
        ("before_pod", [{"pods": "a=b", "annotation": True, "deadline": "soon"}], "[0].deadline: 'soon'"),
        ("before_pod", [{"pods": "a=b", "annotation": True, "deadline": 0}], "more than 0 seconds"),
        ("before_pod", [{"pods": "a=b", "http": {}}], "exactly one of"),
        ("before_pod", [{"pods": "a=b", "http": "http://x"}], "a mapping such as"),
        ("before_pod", [{"pods": "a=b", "http": {"url": "queue:8080/x"}}], "a URL such as"),
        ("before_pod", [{"pods": "a=b", "http": {"url": "http://x:y/"}}], "a URL such as"),
        ("before_pod", [{"pods": "a=b", "http": {"url": "http://{pod}/"}}], "one of {namespace}, {name}"),
        ("after_pod", [{"pods": "a=b", "http": {"url": "http://{ip}/"}}], "'{ip}' cannot be used"),
        ("before_node", [{"nodes": "a=b", "http": {"url": "http://x/{name}"}}], "one of {node}, {again}"),
        ("before_pod", [{"pods": "a=b", "http": {**URL, "method": "BREW"}}], "GET, HEAD, POST"),
        ("before_pod", [{"pods": "a=b", "http": {**URL, "status": ["ok"]}}], "statuses of HTTP"),
        ("before_pod", [{"pods": "a=b", "http": {**URL, "headers": {"X": "a\nb"}}}], "each of one line"),
        ("before_pod", [{"pods": "a=b", "http": {**URL, "body": "x"}}], "[0].http.body"),
    ],
)
def test_a_bad_rule_is_named_with_what_would_be_right(hook: model.Hook, rule: t.Any, said: str) -> None:
    assert said in fault(rule, hook)


def test_every_fault_of_every_rule_is_named_and_no_header() -> None:
    bad = [{"pods": "a=b"}, {"pods": "a=b", "http": {"url": "x", "headers": {"Authorization": "s3\ncret"}}}]
    message = fault(bad)
    assert "maintain_before_pod[0]:" in message
    assert "maintain_before_pod[1].http.url:" in message
    assert "maintain_before_pod[1].http.headers:" in message
    assert "cret" not in message


def test_what_is_not_set_has_its_default() -> None:
    (rule,) = rules({"owners": "Deployment/db", "http": {**URL, "headers": {"X-Node": "{node}"}}})
    assert (rule.name, rule.deadline, rule.action) == ("before_pod[0]", 300.0, "http")
    assert rule.http == model.Http(URL["url"], "POST", (("X-Node", "{node}"),), (200, 201, 204))
    assert rules(None) == rules([]) == ()


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({"pods": "app=db"}, True),
        ({"pods": "app=web"}, False),
        ({"owners": "Deployment"}, True),
        ({"owners": "Deployment/db"}, True),
        ({"owners": "ReplicaSet/db-1"}, True),
        ({"owners": "Deployment/web"}, False),
        ({"owners": "StatefulSet"}, False),
        ({"namespaces": ["sh*", "other"]}, True),
        ({"namespaces": ["other"]}, False),
        ({"pods": "app=db", "namespaces": ["other"]}, False),
    ],
)
def test_all_that_a_rule_says_has_to_match(rule: dict[str, t.Any], matches: bool) -> None:
    (found,) = rules([{**rule, "annotation": True}])
    assert found.for_pod(plan()) == matches


@pytest.mark.parametrize(
    ("more", "asked"), [({}, True), ({"phase": "Pending"}, False), ({"phase": "Succeeded"}, False)]
)
def test_only_a_pod_that_runs_and_is_moved_is_asked(more: dict[str, t.Any], asked: bool) -> None:
    found = rules([{"pods": "app=db", "annotation": True}])
    assert bool(model.calls_for(found, plan(**more))) == asked
    assert not model.calls_for(found, drain_policy.PodPlan(plan().pod, "wait", "", "", None))


def test_an_edited_rule_is_another_one_but_its_name_deadline_and_headers_may_change() -> None:
    base = {"pods": "app=db", "http": {**URL, "headers": {"A": "1"}}, "name": "one"}
    (first,) = rules(base)
    same = [{**base, "name": "two"}, {**base, "deadline": "1h"}, {**base, "http": {**URL, "headers": {"A": "2"}}}]
    other = [{**base, "pods": "app=x"}, {**base, "namespaces": ["x"]}, {**base, "http": {"url": "http://x"}}]
    assert {rules(one)[0].key for one in same} == {first.key}
    assert len({first.key, *(rules(one)[0].key for one in other)}) == 4


def test_variables_fill_url_and_headers() -> None:
    (rule,) = rules([{"pods": "a", "http": {"url": "http://{ip}/{name}?{again}", "headers": {"X-Pod": "{ip}"}}}])
    variables = {"ip": "fd00::1", "name": "db-0", "again": True}
    assert rule.http
    filled = model.filled(rule.http, variables)
    assert (filled.url, filled.headers) == ("http://[fd00::1]/db-0?true", (("X-Pod", "fd00::1"),))
    assert model.Http("https://me:pw@host:1/path?token=x#y").shown() == "https://host:1/path"


def test_a_record_without_hooks_is_as_it_was_and_one_with_them_is_read_back() -> None:
    record = node_records.Record("r", "n", "me", "", "now", "cordoned", "u", "ns/node-n1", {})
    assert "hooks" not in record.dump()
    node = objects.node("n1")
    with_hooks = dataclasses.replace(record, hooks={"k": {"state": "due"}})
    node["metadata"]["annotations"] = {"maintenance.kubeops.io/record": with_hooks.dump()}
    (found,) = objects.snapshot(nodes=[node]).nodes.values()
    assert node_records.record_of(found) == with_hooks


def test_the_result_of_a_call_shows_no_rule() -> None:
    arguments = {"nodes": ["n1"], "before_pod": [{"pods": "x", "http": {"headers": {"A": "s3cret"}}}], "host": "h"}
    result = specs.run_call(drain.SPEC, arguments, specs.Call())
    assert "url" in result["msg"]
    assert "s3cret" not in json.dumps(result)


# -- on the wire ---------------------------------------------------------------------------------------


class Server:
    """An HTTP server on the loopback that answers with one status and keeps what it got."""

    def __init__(self, status: int) -> None:
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.got.append((self.command, self.path, dict(self.headers), body))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            do_GET = do_POST = _any  # noqa: N815

            def log_message(self, format: str, *args: t.Any) -> None:
                del format, args

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("status", [200, 302, 404, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_call_is_sent_and_its_status_is_the_answer(status: int, method: str) -> None:
    server = Server(status)
    try:
        call = model.Http(f"{server.url}/drain", method, (("Authorization", "Bearer x"),))
        assert hooks.send(call, {"name": "db-0", "again": True}, 5.0) == status
    finally:
        server.close()
    ((verb, path, headers, body),) = server.got
    assert (verb, path, headers["Authorization"]) == (method, "/drain", "Bearer x")
    assert headers["X-Maintenance-Again"] == "true"
    assert body == (b'{"name": "db-0", "again": true}' if method == "POST" else b"")


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Server(200)
    try:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert hooks.send(model.Http("http://queue.example/drain"), {"again": False}, 5.0) == 200
    finally:
        proxy.close()
    assert [path for _verb, path, _headers, _body in proxy.got] == ["http://queue.example/drain"]


def test_a_server_that_never_ends_its_answer_takes_no_longer_than_the_timeout() -> None:
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.wfile.write(b"HTTP/1.0 200 OK\r\n")
            # Each byte comes in time for the timeout of a read.
            for _turn in range(100):
                if not over.wait(0.05):
                    self.wfile.write(b"x")

        def log_message(self, format: str, *args: t.Any) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(NoAnswerError, match="gave no answer within 1 s"):
            hooks.send(model.Http(f"http://127.0.0.1:{server.server_port}/"), {"again": False}, 1.0)
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def test_no_answer_is_said_without_what_may_be_secret() -> None:
    server = Server(200)
    server.close()
    with pytest.raises(NoAnswerError) as caught:
        hooks.send(model.Http(f"{server.url}/drain?token=s3cret"), {"again": False}, 2.0)
    assert f"{server.url}/drain could not be reached" in str(caught.value)
    assert "s3cret" not in str(caught.value)
