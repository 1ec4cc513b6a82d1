# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of a lab of real nodes: network namespaces of its own,
so that the machine's gets nothing.

The control plane and whoever sends requests are in one of them, at FABRIC; each node is in another,
at its address. A bridge joins them. Every node sends everything through FABRIC, which knows on
which node each pod is.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NETWORK = "10.77.0"
FABRIC = f"{NETWORK}.1"
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
NODES = 20
"""How many nodes there may be: each costs some 70 MiB, and the machine's cores are theirs too."""

NAMESPACES = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")


def address(number: int) -> str:
    """The address of the node of this number, from 1 on."""
    return f"{NETWORK}.{number + 10}"


def pods_of(number: int) -> str:
    """The addresses of the pods on it."""
    return f"10.244.{number}.0/24"


def within(network: str, *command: str) -> list[str]:
    """A command in a network namespace."""
    return ["nsenter", f"--net={NAMESPACES / network}", "--", *command]


def ip(network: str, *lines: str) -> None:
    """Carries out lines of `ip` in a network namespace, all or an error."""
    subprocess.run(
        ["ip", "-netns", network, "-batch", "-"], input="\n".join(lines), text=True, check=True
    )


def setting(network: str, name: str, value: str) -> None:
    """Sets one of the kernel's settings in a network namespace."""
    file = f"/proc/sys/net/ipv4/{name}"
    subprocess.run(
        within(network, "tee", file), input=value, text=True, check=True, stdout=subprocess.DEVNULL
    )


def create(network: str) -> None:
    """The namespace of the control plane."""
    subprocess.run(["ip", "netns", "add", network], check=True)
    ip(
        network,
        "link set lo up",
        "link add nodes type bridge",
        f"address add {FABRIC}/24 dev nodes",
        "link set nodes up",
        # Servers look for a default route to learn their address.
        "route add default dev nodes",
    )
    setting(network, "ip_forward", "1")
    setting(network, "conf/all/send_redirects", "0")
    setting(network, "conf/nodes/send_redirects", "0")


def add(network: str, name: str, number: int) -> None:
    """The namespace of a node, and its cable to the bridge."""
    node = f"{network}-{name}"
    subprocess.run(["ip", "netns", "add", node], check=True)
    ip(
        network,
        f"link add {name} type veth peer name eth0 netns {node}",
        f"link set {name} master nodes up",
        f"route add {pods_of(number)} via {address(number)}",
    )
    ip(
        node,
        "link set lo up",
        f"address add {address(number)}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {FABRIC}",
        # Of pods that have gone: their packets would circle between this node and the bridge.
        f"route add blackhole {pods_of(number)}",
    )


def remove(network: str, name: str, number: int) -> None:
    """Takes away what `add` made."""
    with suppress(subprocess.CalledProcessError):
        ip(network, f"route del {pods_of(number)} via {address(number)}")
    delete(f"{network}-{name}")


def delete(network: str) -> None:
    """Deletes a namespace, or a lab's and those of its nodes; nobody is left in them."""
    for found in sorted(NAMESPACES.glob(f"{network}*")) if NAMESPACES.exists() else []:
        if found.name == network or found.name.startswith(f"{network}-"):
            subprocess.run(["ip", "netns", "delete", found.name], check=True)
    for groups in hierarchies(network):
        until = time.monotonic() + 5
        while groups.exists() and time.monotonic() < until:
            for group in [
                *sorted((path for path in groups.rglob("*") if path.is_dir()), reverse=True),
                groups,
            ]:
                with suppress(OSError):
                    group.rmdir()
            time.sleep(0.05)


def hierarchies(network: str) -> Iterator[Path]:
    """The lab's directories in the hierarchies of cgroups."""
    yield CGROUPS / network
    yield from CGROUPS.glob(f"*/{network}")


TOOLS = {
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "pgrep": "procps",
}
"""What the nodes call, by the package that has it on Debian and Ubuntu."""

NAMESPACE_OPTIONS = ("--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--fork")


def obstacle(system: str, user: int, nodes: int) -> str:
    """Why there can be no real nodes on this machine; empty if there can."""
    if system != "Linux":
        return f"they need Linux, and this is {system}"
    if user != 0:
        return "they need root"
    if nodes > NODES:
        return f"they are at most {NODES}"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=search_path()) is None]
    if missing:
        packages = " ".join(dict.fromkeys(TOOLS[tool] for tool in missing))
        return f"there is no {', '.join(missing)} (Debian and Ubuntu: apt install {packages})"
    tried = subprocess.run(
        ["unshare", *NAMESPACE_OPTIONS, "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        return f"the kernel refuses namespaces ({' '.join(tried.stderr.split())})"
    if not Path("/dev/kmsg").exists():
        return "there is no /dev/kmsg"
    return cgroup_obstacle()


def search_path() -> str:
    """Where the tools are looked for: sshd and nft are in folders that not everybody's PATH has."""
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


CONTROLLERS = frozenset({"cpu", "cpuset", "memory", "pids"})
"""What a kubelet needs of cgroups."""


def cgroup_obstacle() -> str:
    """Why the nodes can have no cgroups of their own; empty if they can."""
    passed = CGROUPS / "cgroup.subtree_control"
    if passed.exists():
        roots = [CGROUPS]
        found = set(passed.read_text(encoding="utf-8").split())
    else:
        mounted = [
            line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
        ]
        roots = [Path(words[1]) for words in mounted if words[2] == "cgroup"]
        found = {name for words in mounted if words[2] == "cgroup" for name in words[3].split(",")}
    if lacking := sorted(CONTROLLERS - found):
        return f"there are no cgroups with {', '.join(lacking)} for them in {CGROUPS}"
    probe = f"kubeops-probe-{time.monotonic_ns()}"
    for root in roots:
        try:
            (root / probe).mkdir()
            (root / probe).rmdir()
        except OSError as error:
            return f"no cgroup can be made in {root} ({error.strerror})"
    return ""
