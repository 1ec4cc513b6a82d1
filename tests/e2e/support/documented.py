# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""EXAMPLES as they are printed, carried out as tasks of a playbook, and the servers that stand for those they name."""

from __future__ import annotations

import http.server
import importlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from witness.log import Json

from support.plays import Player, Run

PLUGINS = "ansible_collections.kubeops.node_maintenance.plugins"
NODE = re.compile(r"\b(?:worker|node|gpu)-0*\d\b")
"""The name of a node in the documentation."""


def source(name: str, kind: str = "modules", words: Mapping[str, str] | None = None) -> str:
    """A plugin's EXAMPLES with other words; each of them has to be there."""
    text: str = importlib.import_module(f"{PLUGINS}.{kind}.{name}").EXAMPLES
    for printed, real in (words or {}).items():
        assert printed in text, f"{name}: {printed}"
        text = text.replace(printed, real)
    return text


def examples(module: str, text: str, left_out: Sequence[str] = ()) -> list[Json]:
    tasks: list[Json] = yaml.safe_load(text)
    wanted = [task for task in tasks if task["name"] not in left_out]
    assert len(wanted) == len(tasks) - len(left_out), module
    return wanted


def carried_out(
    play: Player,
    nodes: Sequence[str],
    tasks: Sequence[Json],
    env: dict[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    **variables: Any,
) -> Run:
    """The tasks in a playbook, beside which these files are."""
    for name, content in (files or {}).items():
        (play.folder / name).write_text(content, encoding="utf-8")
    file = play.folder / "examples.yml"
    plays = [{"name": "Examples", "hosts": "localhost", "gather_facts": False, "tasks": list(tasks)}]
    file.write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
    run = play.file(file, {"nodes": nodes}, env=env, **variables)
    assert run.ok, run.text
    assert run.text.count("TASK [") == len(tasks)
    assert "skipping:" not in run.text
    return run


class Anyone:
    """A server on loopback that agrees to everything. ``asked`` are method, path and body of what it was sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def __getattr__(self, name: str) -> Callable[[], None]:
                if not name.startswith("do_"):
                    raise AttributeError(name)
                return self.agree

            def agree(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
