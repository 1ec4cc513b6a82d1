# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan costs in large clusters: processor seconds, requests and memory. No lab is needed.

    python -m bench.planning                     # all nodes of 500, 1,000, 2,000 and 5,000 nodes
    python -m bench.planning 20000               # of other sizes
    python -m bench.planning --nodes 10 5000     # plans for ten nodes
    python -m bench.planning --keep before 500   # writes the plans to before-500.json, to compare two versions
    python -m bench.planning --profile 1000      # and shows where the time goes

Each size is planned in a process of its own, against a server in a third one (synthetic_server.py),
so the processor time and the peak of the memory are those of the plan alone. A busy machine
distorts them little.
"""  # noqa: E501

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import pstats
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import machine

SIZES = (500, 1000, 2000, 5000)
PARALLEL = 10
"""Nodes of a wave."""
COLUMNS = ("nodes", "pods", "planned", "lists s", "rest s", "sum s", "requests", "memory MB")


def main() -> None:
    """Measure one size after the other; a line of the table as soon as it is known."""
    asked = arguments()
    if asked.measure:
        print(json.dumps(measured(asked, asked.measure)))
        return
    print(
        row(COLUMNS, COLUMNS),
        row(COLUMNS, ["-" * len(name) for name in COLUMNS]),
        sep="\n",
        flush=True,
    )
    for size in asked.sizes or SIZES:
        with served(size, "blockers") as url:
            found = planned(url, size, asked)
        print(row(COLUMNS, [found[name] for name in COLUMNS]), flush=True)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What these words ask for; ``None``: those of the command line."""
    parser = argparse.ArgumentParser(description="what a plan costs")
    parser.add_argument("sizes", type=int, nargs="*", help="nodes of the cluster")
    parser.add_argument("--nodes", type=int, default=0, help="nodes to plan for (default: all)")
    parser.add_argument("--keep", default="", help="where the plans are written, as NAME-SIZE.json")
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def row(columns: Sequence[str], cells: Sequence[Any]) -> str:
    """A line of a table with these columns."""
    return (
        "| "
        + " | ".join(str(cell).rjust(len(name)) for cell, name in zip(cells, columns, strict=True))
        + " |"
    )


@contextlib.contextmanager
def served(size: int, *more: str) -> Iterator[str]:
    """The address of a server of such a cluster."""
    command = [sys.executable, "-m", "bench.synthetic_server", str(size), *more]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin
        assert server.stdout
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()


def planned(url: str, size: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One plan in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.planning",
        str(size),
        f"--measure={url}",
        f"--nodes={asked.nodes}",
    ]
    command += [f"--keep={asked.keep}"] if asked.keep else []
    command += ["--profile"] if asked.profile else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def measured(asked: argparse.Namespace, url: str) -> dict[str, Any]:
    """The costs of one plan; the time of lists is that of reading, parsing and keeping them."""
    # Only here: the process that starts the others needs none of it.
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
        run_context,
    )
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
        client,
        connection,
    )
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

    size = asked.sizes[0]
    count = asked.nodes or size
    spent = 0.0
    listed = client.Cluster.items

    def timed(*args: Any, **options: Any) -> client.Listing:
        nonlocal spent
        began = time.process_time()
        try:
            return listed(*args, **options)
        finally:
            spent += time.process_time() - began

    client.Cluster.items = timed  # type: ignore[method-assign]
    cluster = connection.connect(
        connection.ConnectionOptions(host=url, api_key="none"), user_agent="bench"
    )
    nodes = tuple(f"node-{number:05}" for number in range(count))
    choices = drain_policy.DrainPolicy(backend="eviction", method="replace")
    options = run_plan.PlanOptions(nodes=nodes, choices=choices, max_parallel=PARALLEL)
    profile = cProfile.Profile() if asked.profile else None
    began = time.process_time()
    if profile:
        profile.enable()
    result = run_plan.make_plan(run_context.Context(cluster), options).shaped()
    if profile:
        profile.disable()
    total = time.process_time() - began
    peak = machine.own_peak()
    if profile:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(45)
    if asked.keep:
        Path(f"{asked.keep}-{size}.json").write_text(
            json.dumps(result, indent=1, sort_keys=True), encoding="utf-8"
        )
    assert len(result["waves"]) == -(-count // PARALLEL), result["msg"]
    values = (
        size,
        size * 30,
        count,
        round(spent, 1),
        round(total - spent, 1),
        round(total, 1),
        cluster.requests,
    )
    return dict(zip(COLUMNS, (*values, round(peak)), strict=True))


if __name__ == "__main__":
    main()
