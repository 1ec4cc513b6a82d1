# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many HTTP calls of hooks are under way is counted by several threads."""

from __future__ import annotations

import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.pod_selectors import PodSelector
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions, run_hook_calls
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import client, clocks


class Counted(run_hook_calls.HttpCalls):
    """Notes each change of the count that is made without the lock: two at once would lose one of them."""

    unlocked = 0

    def __setattr__(self, name: str, value: t.Any) -> None:
        if name == "_busy" and hasattr(self, "_lock") and not self._lock.locked():
            self.unlocked += 1
        super().__setattr__(name, value)


def test_the_calls_that_are_under_way_are_counted_under_their_lock() -> None:
    ended = threading.Event()

    def send(http: hook_definitions.Http, variables: t.Mapping[str, t.Any], timeout: float) -> int:
        ended.wait(timeout)
        return 200

    ctx = run_context.Context(t.cast(client.Cluster, None), clock=clocks.Clock())
    calls = Counted(ctx, lambda nodes: None, send)
    rule = hook_definitions.Rule(
        "before_pod",
        "http",
        "http",
        5.0,
        PodSelector(selectors.parse("app=web")),
        http=hook_definitions.Http("http://a.example/"),
    )
    going = [
        calls.start(hook_definitions.Call(rule, "n1", "shop", f"web-{n}", f"uid-{n}"), again=False) for n in range(3)
    ]
    assert calls.free == run_hook_calls.MAX_PARALLEL - 3
    ended.set()
    assert [one.result(5) for one in going] == ["", "", ""]
    calls.close()
    assert (calls.free, calls.unlocked) == (run_hook_calls.MAX_PARALLEL, 0)
