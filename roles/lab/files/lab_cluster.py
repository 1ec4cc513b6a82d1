# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts and deletes one named cluster of the lab.

Reads one JSON object from stdin, prints one to stdout; a failure is one sentence on stderr and exit
code 1. Input, by command:

    up    {name, state, kind, nodes, binaries, version, config, scheduler, wish, port, wait, check, metrics, beside,
           crds} -> {changed, what, kubeconfig, ...}
    down  {name, state, check} -> {changed, what}

`state` is the directory of all clusters; in it, `clusters/<name>` is kwokctl's or that of the real
nodes, and `labs/<name>` is ours: the configuration, the kubeconfig, links to the binaries, and
finally `lab.json`, without which a cluster is incomplete. `version` is that of Kubernetes, `config`
kwokctl's configuration, `scheduler` that of Koordinator's, `wish` a lab_real.Wish. `check` only
returns what would be done. `metrics`: with metrics-server. `beside` names what runs next to the
cluster (lab_beside.py), `crds` the directory with the CRDs that it needs.
"""  # noqa: E501

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lab_real
from lab_beside import equip
from lab_place import (
    STAGES,
    LabError,
    Place,
    alone,
    command_line,
    components,
    end,
    kubeconfig_option,
    ports,
    processes,
)

FILES = Path(__file__).parent
AS_THEY_ARE = (
    *STAGES.values(),
    "audit-policy.yaml",
    "metrics/kustomization.yaml",
    "metrics/metrics-server.yaml",
)


def configuration(given: Mapping[str, Any]) -> dict[str, str]:
    """What the cluster is to be like: the texts of files, by their paths in the lab's directory."""
    texts = {name: (FILES / name).read_text(encoding="utf-8") for name in AS_THEY_ARE}
    return {
        # KWOK's own template language, with the version of the kubelets left to us.
        **{name: text.replace("LAB_KUBERNETES", given["version"]) for name, text in texts.items()},
        "config.yaml": given["config"],
        "koord-scheduler.yaml": given["scheduler"],
        "real.json": json.dumps(
            {name: given[name] for name in ("kind", "wish", "binaries")}, indent=2, sort_keys=True
        ),
    }


def write(place: Place, files: Mapping[str, str]) -> None:
    """Writes the configuration, for nobody else to read."""
    for name, text in files.items():
        file = place.lab / name
        for folder in reversed(file.parents):
            folder.mkdir(0o700, exist_ok=True)
        file.touch(0o600)
        file.write_text(text, encoding="utf-8")


def trouble(place: Place, kubectl: str, wanted: str) -> str:
    """Why the existing cluster cannot be reused; empty if it can."""
    try:
        facts = json.loads(place.facts.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "was not finished"
    if facts["fingerprint"] != wanted:
        return "has another configuration or version"
    gone = sorted(set(facts["components"]) - components(place))
    if gone:
        return f"does not run ({', '.join(gone)})"
    answer = subprocess.run(
        [
            kubectl,
            f"--kubeconfig={facts['kubeconfig']}",
            "--request-timeout=10s",
            "get",
            "--raw",
            "/readyz",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if answer.returncode == 0 else f"does not answer ({answer.stderr.strip()})"


def check_port(port: int) -> None:
    """Fails if the requested port is not available."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise LabError(
                f"port {port} on 127.0.0.1 cannot be used ({error.strerror}): "
                "choose another lab_port, or leave it out for a free one"
            ) from error


COMPONENTS = frozenset(
    {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller"}
)
ATTEMPTS = 3
GOGC = "300"
"""How far the heap of a server may grow before Go collects garbage, in percent:
a lab's is small, its cores are few.
"""


def create(place: Place, binaries: Mapping[str, str], wait: int) -> None:
    """Has kwokctl start the cluster."""
    environment = {
        **{
            key: value
            for key, value in os.environ.items()
            if not key.startswith("KWOK_") and key != "KUBECONFIG"
        },
        "GOGC": GOGC,
        "KWOK_WORKDIR": str(place.state),
        "KWOK_KUBECTL_BINARY": binaries["kubectl"],
        "PATH": f"{place.lab / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    command = [binaries["kwokctl"], "create", "cluster", f"--name={place.name}", f"--wait={wait}s"]
    command += [f"--config={place.lab / 'config.yaml'}", kubeconfig_option(place)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = said(done.stderr)
        logs = place.cluster / "logs"
        if not logs.exists():
            raise LabError(f"kwokctl could not create the lab {place.name}: {reason}")
        kept = place.lab / "failed-logs"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(logs, kept)
        end(place)
        raise LabError(
            f"the lab {place.name} did not start within {wait} s: {reason} (logs: {kept})"
        )


def ended(place: Place, metrics: bool, wait: int) -> list[str]:
    """Waits until all components serve; those that do not run any more.

    kwokctl returns when the API server is ready. A component that serves later than that ends if
    somebody has taken its port since kwokctl found it free, and kwokctl says nothing of it.
    """
    wanted = COMPONENTS | ({"metrics-server"} if metrics else set())
    until = time.monotonic() + wait
    while True:
        running = processes(place)
        gone = wanted - set(running.values())
        silent = [
            name
            for pid, name in running.items()
            if name in wanted and not serves(command_line(pid))
        ]
        if gone or not silent:
            return sorted(gone)
        if time.monotonic() > until:
            raise LabError(
                f"{', '.join(silent)} of the lab {place.name} did not serve within {wait} s"
            )
        time.sleep(0.05)


def serves(words: Sequence[str]) -> bool:
    """Whether somebody listens on the port that a command line names."""
    port = next((word.partition("=")[2] for word in words if word.startswith("--secure-port=")), "")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return not port or probe.connect_ex(("127.0.0.1", int(port))) == 0


def start(place: Place, binaries: Mapping[str, str], metrics: bool, wait: int) -> None:
    """Creates the cluster with all of its components, if need be with other ports once more.

    Under a lock until all of them serve, because two kwokctl at once would choose
    the same free ports.
    """
    for _attempt in range(ATTEMPTS):
        with alone(ports()):
            create(place, binaries, wait)
            gone = ended(place, metrics, wait)
        if not gone:
            return
        end(place)
    raise LabError(f"{', '.join(gone)} of the lab {place.name} ended at each of {ATTEMPTS} starts")


def direct(place: Place, kubectl: str, wait: int) -> None:
    """Installs KWOK's stages, those of nodes first: a pod controller that starts before the node
    controller never learns which nodes are dead (KWOK v0.8.0;
    stages in its configuration start in random order).
    """
    log = place.cluster / "logs" / "kwok-controller.log"
    for kind, file in STAGES.items():
        apply = [
            kubectl,
            f"--kubeconfig={place.lab / 'kubeconfig'}",
            "apply",
            "--server-side",
            f"--filename={place.lab / file}",
        ]
        done = subprocess.run(apply, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(
                f"the lab {place.name} refuses the stages of its {kind}s: {done.stderr.strip()}"
            )
        until = time.monotonic() + wait
        while not any(
            "Start stage controller" in line and f'"{kind}"' in line
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if time.monotonic() > until:
                raise LabError(
                    f"KWOK did not take up the stages of {kind}s within {wait} s, see {log}"
                )
            time.sleep(0.05)


def said(log: str) -> str:
    """The errors in a log of kwokctl, one JSON object per line."""
    errors = []
    for line in log.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry.get("level") in {"ERROR", "WARN"}:
            errors.append(str(entry.get("err") or entry.get("msg")))
    return " | ".join(dict.fromkeys(errors)) or " ".join(log.split()[-40:]) or "no message"


def link(place: Place, binaries: Mapping[str, str]) -> None:
    """One directory with all binaries of this cluster, for PATH."""
    folder = place.lab / "bin"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, path in binaries.items():
        (folder / name).symlink_to(path)


def up(given: Mapping[str, Any]) -> dict[str, Any]:
    """Reuses a healthy cluster with the wanted configuration, or creates one."""
    place = Place(given["name"], Path(given["state"]))
    binaries: Mapping[str, str] = given["binaries"]
    files = configuration(given)
    fingerprint = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    with alone(place.state / f".{place.name}.lock"):
        there = place.cluster.exists() or bool(processes(place))
        wrong = trouble(place, binaries["kubectl"], fingerprint) if there else ""
        changed = not there or bool(wrong)
        what = f"{'replaced: it ' + wrong if wrong else 'started'}" if changed else "runs already"
        if changed and not given["check"]:
            if there:
                end(place)
            if given["port"]:
                check_port(given["port"])
            write(place, files)
            link(place, binaries)
            if given["kind"] == "real":
                lab_real.create(place, binaries, given["port"], given["wait"])
            else:
                start(place, binaries, given["metrics"], given["wait"])
                direct(place, binaries["kubectl"], given["wait"])
            finish(place, given["kind"], fingerprint)
        if given["kind"] == "real" and not given["check"]:
            settled = lab_real.settle(place, given["nodes"], given["wait"])
            if settled and not changed:
                changed, what = True, f"runs already, but for {' and '.join(settled)}"
        beside = (
            []
            if given["check"]
            else equip(place, binaries, given["crds"], given["beside"], given["wait"])
        )
        if beside and not changed:
            changed, what = True, f"runs already, but for {' and '.join(beside)}: started"
        facts = json.loads(place.facts.read_text(encoding="utf-8")) if place.facts.exists() else {}
        return {**facts, "changed": changed, "what": what}


def finish(place: Place, kind: str, fingerprint: str) -> None:
    """Records atomically that the cluster is complete."""
    parts = lab_real.COMPONENTS if kind == "real" else components(place)
    facts = {
        "name": place.name,
        "kind": kind,
        "kubeconfig": str(place.lab / "kubeconfig"),
        "audit_log": str(place.cluster / "logs" / "audit.log"),
        "logs": str(place.cluster / "logs"),
        "bin": str(place.lab / "bin"),
        "components": sorted(parts),
        "fingerprint": fingerprint,
    }
    if kind == "real":
        facts.update(network=place.network, inventory=str(place.lab / "inventory.json"))
    draft = place.facts.with_suffix(".part")
    draft.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    draft.rename(place.facts)


def down(given: Mapping[str, Any]) -> dict[str, Any]:
    """Terminates a cluster and deletes all of its files."""
    place = Place(given["name"], Path(given["state"]))
    if not place.state.exists():
        return {"changed": False, "what": "was not there"}
    lock = place.state / f".{place.name}.lock"
    with alone(lock):
        there = place.cluster.exists() or place.lab.exists() or bool(processes(place))
        if there and not given["check"]:
            end(place)
            shutil.rmtree(place.lab, ignore_errors=True)
    return {"changed": there, "what": "removed" if there else "was not there"}


NUMBERS = frozenset({"nodes", "port", "wait"})
COMMANDS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"up": up, "down": down}


def main() -> int:
    """Runs the command named on the command line."""
    # Before ansible-core 2.19 a template that stands alone is text.
    given = {
        key: int(value) if key in NUMBERS else value for key, value in json.load(sys.stdin).items()
    }
    try:
        print(json.dumps(COMMANDS[sys.argv[1]](given)))
    except (LabError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
