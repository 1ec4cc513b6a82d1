# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is trusted, and by which certificate a client is known."""

from __future__ import annotations

import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import CERTS
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.asking import Serve, ask, asked
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.kubeconfigs import (
    config,
    data,
    trusting,
    written,
)


def test_client_certificates_inline(serve: Serve) -> None:
    api = serve(certificate="server", client_ca="ca")
    user = {"client-certificate-data": data("client.pem"), "client-key-data": data("client.key")}
    assert asked(api, ConnectionOptions(kubeconfig=trusting(api.url, user))) is None
    assert "maintainer" in str(api.peers[0])


def test_client_certificates_in_files_beside_the_kubeconfig(serve: Serve, tmp_path: Path) -> None:
    api = serve(certificate="server", client_ca="ca")
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_bytes((CERTS / name).read_bytes())
    user = {"client-certificate": "client.pem", "client-key": "client.key"}
    content = config(api.url, user, {"certificate-authority": "ca.pem"})
    asked(api, ConnectionOptions(kubeconfig=written(tmp_path / "kc", content)))
    assert "maintainer" in str(api.peers[0])


def test_client_certificates_as_options(serve: Serve) -> None:
    api = serve(certificate="server", client_ca="ca")
    options = ConnectionOptions(
        host=api.url,
        ca_cert=str(CERTS / "ca.pem"),
        client_cert=str(CERTS / "client.pem"),
        client_key=str(CERTS / "client.key"),
    )
    asked(api, options)
    assert "maintainer" in str(api.peers[0])


def test_inline_keys_do_not_stay_on_disk(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    api = serve(certificate="server", client_ca="ca")
    user = {"client-certificate-data": data("client.pem"), "client-key-data": data("client.key")}
    options = ConnectionOptions(kubeconfig=trusting(api.url, user))
    for _unused in range(2):
        asked(api, options)
        assert list(folder.iterdir()) == []


def test_a_server_of_another_authority_is_not_trusted(serve: Serve) -> None:
    api = serve(certificate="server")
    trust = {"certificate-authority": str(CERTS / "other.pem")}
    options = ConnectionOptions(kubeconfig=config(api.url, {"token": "t1"}, trust))
    cluster = connect(options, user_agent="x")
    began = time.monotonic()
    with pytest.raises(errors.ConfigError, match=r"is not trusted.*ca_cert"):
        cluster.send(verbs.evict("shop", "a", "u1"), patience=30)
    assert time.monotonic() - began < 2


def test_a_server_of_another_name_is_not_trusted(serve: Serve) -> None:
    api = serve(certificate="named")
    options = ConnectionOptions(kubeconfig=trusting(api.url, {"token": "t1"}))
    with pytest.raises(errors.ConfigError, match="is not trusted"):
        ask(options)


def test_the_name_to_check_may_be_given(serve: Serve) -> None:
    api = serve(certificate="named")
    content = trusting(api.url, {"token": "t1"}, **{"tls-server-name": "api.example.org"})
    assert asked(api, ConnectionOptions(kubeconfig=content)) == "Bearer t1"


@pytest.mark.parametrize("by", ["option", "kubeconfig"])
def test_verification_switched_off_is_silent_and_for_us_alone(serve: Serve, by: str) -> None:
    api = serve(certificate="named")
    content = config(api.url, {"token": "t1"})
    if by == "kubeconfig":
        content["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    options = ConnectionOptions(kubeconfig=content, validate_certs=False if by == "option" else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        assert asked(api, options) == "Bearer t1"
        assert list(warnings.filters) == filters
    assert [str(warning.message) for warning in caught] == []


def test_verification_switched_on_wins_over_the_kubeconfig(serve: Serve) -> None:
    api = serve(certificate="server")
    content = config(api.url, {"token": "t1"}, {"insecure-skip-tls-verify": True})
    options = ConnectionOptions(kubeconfig=content, validate_certs=True)
    with pytest.raises(errors.ConfigError, match="is not trusted"):
        ask(options)


def test_plain_http_where_tls_is_expected_is_named(serve: Serve) -> None:
    api = serve()
    options = ConnectionOptions(host=api.url.replace("http:", "https:"), api_key="t")
    with pytest.raises(errors.ConfigError):
        ask(options)


def test_a_tls_watch_stops_promptly(serve: Serve) -> None:
    api = serve(certificate="server")
    cluster = connect(ConnectionOptions(kubeconfig=trusting(api.url)), user_agent="x")
    api.expect("GET", "/api/v1/nodes", events=[], hold=True)
    stream = cluster.stream(verbs.watch(kinds.NODES), read_timeout=30)
    seen: list[Any] = []

    def read() -> None:
        try:
            seen.extend(stream)
        except errors.Unreachable as error:
            seen.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.2)
    stream.close()
    reader.join(1)
    assert not reader.is_alive()
