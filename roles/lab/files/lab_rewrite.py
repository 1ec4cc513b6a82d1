# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a container becomes a process of this machine: its command, its files,
its ports. Pure functions.

In a cluster, a descheduler finds the API server by its service account and has its own ports. Here
it gets a kubeconfig, and free ports of 127.0.0.1 instead of the configured ones. Its configuration
is changed as text in the copy that it reads, so that everything else in it,
errors included, is preserved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KOORDINATOR_KIND = "DeschedulerConfiguration"


@dataclass(frozen=True, slots=True)
class Program:
    """What the lab knows about a binary: its default ports and its flag for a kubeconfig."""

    secure_port: int
    plain_port: int = 0
    kubeconfig_flags: tuple[str, ...] = ()


PROGRAMS = {
    "koord-descheduler": Program(10258, plain_port=10251),
    "descheduler": Program(
        10258, kubeconfig_flags=("--client-connection-kubeconfig", "--kubeconfig")
    ),
}
# Replaced by ours.
REPLACED = ("--secure-port", "--bind-address", "--cert-dir")


def flag(words: Sequence[str], name: str) -> str:
    """The last value of a flag; empty without it."""
    found = ""
    for index, word in enumerate(words):
        if word.startswith(f"{name}="):
            found = word.partition("=")[2]
        elif word == name and index + 1 < len(words):
            found = words[index + 1]
    return found


def without(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """The command line without some flags and their values."""
    kept = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in names:
            skip = True
        elif word.partition("=")[0] not in names:
            kept.append(word)
    return kept


def in_folder(word: str, mounts: Mapping[str, Path]) -> str:
    """An argument with the mount path replaced by the directory that it is here."""
    prefix, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for path, folder in mounts.items():
        if value == path or value.startswith(path.rstrip("/") + "/"):
            return f"{prefix}{equals}{folder}{value[len(path.rstrip('/')) :]}"
    return word


def command(
    words: Sequence[str],
    mounts: Mapping[str, Path],
    certificates: Path,
    kubeconfig: str,
    secure_port: int,
) -> list[str]:
    """The command and arguments of a container as they are used here."""
    here = [in_folder(word, mounts) for word in words]
    program = PROGRAMS.get(Path(words[0]).name)
    if program is None:
        return here
    ours = [
        "--bind-address=127.0.0.1",
        f"--secure-port={secure_port}",
        f"--cert-dir={certificates}",
    ]
    if program.kubeconfig_flags and not any(flag(words, name) for name in program.kubeconfig_flags):
        ours.append(f"{program.kubeconfig_flags[0]}={kubeconfig}")
    return without(here, REPLACED) + ours


def ports(
    words: Sequence[str], configuration: str, plain_port: int, secure_port: int
) -> dict[int, int]:
    """The ports of this machine by the ports of the container."""
    program = PROGRAMS.get(Path(words[0]).name)
    if program is None:
        return {}
    asked = flag(words, "--secure-port")
    found = {int(asked) if asked.isdigit() else program.secure_port: secure_port}
    if program.plain_port:
        found[health_port(configuration) or program.plain_port] = plain_port
    return found


def document(text: str) -> yaml.MappingNode | None:
    """The parsed configuration of a koord-descheduler with positions;
    None if the text is something else.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    if not isinstance(root, yaml.MappingNode):
        return None
    kind = child(root, "kind")
    return root if isinstance(kind, yaml.ScalarNode) and kind.value == KOORDINATOR_KIND else None


def child(node: yaml.MappingNode, name: str) -> Any:
    """The value of a key, or None."""
    return next((value for key, value in node.value if getattr(key, "value", None) == name), None)


def health_port(text: str) -> int:
    """The port of `healthzBindAddress`; 0 if it is not set."""
    root = document(text)
    node = child(root, "healthzBindAddress") if root else None
    port = str(node.value).rpartition(":")[2] if isinstance(node, yaml.ScalarNode) else ""
    return int(port) if port.isdigit() else 0


def configured(text: str, kubeconfig: str, plain_port: int) -> str:
    """A koord-descheduler's configuration with our kubeconfig and addresses;
    nothing else is changed.

    Any other text, and one with these settings in a form that the program refuses,
    is returned unchanged.
    """
    root = document(text)
    if root is None:
        return text
    address = json.dumps(f"127.0.0.1:{plain_port}")
    access = json.dumps(kubeconfig)
    edits: list[tuple[int, int, str]] = []
    missing: list[str] = []
    for name in ("healthzBindAddress", "metricsBindAddress"):
        change(root, name, address, edits, missing)
    connection = child(root, "clientConnection")
    if isinstance(connection, yaml.MappingNode) and connection.value:
        absent: list[str] = []
        change(connection, "kubeconfig", access, edits, absent)
        edits += [insertion(connection, part) for part in absent]
    elif isinstance(connection, yaml.MappingNode):
        edits.append(
            (connection.start_mark.index, connection.end_mark.index, f"{{kubeconfig: {access}}}")
        )
    else:
        change(root, "clientConnection", f"{{kubeconfig: {access}}}", edits, missing)
    edits += [insertion(root, part) for part in missing]
    for start, end, part in sorted(edits, reverse=True):
        text = text[:start] + part + text[end:]
    return text


def change(
    node: yaml.MappingNode,
    name: str,
    value: str,
    edits: list[tuple[int, int, str]],
    missing: list[str],
) -> None:
    """Records the edit that sets a key."""
    found = child(node, name)
    if found is None:
        missing.append(f"{name}: {value}")
    elif isinstance(found, yaml.ScalarNode) and found.tag in (
        "tag:yaml.org,2002:str",
        "tag:yaml.org,2002:null",
    ):
        start, end = found.start_mark.index, found.end_mark.index
        edits.append((start, end, value if end > start else f" {value}"))


def insertion(node: yaml.MappingNode, part: str) -> tuple[int, int, str]:
    """The edit that inserts `key: value` before the first key of a mapping that is not empty."""
    first = node.value[0][0].start_mark
    return (
        first.index,
        first.index,
        f"{part}, " if node.flow_style else f"{part}\n{' ' * first.column}",
    )
