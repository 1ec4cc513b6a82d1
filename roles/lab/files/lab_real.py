# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of real nodes: kubelets, containers, a pod network and Services.

Each node is a set of namespaces on this machine (real/lab-node). Servers listen in network
namespaces of the lab's own (lab_network.py); only the API server and the nodes' SSH are forwarded
to ports on loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import string
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lab_image
import lab_network
from lab_beside import log_of
from lab_place import LabError, Place, alone, command_line, kill, ports, processes
from lab_ports import free_port

FILES = Path(__file__).with_name("real")
SANDBOX = "lab.kubeops.io/sandbox:1"
COMPONENTS = frozenset({"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"})
SERVICE_DNS = "10.96.0.10"
API_NAMES = ("127.0.0.1", lab_network.FABRIC, "10.96.0.1", "localhost", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller wants of the cluster, as its `real.json` says it.

    `args` are flags by server, `images` the names under which each node has the image, `lease`
    seconds, `pods` at most on a node; a node is in one of `zones` zones; `metrics`:
    with metrics-server.
    """

    args: Mapping[str, Mapping[str, Any]]
    images: Sequence[str]
    lease: int
    pods: int
    zones: int
    metrics: bool


def wish_of(place: Place) -> Wish:
    """What the cluster was, or will be, started with."""
    given = json.loads((place.lab / "real.json").read_text(encoding="utf-8"))["wish"]
    # Before ansible-core 2.19 a template that stands alone is text.
    numbers = {name: int(given[name]) for name in ("lease", "pods", "zones")}
    return Wish(**{**given, **numbers})


def labels(number: int, zones: int) -> dict[str, str]:
    """The labels that whoever sets up a node gives it, as KWOK's nodes have them."""
    return {
        "node-role.kubernetes.io/worker": "",
        "topology.kubernetes.io/region": "lab",
        "topology.kubernetes.io/zone": f"zone-{string.ascii_lowercase[(number - 1) % zones]}",
    }


def node_name(number: int) -> str:
    """As KWOK's nodes are called."""
    return f"node-{number:03d}"


def kubectl(place: Place, *words: str, given: str = "") -> str:
    """What kubectl answers."""
    command = [f"{place.cluster}/bin/kubectl", f"--kubeconfig={place.kubeconfig}", *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the lab {place.name}: kubectl {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def launch(
    place: Place, name: str, command: Sequence[str], stdin: int = subprocess.DEVNULL
) -> None:
    """Starts a process that outlives this one, by its path in the lab's directory,
    by which it is found again.
    """
    with log_of(place, name).open("ab") as log:
        subprocess.Popen(
            command,
            stdin=stdin,
            stdout=log,
            stderr=log,
            cwd=place.cluster,
            start_new_session=True,
            env={
                **os.environ,
                "GOGC": "300",
                "PATH": f"{place.cluster}/bin:{lab_network.search_path()}",
            },
        )


def serve(place: Place, name: str, flags: Mapping[str, Any]) -> None:
    """Starts a server in the lab's network."""
    words = [f"--{key}={value}" for key, value in flags.items()]
    launch(place, name, lab_network.within(place.network, f"{place.cluster}/bin/{name}", *words))


def forward(place: Place, name: str, port: int, target: str) -> int:
    """Forwards a port on this machine's loopback, a free one for 0,
    to an address in the lab's network.

    The socket is opened here and inherited by the process, which is there.
    """
    listener = socket.create_server(("127.0.0.1", port))
    command = lab_network.within(place.network, f"{place.cluster}/bin/lab-web", "forward", target)
    launch(place, name, command, listener.fileno())
    chosen: int = listener.getsockname()[1]
    listener.close()
    return chosen


def write_kubeconfig(place: Place, file: Path, user: str, token: str, host: str) -> None:
    """A kubeconfig with the token of a user."""
    port = json.loads((place.cluster / "port").read_text(encoding="utf-8"))
    server = f"https://{host}:{port}"
    authority = str(place.cluster / "pki" / "server.crt")
    name = f"lab-{place.name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority": authority}}
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    file.touch(mode=0o600)
    # A configuration that begins with a brace is not always taken for YAML.
    file.write_text(f"---\n{json.dumps(config, indent=2)}\n", encoding="utf-8")


def users(place: Place) -> dict[str, str]:
    """The tokens of users, for as many nodes as there may be, as the API server reads them
    only when it starts.
    """
    file = place.cluster / "pki" / "tokens.csv"
    if not file.exists():
        nodes = [node_name(number) for number in range(1, lab_network.NODES + 1)]
        rows = [("admin", "system:masters"), ("system:kube-proxy", "")]
        rows += [(f"system:node:{name}", "system:nodes") for name in nodes]
        file.touch(mode=0o600)
        lines = [f'{uuid.uuid4()},{user},{user},"{group}"' for user, group in rows]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = [line.split(",") for line in file.read_text(encoding="utf-8").splitlines()]
    return {words[1]: words[0] for words in found}


def create(place: Place, binaries: Mapping[str, str], port: int, wait: int) -> None:
    """Starts the control plane, whose API server is at a port of loopback, a free one for 0."""
    wish = wish_of(place)
    lay_out(place, binaries, wish)
    lab_network.delete(place.network)
    lab_network.create(place.network)
    with alone(ports()):
        port = port or free_port()
        (place.cluster / "port").write_text(str(port), encoding="utf-8")
        forward(place, "forward", port, f"{lab_network.FABRIC}:{port}")
    tokens = users(place)
    write_kubeconfig(place, place.kubeconfig, "admin", tokens["admin"], "127.0.0.1")
    proxy = place.cluster / "kube-proxy.kubeconfig"
    write_kubeconfig(
        place, proxy, "system:kube-proxy", tokens["system:kube-proxy"], lab_network.FABRIC
    )
    for name, flags in servers(place, port).items():
        serve(place, name, {**flags, **wish.args.get(name, {})})
    await_api(place, wait)
    role = ["--clusterrole=system:node-proxier", "--user=system:kube-proxy"]
    kubectl(place, "create", "clusterrolebinding", "lab:kube-proxy", *role)
    configuration = place.cluster / "kube-proxy.yaml"
    # It waits for half a minute for a node of its name; the first one will be there soon.
    configuration.write_text(
        filled(place, "kube-proxy.yaml", name=node_name(1), kubeconfig=proxy), encoding="utf-8"
    )
    serve(place, "kube-proxy", {"config": configuration})
    if wish.metrics:
        serve(place, "metrics-server", metrics_server(place))


def lay_out(place: Place, binaries: Mapping[str, str], wish: Wish) -> None:
    """The lab's files but those of its nodes."""
    for folder in ("bin", "logs", "pki", "ssh", "nodes"):
        (place.cluster / folder).mkdir(parents=True, exist_ok=True)
    for name, path in binaries.items():
        (place.cluster / "bin" / name).symlink_to(path)
    (place.cluster / "settings").write_text(f"NETWORK={place.network}\n", encoding="utf-8")
    (place.cluster / "downtime").write_text("2\n", encoding="utf-8")
    shutil.copy(FILES / "lab-node", place.cluster / "lab-node")
    command = place.lab / "bin" / "lab-node"
    command.unlink(missing_ok=True)
    command.symlink_to(place.cluster / "lab-node")
    web = f"{place.cluster}/bin/lab-web"
    subprocess.run([web, "keys", str(place.cluster / "pki"), *API_NAMES], check=True)
    for name in ("host", "user"):
        key = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            f"lab-{place.name}",
            "-f",
            f"{place.cluster}/ssh/{name}",
        ]
        subprocess.run(key, check=True)
    (place.cluster / "ssh" / "sshd_config").write_text(
        filled(place, "sshd_config"), encoding="utf-8"
    )
    public = (place.cluster / "ssh" / "host.pub").read_text(encoding="utf-8")
    (place.cluster / "ssh" / "known_hosts").write_text(f"[127.0.0.1]:* {public}", encoding="utf-8")
    lab_image.write(
        place.cluster / "images.tar", Path(binaries["lab-web"]).resolve(), [SANDBOX, *wish.images]
    )


def servers(place: Place, port: int) -> dict[str, dict[str, Any]]:
    """The flags of each server of the control plane."""
    pki = place.cluster / "pki"
    etcd = "unix://etcd.sock:0"
    peer = "unix://peer.sock:0"
    common = {"kubeconfig": place.kubeconfig}
    return {
        "etcd": {
            "data-dir": place.cluster / "etcd",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
            "listen-client-urls": etcd,
            "advertise-client-urls": etcd,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        },
        "kube-apiserver": {
            "etcd-servers": etcd,
            "advertise-address": lab_network.FABRIC,
            "secure-port": port,
            "tls-cert-file": pki / "server.crt",
            "tls-private-key-file": pki / "server.key",
            "token-auth-file": pki / "tokens.csv",
            "service-cluster-ip-range": lab_network.SERVICE_NETWORK,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": pki / "server.key",
            "service-account-signing-key-file": pki / "server.key",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
            "enable-aggregator-routing": "true",
            "requestheader-client-ca-file": pki / "server.crt",
            "requestheader-allowed-names": "",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-username-headers": "X-Remote-User",
            "proxy-client-cert-file": pki / "server.crt",
            "proxy-client-key-file": pki / "server.key",
            "audit-policy-file": place.lab / "audit-policy.yaml",
            "audit-log-path": place.cluster / "logs" / "audit.log",
        },
        "kube-controller-manager": {
            **common,
            "service-account-private-key-file": pki / "server.key",
            "root-ca-file": pki / "server.crt",
            "node-monitor-period": "1s",
            "node-monitor-grace-period": "40s",
        },
        "kube-scheduler": dict(common),
    }


def metrics_server(place: Place) -> dict[str, Any]:
    """The flags of metrics-server, which is behind a Service with no pods."""
    given = dict.fromkeys(
        ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"), place.kubeconfig
    )
    return {
        **given,
        "secure-port": 4443,
        "cert-dir": place.cluster / "pki" / "metrics-server",
        "kubelet-insecure-tls": "true",
        "kubelet-preferred-address-types": "InternalIP",
        "metric-resolution": "10s",
        "kubelet-request-timeout": "5s",
    }


def await_api(place: Place, wait: int) -> None:
    """Waits until the API server is ready."""
    until = time.monotonic() + wait
    while True:
        try:
            kubectl(place, "get", "--raw", "/readyz", "--request-timeout=5s")
        except LabError as error:
            if time.monotonic() > until:
                raise LabError(f"{error} (logs: {place.cluster / 'logs'})") from error
            time.sleep(0.1)
        else:
            return


def filled(place: Place, file: str, **values: object) -> str:
    """The text of one of our files, with its places filled in."""
    text = (FILES / file).read_text(encoding="utf-8")
    common = {
        "home": place.cluster,
        "dns": SERVICE_DNS,
        "pod_network": lab_network.POD_NETWORK,
        "programs": place.cluster / "bin",
        "sandbox": SANDBOX,
    }
    return string.Template(text).substitute({**common, **values})


def settle(place: Place, nodes: int, wait: int) -> list[str]:
    """Adds missing nodes and removes surplus ones, and waits until all are ready;
    the names of those that changed.
    """
    wish = wish_of(place)
    folders = place.cluster / "nodes"
    wanted = {node_name(number): number for number in range(1, nodes + 1)}
    there = {folder.name for folder in folders.iterdir()}
    # A node that never came up is not in the cluster; a start that was killed may have left it.
    joined = set(
        kubectl(place, "get", "nodes", "--output=jsonpath={.items[*].metadata.name}").split()
    )
    surplus = sorted(there - set(wanted))
    missing = sorted(set(wanted) - (there & joined))
    if missing:
        check_watches(place, len(missing))
    for name in sorted(there - (set(wanted) & joined)):
        remove(place, name)
    for name in missing:
        add(place, wish, name, wanted[name])
    hosts = json.dumps(inventory(place), indent=2)
    (place.lab / "inventory.json").write_text(f"{hosts}\n", encoding="utf-8")
    if missing:
        # To validate here as well, a server that has just started would have to
        # describe all of its API.
        apply = (
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=lab",
            "--validate=false",
        )
        if wish.metrics:
            # While they start.
            kubectl(place, *apply, f"--filename={FILES / 'metrics-server.yaml'}")
        await_nodes(place, missing, wait)
        labelled = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels(wanted[name], wish.zones)},
            }
            for name in missing
        ]
        listed = {"apiVersion": "v1", "kind": "List", "items": labelled}
        kubectl(place, *apply, "--filename=-", given=json.dumps(listed))
    return surplus + missing


WATCHES = 9
"""How many inotify instances a node takes (kubelet v1.36, containerd v2.2);
users often have 128.
"""


def check_watches(place: Place, nodes: int) -> None:
    """Fails if the kernel would refuse a kubelet its watches, without which it never joins."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="utf-8"))
    free = limit - sum(
        1 for link in Path("/proc").glob("[0-9]*/fd/*") if target(link) == "anon_inode:inotify"
    )
    if free < nodes * WATCHES:
        raise LabError(
            f"{nodes} more nodes of the lab {place.name} need {nodes * WATCHES} inotify "
            f"instances, and of {limit} only {max(free, 0)} are free: sysctl -w "
            "fs.inotify.max_user_instances=1024, or delete another lab"
        )


def target(link: Path) -> str:
    """Where a symbolic link leads; nowhere, if it is gone."""
    try:
        return str(link.readlink())
    except OSError:
        return ""


def add(place: Place, wish: Wish, name: str, number: int) -> None:
    """A node, switched on."""
    node = place.cluster / "nodes" / name
    for folder in ("kubelet", "containerd", "log", "manifests", "cni"):
        (node / folder).mkdir(parents=True)
    (node / "machine-id").write_text(f"{uuid.uuid4().hex}\n", encoding="utf-8")
    lab_network.add(place.network, name, number)
    address = lab_network.address(number)
    port = forward(place, f"ssh-{name}", 0, f"{address}:22")
    (node / "settings").write_text(f"ADDRESS={address}\nSSH={port}\n", encoding="utf-8")
    write_kubeconfig(
        place, node / "kubeconfig", name, users(place)[f"system:node:{name}"], lab_network.FABRIC
    )
    values = {
        "name": name,
        "node": node,
        "pods": wish.pods,
        "pods_here": lab_network.pods_of(number),
        "lease": wish.lease,
        "kubeconfig": place.cluster / "kube-proxy.kubeconfig",
    }
    for file in ("kubelet.yaml", "kube-proxy.yaml", "containerd.toml"):
        (node / file).write_text(filled(place, file, **values), encoding="utf-8")
    (node / "cni" / "10-pods.conflist").write_text(
        filled(place, "pods.conflist", **values), encoding="utf-8"
    )
    subprocess.run([place.cluster / "lab-node", "on", name], check=True)


def remove(place: Place, name: str) -> None:
    """Switches a node off for good."""
    subprocess.run([place.cluster / "lab-node", "off", name], check=True)
    kubectl(place, "delete", "node", name, "--ignore-not-found")
    number = int(name.removeprefix("node-"))
    for pid in processes(place):
        if f"{lab_network.address(number)}:22" in command_line(pid):
            kill(place, pid)
    lab_network.remove(place.network, name, number)
    shutil.rmtree(place.cluster / "nodes" / name, ignore_errors=True)


def await_nodes(place: Place, names: Sequence[str], wait: int) -> None:
    """Waits until nodes are ready."""
    until = time.monotonic() + wait
    status = '{.status.conditions[?(@.type=="Ready")].status}'
    path = f'--output=jsonpath={{range .items[*]}}{{.metadata.name}}={status}{{"\\n"}}{{end}}'
    while True:
        ready = kubectl(place, "get", "nodes", path).splitlines()
        late = [name for name in names if f"{name}=True" not in ready]
        if not late:
            return
        if time.monotonic() > until:
            logs = place.cluster / "nodes" / late[0] / "log"
            raise LabError(
                f"{', '.join(late)} of the lab {place.name} did not become ready within "
                f"{wait} s, see {logs}"
            )
        time.sleep(0.2)


def inventory(place: Place) -> dict[str, Any]:
    """The nodes as hosts for Ansible, by SSH on loopback."""
    hosts = {}
    for node in sorted((place.cluster / "nodes").iterdir()):
        lines = (node / "settings").read_text(encoding="utf-8").split()
        settings = dict(line.split("=", 1) for line in lines)
        hosts[node.name] = {"ansible_port": int(settings["SSH"])}
    shared = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "root",
        "ansible_python_interpreter": sys.executable,
        "ansible_ssh_private_key_file": str(place.cluster / "ssh" / "user"),
        "ansible_ssh_common_args": (
            f"-o UserKnownHostsFile={place.cluster}/ssh/known_hosts -o IdentitiesOnly=yes"
        ),
    }
    return {"all": {"hosts": hosts, "vars": shared}}


def main() -> int:
    """Prints why there can be no real nodes here; nothing if there can: lab_real.py NODES."""
    print(lab_network.obstacle(os.uname().sysname, os.getuid(), int(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
