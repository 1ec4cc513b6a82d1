# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Credential plugins of a kubeconfig (`exec`), run with a deadline.

The `kubernetes` package would run them as well, but waits for ever and cannot stop them. What a plugin says
stays unsaid here: it may hold a credential.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import clocks, errors

DEADLINE = 60.0
"""Seconds a plugin may take."""
_POLL = 0.1
_LAST_WORDS = 1.0
_CLUSTER = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
_CONFIG = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Credential:
    """What a plugin gave; `expires` is in seconds of the wall clock, None for never."""

    token: str
    certificate: str
    key: str
    expires: float | None

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Credential(expires={self.expires})"

    def as_user(self) -> dict[str, str]:
        """As in the users of a kubeconfig."""
        pairs = {
            "token": self.token,
            "client-certificate-data": base64.b64encode(self.certificate.encode()).decode(),
            "client-key-data": base64.b64encode(self.key.encode()).decode(),
        }
        return {name: value for name, value in pairs.items() if value}


class _Family(subprocess.Popen[bytes]):
    """A process in a session of its own, with all that it starts. Not Ansible's run_command: that has no deadline."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        super().__init__(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def end(self) -> None:
        """It and its children; whatever took itself out of their group is not waited for."""
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.stdout is not None:
            self.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            self.wait(_LAST_WORDS)


class Plugin:
    """One `exec` entry: `owner` is the words for its user, `cluster` the entry of the cluster it is for."""

    def __init__(self, spec: Mapping[str, Any], owner: str, cluster: Mapping[str, Any]) -> None:
        self._spec = spec
        self._cluster = cluster
        self._command = str(spec.get("command") or "")
        self.name = f"the credential plugin {self._command!r} of {owner}"

    def run(self, clock: clocks.Clock, stop: threading.Event) -> Credential:
        """Runs it, without a terminal, until DEADLINE or `stop`; then it and what it started are killed.

        Raises:
            ConfigError: it gave no credential; names the plugin, the user and the remedy.
        """
        words = [self._command, *(str(word) for word in self._spec.get("args") or ())]
        try:
            process = _Family(words, self._environment())
        except (OSError, ValueError) as error:
            raise self._not_started(error) from None
        try:
            said = self._listen(process, clock, stop)
        except BaseException:
            process.end()
            raise
        if process.returncode:
            raise self._error(f"it ended with exit code {process.returncode}")
        found = self._credential(said)
        if found is None:
            raise self._error(f"its output is no ExecCredential of {self._spec.get('apiVersion')!r}")
        return found

    def _listen(self, process: _Family, clock: clocks.Clock, stop: threading.Event) -> bytes:
        """What it writes until it ends, even if something that it left behind holds its output open."""
        deadline = clock.now() + DEADLINE
        while True:
            ended = process.poll() is not None
            try:
                return process.communicate(timeout=_POLL)[0]
            except subprocess.TimeoutExpired as error:
                if ended:
                    return error.output or b""
            if stop.is_set():
                raise self._error("the connection was closed meanwhile")
            if clock.now() >= deadline:
                raise self._error(
                    f"it took longer than {DEADLINE:.0f} s and was ended",
                    "Run it by hand: it may wait for a login, or for a server that is out of reach.",
                )

    def _environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self._spec.get("provideClusterInfo"):
            spec["cluster"] = self._cluster_info()
        info = {"apiVersion": self._spec.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
        given = {str(pair.get("name")): str(pair.get("value") or "") for pair in self._spec.get("env") or ()}
        return {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _cluster_info(self) -> dict[str, Any]:
        info = {key: self._cluster[key] for key in _CLUSTER if self._cluster.get(key)}
        authority = self._cluster.get("certificate-authority")
        if authority and "certificate-authority-data" not in info:
            with suppress(OSError):
                info["certificate-authority-data"] = base64.b64encode(Path(str(authority)).read_bytes()).decode()
        for extension in self._cluster.get("extensions") or ():
            if extension.get("name") == _CONFIG:
                info["config"] = extension.get("extension")
        return info

    def _credential(self, said: bytes) -> Credential | None:
        try:
            answer = json.loads(said)
        except ValueError:
            return None
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict) or answer.get("apiVersion") != self._spec.get("apiVersion"):
            return None
        token, certificate, key = (
            str(status.get(name) or "").strip() for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if not token and not (certificate and key):
            return None
        return Credential(token, certificate, key, _seconds(status.get("expirationTimestamp")))

    def _not_started(self, error: Exception) -> errors.ConfigError:
        if which(self._command) is None:
            hint = " ".join(str(self._spec.get("installHint") or "").split())
            return self._error(
                "it is not installed here, or not in PATH",
                hint[:300] or "Install it, or use another user of this cluster.",
            )
        return self._error(f"it cannot be started: {getattr(error, 'strerror', None) or 'its words are not usable'}")

    def _error(self, why: str, remedy: str = "Run it by hand.") -> errors.ConfigError:
        return errors.ConfigError(f"{self.name} gave no credential: {why}", remedy=remedy)


def _seconds(timestamp: object) -> float | None:
    """An RFC 3339 time as seconds since 1970; None where there is none."""
    try:
        when = datetime.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
