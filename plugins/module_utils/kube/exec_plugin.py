# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Credential plugins of a kubeconfig (`exec`), run with a deadline.

The `kubernetes` package would wait for them forever and cannot stop them. Their output is never
shown: it may contain a credential.
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

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks, errors

DEADLINE_SECONDS = 60.0
"""Seconds a plugin may take."""
_POLL_SECONDS = 0.1
_LAST_WORDS_SECONDS = 1.0
_CLUSTER = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
)
_CONFIG = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Credential:
    """The output of a plugin; `expires` is in seconds of the wall clock, None for never."""

    token: str
    certificate: str
    key: str
    expires: float | None

    def __repr__(self) -> str:
        """Without secrets."""
        return f"Credential(expires={self.expires})"

    def as_user(self) -> dict[str, str]:
        """As in the users of a kubeconfig."""
        pairs = {
            "token": self.token,
            "client-certificate-data": base64.b64encode(self.certificate.encode()).decode(),
            "client-key-data": base64.b64encode(self.key.encode()).decode(),
        }
        return {name: value for name, value in pairs.items() if value}


class Plugin:
    """One `exec` entry: `owner` names its user in messages, `cluster` is the cluster's entry."""

    def __init__(self, spec: Mapping[str, Any], owner: str, cluster: Mapping[str, Any]) -> None:
        self._spec = spec
        self._cluster = cluster
        self._command = str(spec.get("command") or "")
        self.name = f"the credential plugin {self._command!r} of {owner}"

    def run(self, clock: clocks.Clock, stop: threading.Event) -> Credential:
        """Runs it without a terminal until DEADLINE or `stop`;
        then it and the processes it started are killed.

        Raises ConfigError, with the plugin, its user and the remedy, if it gave no credential.
        """
        words = [self._command, *(str(word) for word in self._spec.get("args") or ())]
        try:
            # Not Ansible's run_command: that has no deadline. A session of its own,
            # to end it with its children.
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise self._not_started(error) from None
        try:
            output = self._listen(process, clock, stop)
        except BaseException:
            _kill(process)
            raise
        if process.returncode:
            raise self._error(f"it failed with exit code {process.returncode}")
        found = self._credential(output)
        if found is None:
            raise self._error(
                f"its output is no ExecCredential of {self._spec.get('apiVersion')!r}"
            )
        return found

    def _listen(
        self, process: subprocess.Popen[bytes], clock: clocks.Clock, stop: threading.Event
    ) -> bytes:
        """Its output until it ends, even if a process that it left behind keeps the output open."""
        deadline = clock.now() + DEADLINE_SECONDS
        while True:
            ended = process.poll() is not None
            try:
                return process.communicate(timeout=_POLL_SECONDS)[0]
            except subprocess.TimeoutExpired as error:
                if ended:
                    return error.output or b""
            if stop.is_set():
                raise self._error("the connection was closed")
            if clock.now() >= deadline:
                raise self._error(
                    f"it took longer than {DEADLINE_SECONDS:.0f} s and was killed",
                    "Run it by hand: it may wait for a login, "
                    "or for a server that it cannot reach.",
                )

    def _environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self._spec.get("provideClusterInfo"):
            spec["cluster"] = self._cluster_info()
        info = {"apiVersion": self._spec.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
        given = {
            str(pair.get("name")): str(pair.get("value") or "")
            for pair in self._spec.get("env") or ()
        }
        return {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _cluster_info(self) -> dict[str, Any]:
        info = {key: self._cluster[key] for key in _CLUSTER if self._cluster.get(key)}
        authority = self._cluster.get("certificate-authority")
        if authority and "certificate-authority-data" not in info:
            with suppress(OSError):
                info["certificate-authority-data"] = base64.b64encode(
                    Path(str(authority)).read_bytes()
                ).decode()
        for extension in self._cluster.get("extensions") or ():
            if extension.get("name") == _CONFIG:
                info["config"] = extension.get("extension")
        return info

    def _credential(self, output: bytes) -> Credential | None:
        try:
            answer = json.loads(output)
        except ValueError:
            return None
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict) or answer.get("apiVersion") != self._spec.get("apiVersion"):
            return None
        token, certificate, key = (
            str(status.get(name) or "").strip()
            for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if not token and not (certificate and key):
            return None
        return Credential(token, certificate, key, _seconds(status.get("expirationTimestamp")))

    def _not_started(self, error: Exception) -> errors.ConfigError:
        if which(self._command) is None:
            hint = " ".join(str(self._spec.get("installHint") or "").split())[:300]
            remedy = hint or "Install it, or use another user of this cluster."
            return self._error("it is not installed here, or not in PATH", remedy)
        return self._error(
            "it cannot be started: "
            f"{getattr(error, 'strerror', None) or 'its words are not usable'}"
        )

    def _error(self, why: str, remedy: str = "Run it by hand.") -> errors.ConfigError:
        return errors.ConfigError(f"{self.name} gave no credential: {why}", remedy=remedy)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends it and its children; what has left their process group is not waited for."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_WORDS_SECONDS)


def _seconds(timestamp: object) -> float | None:
    """An RFC 3339 time as seconds since 1970; None if it is missing or invalid."""
    try:
        when = datetime.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
