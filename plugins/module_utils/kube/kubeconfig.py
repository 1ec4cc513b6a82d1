# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Reads kubeconfig files and extracts one context.

The loaders of the `kubernetes` package then work on that, in any version: by themselves they
silently skip missing files, support `tls-server-name` and `proxy-url` only in newer versions, and
quote credentials in their errors. Messages here name files, contexts and fields, never values.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors

with suppress(ImportError):  # the `kubernetes` package brings it; connection.py reports both
    import yaml

_PATH = "Give the right file as `kubeconfig`, K8S_AUTH_KUBECONFIG or KUBECONFIG."
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_SHOWN = 20

Documents = Sequence[tuple["Path | None", Mapping[str, Any]]]
"""The content of kubeconfig files, each with its path; None where the content was given."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One context: `config` is a kubeconfig with this context alone and with absolute paths."""

    config: Mapping[str, Any]
    where: str
    context: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    user_name: str


def default_paths() -> str:
    """Where kubectl looks: KUBECONFIG, else the file in the home directory."""
    return os.environ.get("KUBECONFIG") or str(Path("~/.kube/config"))


def exists(paths: str) -> bool:
    """Whether any of the paths exists (several as in KUBECONFIG)."""
    return any(path.exists() for path in _split(paths))


def choose(kubeconfig: str | Mapping[str, Any], context: str = "") -> Chosen:
    """The context of that name, or the current one: of the first file that has one, as in kubectl.

    `kubeconfig` is a path, several paths as in KUBECONFIG, or the content.
    Raises ConfigError with the file's name.
    """
    where, documents = _documents(kubeconfig)
    contexts = _named("contexts", documents)
    name = context or next(
        (str(x["current-context"]) for _path, x in documents if x.get("current-context")), ""
    )
    if not contexts:
        raise errors.ConfigError(f"{where} has no contexts", remedy=_PATH)
    known = ", ".join(sorted(contexts)[:_SHOWN]) + (", ..." if len(contexts) > _SHOWN else "")
    if not name:
        raise errors.ConfigError(
            f"{where} has no current context", remedy=f"Give one as `context`: {known}."
        )
    if name not in contexts:
        raise errors.ConfigError(f"{where} has no context {name!r}", remedy=f"It has: {known}.")
    pair = contexts[name][1]
    cluster = _entry("clusters", str(pair.get("cluster") or ""), documents, where, name)
    if not cluster.get("server"):
        raise errors.ConfigError(
            f"cluster {pair.get('cluster')!r} in {where} has no `server`", remedy=_PATH
        )
    user_name = str(pair.get("user") or "")
    user = _entry("users", user_name, documents, where, name) if user_name else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": dict(pair)}],
        "clusters": [{"name": pair.get("cluster"), "cluster": cluster}],
        "users": [{"name": user_name, "user": user}] if user_name else [],
        "preferences": {},
    }
    return Chosen(config, where, name, cluster, user, user_name)


def _documents(kubeconfig: str | Mapping[str, Any]) -> tuple[str, Documents]:
    if not isinstance(kubeconfig, str):
        return "the given kubeconfig", [(None, kubeconfig)]
    paths = _split(kubeconfig)
    present = [path for path in paths if path.exists()]
    if not present:
        names = ", ".join(str(path) for path in paths) or repr(kubeconfig)
        raise errors.ConfigError(f"kubeconfig {names} does not exist", remedy=_PATH)
    where = "kubeconfig " + ", ".join(str(path) for path in present)
    return where, [(path, _read(path)) for path in present]


def _split(paths: str) -> list[Path]:
    return [Path(path).expanduser() for path in paths.split(os.pathsep) if path]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise errors.ConfigError(f"kubeconfig {path} cannot be read: {why}", remedy=_PATH) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise errors.ConfigError(
            f"kubeconfig {path} is not valid YAML{at}", remedy="Correct the file."
        ) from None
    if not isinstance(content, Mapping):
        what = "is empty" if content is None else "is not a kubeconfig: no mapping at its top"
        raise errors.ConfigError(f"kubeconfig {path} {what}", remedy=_PATH)
    return content


def _named(section: str, documents: Documents) -> dict[str, tuple[Path | None, Mapping[str, Any]]]:
    """The entries of a section by name, each with its file; the first entry of a name wins."""
    found: dict[str, tuple[Path | None, Mapping[str, Any]]] = {}
    for path, document in documents:
        entries = document.get(section) or ()
        for entry in entries if isinstance(entries, Sequence) else ():
            inner = entry.get(section[:-1]) if isinstance(entry, Mapping) else None
            if isinstance(inner, Mapping) and entry.get("name") is not None:
                found.setdefault(str(entry["name"]), (path, inner))
    return found


def _entry(
    section: str, name: str, documents: Documents, where: str, context: str
) -> dict[str, Any]:
    what = section[:-1]
    found = _named(section, documents).get(name)
    if found is None:
        message = f"context {context!r} in {where} names the {what} {name!r}, which is not there"
        raise errors.ConfigError(message, remedy="Correct the file, or choose another context.")
    path = found[0]
    entry = dict(found[1])
    owner = f"{what} {name!r} in {where}"
    for key in _FILES:
        if data := entry.get(f"{key}-data"):
            try:
                base64.b64decode("".join(str(data).split()), validate=True)
            except (binascii.Error, ValueError):
                message = f"`{key}-data` of {owner} is not base64"
                raise errors.ConfigError(message, remedy="Correct the file.") from None
            entry[f"{key}-data"] = str(data)
        elif entry.get(key) and not (key == "tokenFile" and entry.get("token")):
            entry[key] = str(_existing(str(entry[key]), path, key, owner))
    plugin = entry.get("exec")
    if isinstance(plugin, Mapping):
        command = str(plugin.get("command") or "")
        if os.sep in command and path is not None:
            command = str(path.absolute().parent / command)
        entry["exec"] = {**plugin, "command": command}
    return entry


def _existing(file: str, kubeconfig: Path | None, key: str, owner: str) -> Path:
    base = kubeconfig.absolute().parent if kubeconfig is not None else Path.cwd()
    path = base / Path(file).expanduser()
    try:
        path.open("rb").close()
    except OSError as error:
        message = f"`{key}` of {owner} cannot be read: {path}: {error.strerror}"
        raise errors.ConfigError(message, remedy="Correct the path or its permissions.") from None
    return path
