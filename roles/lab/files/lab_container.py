# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One container that is a process of this machine: started, probed,
restarted and terminated as a kubelet does.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import lab_rewrite
from lab_ports import free_port

Json = dict[str, Any]
LAUNCHER = Path(__file__).with_name("lab_run.py")
# The kubelet's own: 10 s, doubled with each crash up to 5 min, forgotten after 10 min without one.
# The first restart comes at once.
BACKOFF, BACKOFF_MOST, BACKOFF_FORGOTTEN = 10.0, 300.0, 600.0
# What FallbackToLogsOnError keeps of the log.
WORDS_LINES, WORDS_BYTES = 80, 2048
PROBE_UNREADY, PROBE_READY = 0.5, 2.0


def stamp(seconds: float) -> str:
    """A time in the format of the API."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def keep_log(source: IO[bytes], target: Path, tail: deque[str]) -> None:
    """Copies the output of a process into a log in CRI's format, until its end."""
    with source, target.open("w", encoding="utf-8") as log:
        for line in source:
            text = line.decode("utf-8", "replace").rstrip("\n")
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
            log.write(f"{now} stdout F {text}\n")
            log.flush()
            tail.append(text)


def last_words(lines: deque[str]) -> str:
    """The end of a log, as long as a status may contain."""
    text = "\n".join(lines) + "\n" if lines else ""
    return text.encode()[-WORDS_BYTES:].decode("utf-8", "ignore")


@dataclass(slots=True)
class Container:
    """`spec` is the container of the pod; `folder` is its directory; `restarts` continues an
    earlier agent's count.
    """

    spec: Json
    folder: Path
    pod: str
    restart_policy: str
    programs: Path
    kubeconfig: str
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = None
    pump: threading.Thread | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=WORDS_LINES))
    ports: Mapping[int, int] = field(default_factory=dict)
    started: float = 0.0
    begun: bool = False
    exited: Json | None = None
    backoff: float = 0.0
    due: float = 0.0
    ready: bool = False
    failures: int = 0
    probe_due: float = 0.0
    waiting: Json = field(default_factory=lambda: {"reason": "ContainerCreating"})

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def words(self) -> list[str]:
        """Its command line. Without a command it is unknown, and the container is only
        simulated, as KWOK does.
        """
        return (
            [*self.spec.get("command", []), *self.spec.get("args", [])]
            if self.spec.get("command")
            else []
        )

    @property
    def log(self) -> Path:
        return self.folder / f"{self.restarts}.log"

    @property
    def previous_log(self) -> Path:
        return self.folder / f"{max(self.restarts - 1, 0)}.log"

    @property
    def finished(self) -> bool:
        """Whether it has ended and is not restarted."""
        if self.exited is None or self.process is not None:
            return False
        return self.restart_policy == "Never" or (
            self.restart_policy == "OnFailure" and self.exited["exitCode"] == 0
        )

    def start(self, mounts: Mapping[str, Path], now: float) -> None:
        """Starts or restarts the process; `mounts` are its directories by their mount paths."""
        if self.begun:
            self.restarts += 1
        self.begun, self.started, self.ready, self.failures = True, now, False, 0
        self.tail.clear()
        if not self.words:
            return
        executable = self.programs / Path(self.words[0]).name
        if not executable.exists():
            said = f'exec: "{self.words[0]}": the lab has no such program in {self.programs}'
            self.note_exit(128, "StartError", said, now)
            return
        plain, secure = free_port(), free_port()
        configuration = ""
        for folder in mounts.values():
            for file in folder.iterdir():
                if file.is_file():
                    text = file.read_bytes().decode("utf-8", "surrogateescape")
                    configuration = text if lab_rewrite.document(text) else configuration
                    changed = lab_rewrite.configured(text, self.kubeconfig, plain)
                    file.write_bytes(changed.encode("utf-8", "surrogateescape"))
        self.ports = lab_rewrite.ports(self.words, configuration, plain, secure)
        words = lab_rewrite.command(
            self.words, mounts, self.folder / "certificates", self.kubeconfig, secure
        )
        known_as = str(self.folder / executable.name)
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), self.pod]
        self.process = subprocess.Popen(
            [*launcher, str(executable.resolve()), known_as, *words[1:]],
            env={
                **self.environment(),
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self.folder),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            start_new_session=True,
        )
        output = self.process.stdout
        if output is None:
            raise RuntimeError("a pipe was asked for")
        self.pump = threading.Thread(
            target=keep_log, args=(output, self.log, self.tail), daemon=True
        )
        self.pump.start()

    def environment(self) -> dict[str, str]:
        """Its environment variables with a literal value."""
        return {
            entry["name"]: entry["value"] for entry in self.spec.get("env", []) if "value" in entry
        }

    def look(self, now: float) -> None:
        """Records that the process has ended, or probes its readiness."""
        if self.process is not None and (code := self.process.poll()) is not None:
            if self.pump is not None:
                self.pump.join(2)
            self.process = None
            exit_code = code if code >= 0 else 128 - code
            said = ""
            if exit_code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
                said = last_words(self.tail)
            self.note_exit(exit_code, "Error" if exit_code else "Completed", said, now)
        elif self.running and now >= self.probe_due:
            self.probe(now)

    @property
    def running(self) -> bool:
        return self.process is not None or (self.begun and not self.words)

    def note_exit(self, code: int, reason: str, message: str, now: float) -> None:
        """Records how it ended and when it is restarted."""
        self.ready = False
        self.exited = {
            "exitCode": code,
            "reason": reason,
            "finishedAt": stamp(now),
            "startedAt": stamp(self.started),
        }
        if message:
            self.exited["message"] = message
        if now - self.started > BACKOFF_FORGOTTEN:
            self.backoff = 0.0
        self.due = now + self.backoff
        self.backoff = min(self.backoff * 2 or BACKOFF, BACKOFF_MOST)

    def probe(self, now: float) -> None:
        """Probes readiness as the container specifies;
        without a probe it is ready while it runs.
        """
        probe = self.spec.get("readinessProbe") or {}
        target = probe.get("httpGet")
        good = target is None or not self.words or self.asked(target)
        self.failures = 0 if good else self.failures + 1
        if good or self.failures >= int(probe.get("failureThreshold", 3)) or not self.ready:
            self.ready = good
        self.probe_due = now + (PROBE_READY if self.ready else PROBE_UNREADY)

    def asked(self, target: Json) -> bool:
        """The result of one HTTP probe."""
        named = {entry.get("name"): entry["containerPort"] for entry in self.spec.get("ports", [])}
        wanted = str(named.get(target.get("port"), target.get("port")))
        port = self.ports.get(int(wanted)) if wanted.isdigit() else None
        if port is None:
            return False
        if target.get("scheme") == "HTTPS":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=1, context=context
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", target.get("path", "/"))
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self, *, hard: bool) -> None:
        """Sends the process SIGTERM, or SIGKILL if `hard`."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL if hard else signal.SIGTERM)

    def status(self, now: float) -> Json:
        """The containerStatuses entry."""
        last: Json = {}
        if self.running:
            state: Json = {"running": {"startedAt": stamp(self.started)}}
        elif self.finished:
            state = {"terminated": self.exited}
        elif self.exited is None or now >= self.due:
            state = {"waiting": self.waiting}
        else:
            wait = (
                f"back-off {int(self.due - now) // 10 * 10 + 10}s restarting failed "
                f"container={self.name}"
            )
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": wait}}
        if self.exited and not self.finished:
            last = {"terminated": self.exited}
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "",
            "ready": self.ready,
            "started": self.running,
            "restartCount": self.restarts,
            "state": state,
            "lastState": last,
        }
