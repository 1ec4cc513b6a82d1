# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real deschedulers asked what they think of a configuration, without letting them evict anything."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60.0
"""Seconds that a verdict may take on a busy machine; else it takes about a tenth of one."""

STAYS = 15.0
"""Seconds after which a descheduler that was started is there to stay."""

TAKEN = "address already in use"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the descheduler ended, its last words, and the completed configuration where it wrote one."""

    ended: bool
    words: str
    written: str = ""


@dataclass(frozen=True, slots=True)
class Judge:
    """A descheduler of either kind, and a cluster in which it looks things up."""

    binary: Path
    kubeconfig: Path

    @property
    def _sigs(self) -> bool:
        return self.binary.name == "descheduler"

    def verdict(self, text: str, *, start: bool = False) -> Verdict:
        """koord-descheduler completes and writes the configuration, the sigs descheduler runs once and dry.

        ``start``: koord-descheduler is started instead, and ends by itself or after some seconds by us.
        """
        found = self._verdict(text, start=start)
        # A configuration without an address has the one port that all others without it have too.
        for _unused in range(9):
            if TAKEN not in found.words:
                break
            time.sleep(0.3)
            found = self._verdict(text, start=start)
        return found

    def _verdict(self, text: str, *, start: bool) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="verdict-") as name:
            folder = Path(name)
            text = text.replace("KUBECONFIG", str(self.kubeconfig))
            with contextlib.ExitStack() as ports:
                (folder / "config").write_text(_with_port(text, ports), encoding="utf-8")
            return self._asked(folder, start=start)

    def _asked(self, folder: Path, *, start: bool) -> Verdict:
        config = str(folder / "config")
        if self._sigs:
            words = ["--policy-config-file", config, "--dry-run", "--kubeconfig", str(self.kubeconfig), "--v=0"]
            words += ["--secure-port", "0", "--disable-metrics"]
        else:
            words = ["--config", config, "--secure-port", "0", "--cert-dir", str(folder)]
            words += [] if start else ["--write-config-to", str(folder / "written")]
        try:
            done = subprocess.run(
                [str(self.binary), *words],
                capture_output=True,
                text=True,
                timeout=STAYS if start else PATIENCE,
                check=False,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder)},
            )
        except subprocess.TimeoutExpired:
            return Verdict(False, "still there")
        said = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        panic = next((line for line in said if line.startswith("panic")), "")
        completed = folder / "written"
        text = completed.read_text(encoding="utf-8") if completed.exists() else ""
        return Verdict(done.returncode != 0, panic or (said[-1] if said else ""), text)


def _with_port(text: str, until: contextlib.ExitStack) -> str:
    if "PORT" not in text:
        return text
    taken = until.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    return text.replace("PORT", str(taken.getsockname()[1]))
