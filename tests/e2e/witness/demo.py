# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The witness of the demo: watch until a file says that it is over, then say in words what happened.

    python -m witness.demo --kubeconfig FILE --audit-log FILE --folder DIR --node NAME [--load COMMAND] [--only-measure]
    python -m witness.demo --table TOOL=DIR ...

`DIR/ready` appears when it watches, `DIR/stop` ends it; `failed` in that file says that the run failed, which
then may keep what a resumption needs. Its verdict goes to standard output; the exit code is 1 when a service
went dark or anything else did not hold. What it measured is in `DIR/measured.json`; with `--only-measure` it judges
nothing. With `--load`, a command that starts `lab-web`, all Services are asked meanwhile. `--table` prints what was
measured of several tools side by side.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from witness import audit, invariants, measures
from witness import objects as o
from witness.api import Api
from witness.kinds import PATHS
from witness.log import Json, Log, load
from witness.traffic import Traffic, Way

RATE = 25.0
"""Requests a second to each Service, by new connections, and as many by kept ones."""
QUIET = 0.3
"""Seconds after the end in which controllers still follow the last write."""


def observe(kubeconfig: Path, folder: Path, within: float) -> Log:
    """Watch in a process of its own until told to stop, or for so many seconds."""
    log, ready, stop = folder / "witness.jsonl", folder / "ready", folder / "stop"
    command = [sys.executable, "-m", "witness", "--kubeconfig", str(kubeconfig), "--log", str(log)]
    deadline = time.monotonic() + within
    with subprocess.Popen([*command, "--ready", str(ready)], stdin=subprocess.PIPE) as process:
        while not stop.exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
        time.sleep(QUIET)
        process.communicate()
    return load(log)


def told(traffic: Traffic) -> list[str]:
    """What became of the requests, line by line."""
    sent, failed = traffic.counts("sent"), traffic.failed()
    lines = [f"{sum(failed.values()):,} of {sum(sent.values()):,} requests to {len(sent)} services failed."]
    return lines + [f"{name}: {failed[name]:,} of {sent[name]:,} requests failed." for name in failed if failed[name]]


def verdict(log: Log, requests: list[audit.Request], *, failed: bool) -> tuple[list[str], bool]:
    """What happened, line by line, and whether all held; a failed run may leave its ConfigMap."""
    violations = [
        *invariants.unseen(log),
        *invariants.i1_services_stay_up(log),
        *invariants.i2_budgets_are_kept(log),
        *invariants.i3_all_as_before(log),
        *invariants.i4_moved_once(log, requests),
        *invariants.i7_drained_stays_empty(log),
    ]
    violations = [v for v in violations if not (failed and v.kind == "ConfigMap")]
    services = [(o.namespace(s), o.name(s)) for s in log.before.of("Service") if s["spec"].get("selector")]
    dark = {(ns, name): measures.dark_seconds(log, ns, name) for ns, name in services}
    lines = [f"Watched {len(services)} services for {log.ended - log.began:.0f} s on a connection of its own."]
    lines += [f"{ns}/{name} had no ready endpoint for {s:.1f} s." for (ns, name), s in dark.items() if s > 0]
    if not any(dark.values()):
        lines.append("Every one of them had a ready endpoint all the time: never dark.")
    if violations:
        lines += [f"Did not hold: {violation}" for violation in violations]
    else:
        but = ", but for what resuming the failed run needs" if failed else ""
        lines.append(f"Budgets were kept, no pod moved twice, and everything is as it was before{but}.")
    return lines, not violations and not any(dark.values())


def asked(options: argparse.Namespace) -> AbstractContextManager[Traffic | None]:
    """Requests to all Services through kube-proxy, by new connections and by kept ones, if they are wanted."""
    if not options.load:
        return nullcontext()
    *prefix, program = shlex.split(options.load)
    traffic = Traffic(Path(program), options.folder, prefix)
    namespaces = {o.namespace(each) for each in Api(options.kubeconfig, "kubeops-witness").items(PATHS["Service"])}
    ways = [Way("new", RATE), Way("keep", RATE)]
    traffic.add_services(options.kubeconfig, sorted(namespaces - {"default", "kube-system"}), ways)
    return traffic


def measured(log: Log, node: str, traffic: Traffic | None) -> Json:
    """Dark seconds of each Service (`namespace/name`), and seconds until the node was `emptied`, or None.

    With requests, how many were `sent` to each and `failed`.
    """
    services = [(o.namespace(s), o.name(s)) for s in log.before.of("Service") if s["spec"].get("selector")]
    dark = {f"{ns}/{name}": round(measures.dark_seconds(log, ns, name), 1) for ns, name in sorted(services)}
    counts = {field: traffic.counts(field) for field in ("sent", "failed")} if traffic else {}
    return {"dark": dark, "emptied": measures.emptied_in(log, node), **counts}


def side_by_side(tools: Mapping[str, Json]) -> list[str]:
    """A table of what was measured of several tools: failed requests and dark seconds of each Service that had any."""

    def of_service(found: Json, name: str) -> str:
        failed = [f"{found['failed'].get(name, 0):,} failed"] if "failed" in found else []
        return ", ".join([*failed, f"{found['dark'].get(name, 0.0):.1f} s dark"])

    def emptied(found: Json) -> str:
        return "not at all" if found["emptied"] is None else f"{found['emptied']:.1f} s"

    def failed(found: Json) -> str:
        return f"{sum(found['failed'].values()):,} of {sum(found['sent'].values()):,}"

    touched = {
        n for found in tools.values() for key in ("dark", "failed") for n, value in found.get(key, {}).items() if value
    }
    rows = [["", *tools], *([name, *(of_service(found, name) for found in tools.values())] for name in sorted(touched))]
    if all("failed" in found for found in tools.values()):
        rows.append(["requests failed", *(failed(found) for found in tools.values())])
    rows.append(["the node was empty after", *(emptied(found) for found in tools.values())])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:{'>' if i else '<'}{widths[i]}}" for i, cell in enumerate(row)).rstrip() for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(prog="witness.demo", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--audit-log", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--node")
    parser.add_argument("--load", default="")
    parser.add_argument("--only-measure", action="store_true")
    parser.add_argument("--table", nargs="*", default=[])
    parser.add_argument("--within", type=float, default=900.0)
    options = parser.parse_args()
    if options.table:
        known = dict(entry.split("=", 1) for entry in options.table)
        files = {tool: Path(folder) / "measured.json" for tool, folder in known.items()}
        print("\n".join(side_by_side({tool: json.loads(file.read_text("utf-8")) for tool, file in files.items()})))
        return 0
    mark = options.audit_log.stat().st_size
    with asked(options) as traffic:
        log = observe(options.kubeconfig, options.folder, options.within)
    found = measured(log, options.node, traffic)
    (options.folder / "measured.json").write_text(json.dumps(found), encoding="utf-8")
    if options.only_measure:
        return 0
    requests = [r for r in audit.read(options.audit_log, mark) if not r.by_the_system]
    stop = options.folder / "stop"
    failed = stop.exists() and "failed" in stop.read_text(encoding="utf-8")
    lines, held = verdict(log, requests, failed=failed)
    print("\n".join(lines + (told(traffic) if traffic else [])))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
