# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import Api
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.proxy import Proxy

OURS = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig, service account or proxy of the machine takes part."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def serve() -> Iterator[Callable[..., Api]]:
    """Starts servers; at the end each of them has to have been asked exactly what was expected."""
    servers: list[Api] = []

    def start(**options: Any) -> Api:
        servers.append(Api(**options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
    for server in servers:
        server.check()


@pytest.fixture
def api(serve: Callable[..., Api]) -> Api:
    return serve()


@pytest.fixture
def cluster_at() -> Iterator[Callable[[str], Cluster]]:
    """Connects to an address with a token."""
    made: list[Cluster] = []

    def connected(url: str) -> Cluster:
        made.append(connect(ConnectionOptions(host=url, api_key="first"), user_agent="kubeops.node_maintenance/test"))
        return made[-1]

    yield connected
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(api: Api, cluster_at: Callable[[str], Cluster]) -> Cluster:
    """Connected to `api`."""
    return cluster_at(api.url)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()
