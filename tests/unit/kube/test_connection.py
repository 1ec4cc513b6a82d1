# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Credentials of every kind reach the server, in every version of the kubernetes client."""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import (
    LIBRARY_ERROR,
    ConnectionOptions,
    connect,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.transports import bypassed
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import CERTS, Api
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.asking import NODES, Serve, ask, asked
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.kubeconfigs import (
    PLUGIN,
    config,
    plugin,
    trusting,
    written,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.proxy import Proxy


def test_the_client_is_there() -> None:
    assert LIBRARY_ERROR is None


# --- where credentials come from


def test_kubeconfig_with_a_token(api: Api, tmp_path: Path) -> None:
    path = written(tmp_path / "kc", config(api.url, {"token": "t1"}))
    assert asked(api, ConnectionOptions(kubeconfig=path)) == "Bearer t1"


def test_kubeconfig_as_content(api: Api) -> None:
    options = ConnectionOptions(kubeconfig=config(api.url, {"token": "t1"}))
    assert asked(api, options) == "Bearer t1"


def test_the_wanted_context(api: Api, tmp_path: Path) -> None:
    content = config("http://127.0.0.1:9", {"token": "t1"})
    content["contexts"].append({"name": "two", "context": {"cluster": "c2", "user": "u2"}})
    content["clusters"].append({"name": "c2", "cluster": {"server": api.url}})
    content["users"].append({"name": "u2", "user": {"token": "t2"}})
    path = written(tmp_path / "kc", content)
    assert asked(api, ConnectionOptions(kubeconfig=path, context="two")) == "Bearer t2"
    assert connect(ConnectionOptions(kubeconfig=path, context="two"), user_agent="x").place["context"] == "two"


def test_kubeconfig_of_the_environment_as_it_is_now(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "kc", config(api.url, {"token": "t1"}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{path}")
    assert asked(api, ConnectionOptions()) == "Bearer t1"


def test_kubeconfig_of_the_home_directory(api: Api, tmp_path: Path) -> None:
    folder = tmp_path / "home" / ".kube"
    folder.mkdir(parents=True)
    written(folder / "config", config(api.url, {"token": "t1"}))
    assert asked(api, ConnectionOptions()) == "Bearer t1"


def test_several_files_are_one_kubeconfig(api: Api, tmp_path: Path) -> None:
    one, two = config(api.url), config("http://127.0.0.1:9", {"token": "t2"})
    one["users"], two["clusters"] = [], []
    paths = f"{written(tmp_path / 'one', one)}:{written(tmp_path / 'two', two)}"
    assert asked(api, ConnectionOptions(kubeconfig=paths)) == "Bearer t2"


def test_token_file_beside_the_kubeconfig_is_read_anew_when_refused(api: Api, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n", encoding="utf-8")
    path = written(tmp_path / "kc", config(api.url, {"tokenFile": "token"}))
    cluster = connect(ConnectionOptions(kubeconfig=path), user_agent="x")
    api.expect("GET", "/api/v1/nodes")
    cluster.send(NODES)
    (tmp_path / "token").write_text("new\n", encoding="utf-8")
    api.expect("GET", "/api/v1/nodes", status=401)
    api.expect("GET", "/api/v1/nodes")
    cluster.send(NODES)
    sent = [call.header("Authorization") for call in api.calls]
    assert sent == ["Bearer old", "Bearer old", "Bearer new"]


def test_a_write_that_was_refused_with_an_old_token_is_sent_with_the_new_one(api: Api, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old", encoding="utf-8")
    path = written(tmp_path / "kc", config(api.url, {"tokenFile": str(tmp_path / "token")}))
    cluster = connect(ConnectionOptions(kubeconfig=path), user_agent="x")
    (tmp_path / "token").write_text("new", encoding="utf-8")
    eviction = "/api/v1/namespaces/shop/pods/a/eviction"
    api.expect("POST", eviction, status=401)
    api.expect("POST", eviction)
    cluster.send(verbs.evict("shop", "a", "u1"))
    assert api.calls[-1].header("Authorization") == "Bearer new"


def test_threads_that_are_refused_together_read_the_credentials_once(api: Api, tmp_path: Path) -> None:
    path = written(tmp_path / "kc", config(api.url, {"exec": plugin(tmp_path)}))
    cluster = connect(ConnectionOptions(kubeconfig=path), user_agent="x")
    together = threading.Barrier(4)

    def stale(call: Any) -> bool:
        return bool(call.header("Authorization") == "Bearer token-1")

    def fresh(call: Any) -> bool:
        return bool(call.header("Authorization") == "Bearer token-2")

    api.expect("GET", "/api/v1/nodes", matches=stale, status=401, delay=0.3, times=4)
    api.expect("GET", "/api/v1/nodes", matches=fresh, times=4)

    def work() -> None:
        together.wait()
        cluster.send(NODES)

    threads = [threading.Thread(target=work) for _unused in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "2"


def test_user_and_password_of_a_kubeconfig(api: Api) -> None:
    options = ConnectionOptions(kubeconfig=config(api.url, {"username": "a", "password": "b"}))
    assert asked(api, options) == "Basic " + base64.b64encode(b"a:b").decode()


def test_host_and_token(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "kc", config("http://127.0.0.1:9", {"token": "no"}))
    monkeypatch.setenv("KUBECONFIG", path)
    options = ConnectionOptions(host=f"{api.url}/", api_key="t1\n", kubeconfig=path)
    assert asked(api, options) == "Bearer t1"


def test_host_user_and_password(api: Api) -> None:
    options = ConnectionOptions(host=api.url, username="a", password="b")
    assert asked(api, options) == "Basic " + base64.b64encode(b"a:b").decode()


def test_a_host_may_have_a_path(api: Api) -> None:
    api.expect("GET", "/k8s/clusters/c-1/api/v1/nodes")
    ask(ConnectionOptions(host=f"{api.url}/k8s/clusters/c-1", api_key="t"))


def test_options_win_over_the_kubeconfig(api: Api, tmp_path: Path) -> None:
    path = written(tmp_path / "kc", config("http://127.0.0.1:9", {"token": "no"}))
    options = ConnectionOptions(kubeconfig=path, host=api.url)
    assert asked(api, options) == "Bearer no"
    path = written(tmp_path / "kc", config(api.url, {"token": "no"}))
    assert asked(api, ConnectionOptions(kubeconfig=path, api_key="yes")) == "Bearer yes"


def test_empty_options_are_unset(api: Api, tmp_path: Path) -> None:
    path = written(tmp_path / "kc", config(api.url, {"token": "t1"}))
    options = ConnectionOptions(kubeconfig=path, context="", host="", api_key="", ca_cert="")
    assert asked(api, options) == "Bearer t1"


@pytest.fixture
def pod_account(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Api, Path]:
    """As in a pod: a service account and the address in the environment."""
    from kubernetes.config import incluster_config

    api = serve(certificate="server")
    token = tmp_path / "sa-token"
    token.write_text("sa-1", encoding="utf-8")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(CERTS / "ca.pem"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    return api, token


def test_the_service_account_of_the_pod(pod_account: tuple[Api, Path]) -> None:
    api, token = pod_account
    cluster = connect(ConnectionOptions(), user_agent="x")
    assert cluster.source == "the pod's service account"
    assert cluster.place == {"context": "in-cluster", "server": f"https://127.0.0.1:{api.port}"}
    api.expect("GET", "/api/v1/nodes")
    cluster.send(NODES)
    assert (api.calls[0].header("Authorization") or "").lower() == "bearer sa-1"
    token.write_text("sa-2", encoding="utf-8")
    api.expect("GET", "/api/v1/nodes", status=401)
    api.expect("GET", "/api/v1/nodes")
    cluster.send(NODES)
    assert (api.calls[2].header("Authorization") or "").lower() == "bearer sa-2"


def test_a_context_means_the_kubeconfig_even_in_a_pod(
    pod_account: tuple[Api, Path], api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "kc", config(api.url, {"token": "t1"})))
    assert asked(api, ConnectionOptions(context="lab")) == "Bearer t1"


# --- exec plugins


def test_an_exec_plugin_runs_once_for_many_requests(api: Api, tmp_path: Path) -> None:
    path = written(tmp_path / "kc", config(api.url, {"exec": plugin(tmp_path)}))
    cluster = connect(ConnectionOptions(kubeconfig=path), user_agent="x")
    api.expect("GET", "/api/v1/nodes", times=3)
    for _unused in range(3):
        cluster.send(NODES)
    assert {call.header("Authorization") for call in api.calls} == {"Bearer token-1"}


def test_a_plugin_may_lie_beside_the_kubeconfig(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = plugin(tmp_path)
    script = tmp_path / "auth.sh"
    quoted = " ".join(f"'{word}'" for word in [known["command"], *known["args"]])
    script.write_text(f"#!/bin/sh\nexec {quoted}\n", encoding="utf-8")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": known["apiVersion"], "command": "./auth.sh"}}
    path = written(tmp_path / "kc", config(api.url, user))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert asked(api, ConnectionOptions(kubeconfig=path)) == "Bearer token-1"


def test_a_plugin_that_gives_certificates(serve: Serve, tmp_path: Path) -> None:
    api = serve(certificate="server", client_ca="ca")
    status = {
        "clientCertificateData": (CERTS / "client.pem").read_text(encoding="utf-8"),
        "clientKeyData": (CERTS / "client.key").read_text(encoding="utf-8"),
        "token": None,
    }
    known = plugin(tmp_path, status)
    code = PLUGIN.replace("print(", 'status.pop("token")\nprint(')
    (tmp_path / "plugin.py").write_text(code, encoding="utf-8")
    trust = {"certificate-authority": str(CERTS / "ca.pem")}
    api.expect("GET", "/api/v1/nodes")
    ask(ConnectionOptions(kubeconfig=config(api.url, {"exec": known}, trust)))
    assert "maintainer" in str(api.peers[0])


# --- impersonation and proxies


def test_impersonation(api: Api) -> None:
    asked(
        api,
        ConnectionOptions(
            host=api.url,
            api_key="t",
            impersonate_user="maintainer",
            impersonate_groups=("ops", "oncall"),
        ),
    )
    headers = api.calls[0].headers
    assert headers["impersonate-user"] == ["maintainer"]
    assert headers["impersonate-group"] == ["ops", "oncall"]


def test_a_proxy_is_used_with_its_password(serve: Serve, proxy: Proxy) -> None:
    api = serve(certificate="server")
    options = ConnectionOptions(
        kubeconfig=trusting(api.url, {"token": "t1"}),
        proxy=proxy.url,
        proxy_headers={"proxy_basic_auth": "a:b"},
    )
    assert asked(api, options) == "Bearer t1"
    assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{api.port} ")
    assert base64.b64encode(b"a:b").decode() in proxy.asked[0]
    assert "t1" not in proxy.asked[0]


def test_the_proxy_of_a_kubeconfig(serve: Serve, proxy: Proxy) -> None:
    api = serve(certificate="server")
    content = trusting(api.url, {"token": "t1"}, **{"proxy-url": proxy.url})
    assert asked(api, ConnectionOptions(kubeconfig=content)) == "Bearer t1"
    assert len(proxy.asked) == 1


def test_no_proxy_goes_straight(serve: Serve, proxy: Proxy) -> None:
    api = serve(certificate="server")
    content = trusting(api.url, {"token": "t1"})
    asked(api, ConnectionOptions(kubeconfig=content, proxy=proxy.url, no_proxy="127.0.0.0/8"))
    assert proxy.asked == []


def test_a_proxy_that_is_not_there_has_sent_nothing(serve: Serve, proxy: Proxy) -> None:
    api = serve(certificate="server")
    proxy.close()
    options = ConnectionOptions(kubeconfig=trusting(api.url), proxy=proxy.url)
    with pytest.raises(errors.Unreachable):
        connect(options, user_agent="x").send(verbs.evict("shop", "a", "u1"), patience=0.0)


@pytest.mark.parametrize(
    ("url", "no_proxy", "exempt"),
    [
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "192.168.0.0/16, 10.1.2.3", True),
        ("https://api.example.org", "example.org", True),
        ("https://api.example.org", ".example.org", True),
        ("https://api.example.org:6443", "api.example.org:6443", True),
        ("https://notexample.org", "example.org", False),
        ("https://api.example.org", "", False),
        ("https://api.example.org", "*", True),
        ("https://[fd00::1]:6443", "fd00::/8", True),
    ],
)
def test_who_is_exempt_from_a_proxy(url: str, no_proxy: str, exempt: bool) -> None:
    assert bypassed(url, no_proxy) is exempt
