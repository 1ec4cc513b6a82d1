# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The witness of the demo: watch until a file says that it is over, then say in words what happened.

    python -m witness.demo --kubeconfig FILE --audit-log FILE --folder DIR --node NAME --within SECONDS
    python -m witness.demo --kubeconfig FILE --audit-log FILE --folder DIR --node NAME --beside MAINTAIN_DIR

`DIR/ready` appears when it watches, `DIR/stop` ends it; `failed` in that file says that the run failed, which
then may keep what a resumption needs. Its verdict goes to standard output; the exit code is 1 when a service
went dark or anything else did not hold. What it measured is in `DIR/measured.json`. With `--beside`, the other way
to drain the node was watched: it judges nothing, and prints what it measured beside what is in `MAINTAIN_DIR`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from witness import audit, invariants, measures
from witness import objects as o
from witness.log import Json, Log, load

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


def measured(log: Log, node: str) -> Json:
    """Dark seconds of each Service (`namespace/name`), and seconds until the node was `emptied`, or None."""
    services = [(o.namespace(s), o.name(s)) for s in log.before.of("Service") if s["spec"].get("selector")]
    dark = {f"{ns}/{name}": round(measures.dark_seconds(log, ns, name), 1) for ns, name in sorted(services)}
    return {"dark": dark, "emptied": measures.emptied_in(log, node)}


def side_by_side(maintain: Json, kubectl: Json) -> list[str]:
    """A table of what was measured of `maintain` and of `kubectl drain`."""

    def seconds(value: float | None) -> str:
        return "not at all" if value is None else f"{value:.1f} s"

    dark = [
        (f"{name} was dark for", seconds(maintain["dark"].get(name, 0.0)), seconds(after))
        for name, after in kubectl["dark"].items()
        if after or maintain["dark"].get(name)
    ]
    emptied = ("the node was empty after", seconds(maintain["emptied"]), seconds(kubectl["emptied"]))
    rows = [("", "maintain", "kubectl drain"), *dark, emptied]
    width = max(len(row[0]) for row in rows)
    return [f"{what:{width}}  {ours:>10}  {theirs:>13}" for what, ours, theirs in rows]


def main() -> int:
    parser = argparse.ArgumentParser(prog="witness.demo", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--audit-log", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--within", type=float, default=900.0)
    options = parser.parse_args()
    mark = options.audit_log.stat().st_size
    log = observe(options.kubeconfig, options.folder, options.within)
    found = measured(log, options.node)
    (options.folder / "measured.json").write_text(json.dumps(found), encoding="utf-8")
    if options.beside:
        print("\n".join(side_by_side(json.loads((options.beside / "measured.json").read_text("utf-8")), found)))
        return 0
    requests = [r for r in audit.read(options.audit_log, mark) if not r.by_the_system]
    stop = options.folder / "stop"
    failed = stop.exists() and "failed" in stop.read_text(encoding="utf-8")
    lines, held = verdict(log, requests, failed=failed)
    print("\n".join(lines))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
