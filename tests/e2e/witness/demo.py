# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The witness of the demo: it watches while the node of the single replicas is drained, and says what happened.

    python -m witness.demo start --kubeconfig FILE --folder DIR [--load COMMAND] --audit-log FILE --node NAME
    python -m witness.demo stop --folder DIR [--failed]
    python -m witness.demo drain --kubeconfig FILE --folder DIR [--load COMMAND] --tool NAME --by COMMAND ...

`start` returns when it watches; what started goes on until `stop`, which prints its verdict. The exit code is 1 when a
service went dark or anything else did not hold. A run that `--failed` may keep what a resumption needs. With `--load`,
a command that starts `lab-web`, all Services are asked meanwhile. `drain` measures another tool in the same way: it
lets that drain the node, by a command with `NODE` in place of the name, returns the node to service once all pods run
elsewhere, and prints what was measured so far side by side. What was measured is in `DIR/measured.json` and
`DIR/TOOL/measured.json`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from support.waiting import until

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
START = 120.0
"""Seconds that the witness, and pods on a busy machine, have to start."""
WITHIN = 900.0
"""Seconds after which nobody will tell it to stop any more."""


@contextmanager
def watched(options: argparse.Namespace, folder: Path) -> Iterator[Traffic | None]:
    """Watch in a process of its own, and ask; what was seen is in `witness.jsonl` afterwards."""
    listed = folder / "listed"
    command = [sys.executable, "-m", "witness", "--kubeconfig", str(options.kubeconfig), "--ready", str(listed)]
    log = ["--log", str(folder / "witness.jsonl")]
    with subprocess.Popen([*command, *log], stdin=subprocess.PIPE) as process, asked(options, folder) as traffic:
        until(lambda: listed.exists() or process.poll() is not None, START, "the witness watches")
        yield traffic
        time.sleep(QUIET)
        process.communicate()


def all_run(api: Api) -> bool:
    """Whether each workload has as many ready pods as it wants. By the pods: a status is behind them."""
    pods = [pod for pod in api.items(PATHS["Pod"]) if o.ready(pod)]
    workloads = [one for kind in ("Deployment", "StatefulSet") for one in api.items(PATHS[kind])]
    return all(
        sum(o.namespace(pod) == o.namespace(one) and o.matches(one["spec"]["selector"], o.labels(pod)) for pod in pods)
        >= o.replicas(one)
        for one in workloads
    )


def node_of_singles(api: Api) -> str:
    """The node where the youngest single replica of the sample is."""
    pods = api.items(PATHS["Pod"], labelSelector="tier=single")
    return str(max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])["spec"]["nodeName"])


WORDS = {"new": "new", "keep": "kept"}


def told(traffic: Traffic) -> list[str]:
    """What became of the requests, line by line."""
    sent, failed = traffic.counts("sent"), traffic.failed()
    lines = [f"{sum(failed.values()):,} of {sum(sent.values()):,} requests to {len(sent)} services failed."]
    return lines + [
        f"{one['service']}: {one['failed']:,} of {one['sent']:,} requests over {WORDS[one['kind']]} connections failed."
        for one in traffic.verdict["services"]
        if one["failed"]
    ]


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


def asked(options: argparse.Namespace, folder: Path) -> AbstractContextManager[Traffic | None]:
    """Requests to all Services through kube-proxy, by new connections and by kept ones, if they are wanted."""
    if not options.load:
        return nullcontext()
    *prefix, program = shlex.split(options.load)
    traffic = Traffic(Path(program), folder, prefix)
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


def start(options: argparse.Namespace) -> int:
    """Start a process that watches until it is told to stop; it does now."""
    command = [sys.executable, "-m", "witness.demo", "watch", *sys.argv[2:]]
    options.folder.mkdir(parents=True, exist_ok=True)
    log, ready = options.folder / "witness.log", options.folder / "ready"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    until(lambda: ready.exists() or process.poll() is not None, START, "the witness watches")
    print(log.read_text(encoding="utf-8"))
    return process.poll() or 0


def watch(options: argparse.Namespace) -> int:
    """Watch until told to stop, then say whether all held."""
    mark, stopped = options.audit_log.stat().st_size, options.folder / "stop"
    with watched(options, options.folder) as traffic:
        (options.folder / "ready").touch()
        until(stopped.exists, WITHIN, "the run is over")
    log = keep(options.folder, options.node, traffic)
    requests = [r for r in audit.read(options.audit_log, mark) if not r.by_the_system]
    lines, held = verdict(log, requests, failed=bool(stopped.read_text(encoding="utf-8")))
    text = "\n".join(lines + (told(traffic) if traffic else []))
    part = options.folder / "verdict.part"
    part.write_text(json.dumps({"text": text, "held": held}), encoding="utf-8")
    part.rename(options.folder / "verdict.json")
    return 0


def stop(options: argparse.Namespace) -> int:
    """End the watch; its verdict."""
    found = options.folder / "verdict.json"
    (options.folder / "stop").write_text("failed" if options.failed else "", encoding="utf-8")
    until(found.exists, START, f"the verdict, see {options.folder}/witness.log")
    said = json.loads(found.read_text(encoding="utf-8"))
    print(said["text"])
    return 0 if said["held"] else 1


def drain(options: argparse.Namespace) -> int:
    """Measure another tool."""
    folder = options.folder / options.tool
    folder.mkdir()
    api = Api(options.kubeconfig, "kubeops-witness")
    node = node_of_singles(api)
    with watched(options, folder) as traffic:
        done = subprocess.run([word.replace("NODE", node) for word in options.by], capture_output=True, check=False)
        until(lambda: all_run(api), START, "every pod runs elsewhere")
        api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
    keep(folder, node, traffic)
    if done.returncode:
        print((done.stderr or done.stdout).decode().strip(), file=sys.stderr)
    others = sorted(options.folder.glob("*/measured.json"), key=lambda file: file.stat().st_mtime)
    files = {"maintain": options.folder / "measured.json", **{file.parent.name: file for file in others}}
    print("\n".join(side_by_side({tool: json.loads(file.read_text("utf-8")) for tool, file in files.items()})))
    return 0


def keep(folder: Path, node: str, traffic: Traffic | None) -> Log:
    """Write down what was measured; what was seen."""
    log = load(folder / "witness.jsonl")
    (folder / "measured.json").write_text(json.dumps(measured(log, node, traffic)), encoding="utf-8")
    return log


def main() -> int:
    acts = {"start": start, "watch": watch, "stop": stop, "drain": drain}
    parser = argparse.ArgumentParser(prog="witness.demo", description=__doc__)
    parser.add_argument("act", choices=acts)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--audit-log", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--node", default="")
    parser.add_argument("--load", default="")
    parser.add_argument("--failed", action="store_true")
    parser.add_argument("--tool", default="")
    parser.add_argument("--by", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    return acts[options.act](options)


if __name__ == "__main__":
    sys.exit(main())
