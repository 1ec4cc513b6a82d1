# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One request by whoever the options say, and who that was for the server."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import Api

NODES = verbs.list_page(kinds.NODES)
Serve = Callable[..., Api]


def ask(options: ConnectionOptions) -> None:
    """List the nodes."""
    cluster = connect(options, user_agent="x")
    try:
        cluster.send(NODES)
    finally:
        cluster.close()


def asked(api: Api, options: ConnectionOptions) -> str | None:
    """What stood in the Authorization header of one request."""
    api.expect("GET", "/api/v1/nodes")
    ask(options)
    return api.calls[-1].header("Authorization")
