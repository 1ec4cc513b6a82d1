# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every wrong kubeconfig is named with its file, its fault and the remedy, and no secret with it."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import connection, errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import CERTS, Api

CANARY = "s3cr3t-canary"
API_VERSION = "client.authentication.k8s.io/v1"


def good() -> dict[str, Any]:
    return {
        "current-context": "lab",
        "contexts": [
            {"name": "lab", "context": {"cluster": "c", "user": "u"}},
            {"name": "prod", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": CANARY}}],
    }


def user(**fields: Any) -> dict[str, Any]:
    content = good()
    content["users"][0]["user"] = {"password": CANARY, **fields}
    return content


def cluster(**fields: Any) -> dict[str, Any]:
    content = good()
    content["clusters"][0]["cluster"].update(fields)
    return content


def without(section: str) -> dict[str, Any]:
    return {**good(), section: []}


def plugin(command: str, *args: str, **fields: Any) -> dict[str, Any]:
    return user(exec={"apiVersion": API_VERSION, "command": command, "args": list(args), **fields})


FAULTS: dict[str, tuple[Any, list[str]]] = {
    "empty": ("", ["is empty"]),
    "not YAML": (f"a: [b\ntoken: {CANARY}", ["is not valid YAML at line 2"]),
    "tab": (f"users:\n\t- {CANARY}", ["is not valid YAML at line 2, column 1"]),
    "a list": (f"- {CANARY}", ["is not a kubeconfig"]),
    "a word": (CANARY, ["is not a kubeconfig"]),
    "binary": (b"\xff\xfe\x00" + CANARY.encode(), ["cannot be read"]),
    "no contexts": (without("contexts"), ["has no contexts"]),
    "contexts are text": ({**good(), "contexts": CANARY}, ["has no contexts"]),
    "no current context": (
        {**good(), "current-context": ""},
        ["has no current context", "lab, prod"],
    ),
    "unknown current context": (
        {**good(), "current-context": "gone"},
        ["has no context 'gone'", "It has: lab, prod"],
    ),
    "no cluster": (without("clusters"), ["context 'lab'", "names the cluster 'c'"]),
    "no user": (without("users"), ["context 'lab'", "names the user 'u'"]),
    "no server": (cluster(server=None), ["cluster 'c'", "no `server`"]),
    "authority missing": (
        cluster(**{"certificate-authority": "nope.pem"}),
        ["`certificate-authority` of cluster 'c'", "nope.pem", "No such file"],
    ),
    "authority not base64": (
        cluster(**{"certificate-authority-data": f"%%{CANARY}"}),
        ["`certificate-authority-data` of cluster 'c'", "not base64"],
    ),
    "authority not PEM": (
        cluster(**{"certificate-authority-data": "aGVsbG8="}),
        ["certificate authority", "cannot be used"],
    ),
    "key missing": (
        user(**{"client-certificate": str(CERTS / "client.pem"), "client-key": "nope.key"}),
        ["`client-key` of user 'u'", "nope.key"],
    ),
    "key of another": (
        user(
            **{
                "client-certificate": str(CERTS / "client.pem"),
                "client-key": str(CERTS / "server.key"),
            }
        ),
        ["client certificate with its key", "cannot be used"],
    ),
    "token file missing": (user(tokenFile="nope"), ["`tokenFile` of user 'u'", "nope"]),
    "plugin missing": (
        plugin("no-such-plugin", CANARY, installHint="Install it\nfrom example.org."),
        ["'no-such-plugin' of user 'u'", "not installed here", "Install it from example.org."],
    ),
    "plugin fails": (
        plugin("sh", "-c", f"echo {CANARY}; echo {CANARY} >&2; exit 3"),
        ["plugin 'sh' of user 'u'", "exit code 3"],
    ),
    "plugin chatters": (
        plugin("sh", "-c", f"echo {CANARY}"),
        ["plugin 'sh' of user 'u'", f"no ExecCredential of '{API_VERSION}'"],
    ),
    "plugin of another version": (
        plugin(
            "echo",
            '{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", '
            f'"status": {{"token": "{CANARY}"}}}}',
        ),
        ["no ExecCredential of"],
    ),
    "plugin without a command": (plugin(""), ["of user 'u'"]),
    "token with a line break": (user(token=f"a\n{CANARY}"), ["characters that are not allowed in a token"]),
    "address is none": (cluster(server="https://[nope"), ["https://[nope", "not usable"]),
    "proxy is none": (
        cluster(**{"proxy-url": f"http://u:{CANARY}@[nope"}),
        ["http://[nope", "not usable"],
    ),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_fault(
    fault: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    content, words = FAULTS[fault]
    path = tmp_path / "kubeconfig"
    if isinstance(content, dict):
        content = yaml.safe_dump(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with caplog.at_level(logging.DEBUG), pytest.raises(errors.ConfigError) as caught:
        connect(ConnectionOptions(kubeconfig=str(path)), user_agent="x").send(
            verbs.list_page(kinds.NODES), patience=0.0
        )
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert caught.value.advice, "no remedy"
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + "".join(capfd.readouterr())
    assert CANARY not in told


def test_a_missing_file_and_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"kubeconfig .*nope does not exist.*KUBECONFIG"):
        connect(ConnectionOptions(kubeconfig=str(tmp_path / "nope")), user_agent="x")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="Is a directory"):
        connect(ConnectionOptions(kubeconfig=str(tmp_path)), user_agent="x")


def test_an_unknown_context_of_a_kubeconfig_given_as_content() -> None:
    with pytest.raises(errors.ConfigError, match=r"given kubeconfig has no context 'x'.*lab, prod"):
        connect(ConnectionOptions(kubeconfig=good(), context="x"), user_agent="x")


def test_nothing_at_all() -> None:
    with pytest.raises(errors.ConfigError, match=r"no credentials: .*config does not exist.*Set KUBECONFIG.*api_key"):
        connect(ConnectionOptions(), user_agent="x")


def test_a_host_alone() -> None:
    with pytest.raises(errors.ConfigError, match="no credentials"):
        connect(ConnectionOptions(host="https://127.0.0.1:9"), user_agent="x")


def test_options_do_not_show_their_secrets() -> None:
    options = ConnectionOptions(api_key=CANARY, password=CANARY, kubeconfig={"users": CANARY})
    assert CANARY not in repr(options)
    assert CANARY not in f"{options}"


def test_a_missing_client_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LIBRARY_ERROR", "Traceback ...")
    with pytest.raises(errors.ConfigError, match=rf"`kubernetes`.*{sys.executable}.*24\.2"):
        connect(ConnectionOptions(), user_agent="x")


def test_a_token_never_shows_in_errors_of_requests(serve: Callable[..., Api], caplog: pytest.LogCaptureFixture) -> None:
    api = serve()
    options = ConnectionOptions(host=api.url, api_key=CANARY)
    client = connect(options, user_agent="x")
    told = []
    steps: list[dict[str, Any]] = [{"cut": "before"}, {"cut": "inside"}, {"status": 403}]
    for step in [*steps, {"body": "no"}]:
        api.expect("GET", "/api/v1/nodes", **{"body": {"a": 1}, **step})
        with caplog.at_level(logging.DEBUG), pytest.raises(errors.ClusterError) as caught:
            client.send(verbs.list_page(kinds.NODES), patience=0.0)
        told.append("".join(traceback.format_exception(caught.value)))
    assert CANARY not in "".join(told) + caplog.text
    assert len(told) == 4


def test_no_handler_is_left_on_the_root_logger(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), list(root.filters))
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(plugin("no-such-plugin")), encoding="utf-8")
    with warnings.catch_warnings(), pytest.raises(errors.ConfigError):
        connect(ConnectionOptions(kubeconfig=str(path)), user_agent="x")
    assert (list(root.handlers), list(root.filters)) == before
