# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the calls of a wave cost in large clusters: requests, objects, bytes,
processor seconds and memory.

    python -m bench.waves                   # waves of ten nodes of 500 and 5,000
    python -m bench.waves --nodes 1 2000    # one node of 2,000
    python -m bench.waves --requests 5000   # and shows which requests were sent

No lab is needed: each call is made in a process of its own, against a server in another one
(synthetic_server.py). Evicted pods are gone at once, single replicas are evicted, too: the server
has no controllers that could surge them.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import time
from typing import Any

from bench import machine
from bench.planning import row, served

SIZES = (500, 5000)
RUN = "bench/first"
CALLS = ("cordon", "protect", "drain", "returning", "gates", "unprotect", "uncordon")
COLUMNS = ("nodes", "call", "requests", "writes", "objects", "MB read", "processor s", "memory MB")


def main() -> None:
    """One wave in each size."""
    asked = arguments()
    if asked.call:
        print(json.dumps(measured(asked.url, asked.call, asked.nodes)))
        return
    print(
        row(COLUMNS, COLUMNS),
        row(COLUMNS, ["-" * len(name) for name in COLUMNS]),
        sep="\n",
        flush=True,
    )
    for size in asked.sizes or SIZES:
        with served(size, "writers") as url:
            for call in CALLS:
                found = called(url, call, asked.nodes)
                print(row(COLUMNS, [size, call, *found["numbers"]]), flush=True)
                if asked.requests:
                    print(json.dumps(found["sent"], indent=1), file=sys.stderr)


def arguments() -> argparse.Namespace:
    """What is asked on the command line."""
    parser = argparse.ArgumentParser(description="what the calls of a wave cost")
    parser.add_argument("sizes", type=int, nargs="*", help="nodes of the cluster")
    parser.add_argument("--nodes", type=int, default=10, help="nodes of the wave")
    parser.add_argument(
        "--requests", action="store_true", help="show the requests by verb and resource"
    )
    parser.add_argument("--call", default="", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def called(url: str, call: str, count: int) -> dict[str, Any]:
    """The costs of one call, made in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.waves",
        f"--nodes={count}",
        f"--call={call}",
        f"--url={url}",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def measured(url: str, call: str, count: int) -> dict[str, Any]:
    """The costs of one call, by ``numbers`` in the order of the columns and
    by what was ``sent``.
    """
    # Only here: the process that starts the others needs none of it.
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
        run_context,
    )
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
        connection,
        exchange,
    )
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
        run_cordon,
        run_gates,
        run_node_steps,
    )
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard

    sent: collections.Counter[str] = collections.Counter()
    read = {"objects": 0, "bytes": 0}
    whole, opened = exchange.Exchange.whole, exchange.Exchange.opened

    def counted(self: Any, request: Any, *rest: Any, **more: Any) -> bytes:
        answer = whole(self, request, *rest, **more)
        read["bytes"] += len(answer)
        read["objects"] += answer.count(b'"resourceVersion"') if request.verb == "list" else 1
        return answer

    def noted(self: Any, request: Any, *rest: Any, **more: Any) -> Any:
        sent[f"{request.verb} {request.resource}"] += 1
        return opened(self, request, *rest, **more)

    exchange.Exchange.whole, exchange.Exchange.opened = counted, noted  # type: ignore[method-assign]
    cluster = connection.connect(
        connection.ConnectionOptions(host=url, api_key="none"), user_agent="bench"
    )
    ctx = run_context.Context(cluster, run=run_context.Run.parse(RUN))
    nodes = tuple(f"node-{number:05}" for number in range(count))
    choices = drain_policy.DrainPolicy(
        backend="eviction", allow_interruption=True, delete_emptydir_data=True
    )
    began = time.process_time()
    match call:
        case "cordon" | "returning" | "uncordon":
            state: Any = {"cordon": "cordoned", "uncordon": "uncordoned"}.get(call, call)
            result = run_cordon.cordon(ctx, run_node_steps.CordonOptions(state, nodes))
        case "protect" | "unprotect":
            state = "present" if call == "protect" else "absent"
            result = run_guard.guard(ctx, run_guard.GuardOptions(state, nodes, method="evict"))
        case "drain":
            result = run_drain.drain(ctx, run_drain.DrainOptions(nodes, choices, timeout=600))
        case _:
            gates = ("ready", "daemonsets")
            options = run_gates.ReadyOptions(nodes, gates=gates, wait=True, stable=0.0)
            result = run_gates.check_ready(ctx, options)
    spent = time.process_time() - began
    assert not result.failed, result.message
    peak = machine.own_peak()
    writes = sum(
        number for what, number in sent.items() if what.split()[0] not in ("get", "list", "watch")
    )
    numbers = [
        sum(sent.values()),
        writes,
        read["objects"],
        round(read["bytes"] / 1e6, 1),
        round(spent, 2),
        round(peak),
    ]
    return {"numbers": numbers, "sent": dict(sent.most_common())}


if __name__ == "__main__":
    main()
