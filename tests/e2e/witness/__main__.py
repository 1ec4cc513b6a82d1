# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The witness as a process: watch a cluster on its own connection, write down what happens.

    python -m witness --kubeconfig FILE --log FILE --ready FILE [--events]

Stops on SIGTERM, SIGINT or when its standard input closes (so it never outlives the test that
started it), after all that had happened by then is in the log.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from witness.api import Api, ApiError
from witness.kinds import EVENTS_PATH, PATHS

Json = dict[str, Any]
SILENCE = 90.0
"""Seconds without a byte (bookmarks come about once a minute) after which a watch is dead."""
CATCH_UP = 5.0
"""Seconds that the watches get, at the end, to deliver what the last lists already show."""


class Scribe:
    """Appends lines to the log, one at a time, whoever brings them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, kind: str, what: str, rv: int, obj: Json | None = None) -> None:
        entry: Json = {
            "kind": kind,
            "type": what,
            "rv": rv,
            "mono": time.monotonic(),
            "wall": time.time(),
        }
        if obj is not None:
            obj.get("metadata", {}).pop("managedFields", None)
            entry["obj"] = obj
        line = json.dumps(entry, separators=(",", ":")) + "\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.flush()
            os.fsync(self._file.fileno())


def _name_of(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _version_of(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Watcher(threading.Thread):
    """One kind: list, then watch for ever; after a lost watch list again and tell the gap."""

    def __init__(self, api: Api, scribe: Scribe, kind: str, path: str) -> None:
        super().__init__(name=f"watch-{kind}", daemon=True)
        self._api = api
        self._scribe = scribe
        self.kind = kind
        self.path = path
        self.listed = threading.Event()
        self.known: dict[tuple[str, str], Json] = {}

    def run(self) -> None:
        version = ""
        while True:
            try:
                if not version:
                    version = self._list()
                for event in self._api.watch(self.path, version, SILENCE):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._note(event["type"], event["object"])
            except ApiError as error:
                version = "" if error.status == 410 else version
                time.sleep(0.2)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                time.sleep(0.2)

    def _note(self, what: str, obj: Json) -> None:
        key = _name_of(obj)
        if what == "DELETED":
            self.known.pop(key, None)
        else:
            self.known[key] = obj
        self._scribe.write(self.kind, what, _version_of(obj), obj)

    def _list(self) -> str:
        answer = self._api.get(self.path)
        version: str = answer["metadata"]["resourceVersion"]
        if not self.listed.is_set():
            for obj in answer["items"]:
                self.known[_name_of(obj)] = obj
                self._scribe.write(self.kind, "BEFORE", int(version), obj)
            self.listed.set()
            return version
        self._scribe.write(self.kind, "GAP", int(version))
        found = {_name_of(obj): obj for obj in answer["items"]}
        for key in set(self.known) - set(found):
            gone = self.known.pop(key)
            self._scribe.write(self.kind, "DELETED", int(version), gone)
        for key, obj in found.items():
            old = self.known.get(key)
            if old is None or _version_of(old) != _version_of(obj):
                self._note("MODIFIED" if old else "ADDED", obj)
        return version

    def caught_up(self, answer: Json) -> bool:
        """Whether the watch has told of everything that this later list shows."""
        listed_at = int(answer["metadata"]["resourceVersion"])
        versions = {_name_of(obj): _version_of(obj) for obj in answer["items"]}
        known = {key: _version_of(obj) for key, obj in dict(self.known).items()}
        return all(known.get(key, 0) >= version for key, version in versions.items()) and all(
            key in versions or version > listed_at for key, version in known.items()
        )


def watch(kubeconfig: Path, log: Path, ready: Path, with_events: bool, stop: threading.Event) -> bool:
    """Watch until told to stop; False where the watches did not catch up with the last lists."""
    api = Api(kubeconfig, "kubeops-witness")
    scribe = Scribe(log)
    paths = {**PATHS, **({"Event": EVENTS_PATH} if with_events else {})}
    watchers = [Watcher(api, scribe, kind, path) for kind, path in paths.items()]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        while not watcher.listed.wait(0.05):
            if stop.is_set():
                return False
    scribe.write("", "READY", 0)
    ready.write_text("ready\n", encoding="utf-8")
    stop.wait()
    complete = True
    deadline = time.monotonic() + CATCH_UP
    for watcher in watchers:
        answer = api.get(watcher.path)
        while not watcher.caught_up(answer):
            if time.monotonic() > deadline:
                complete = False
                break
            time.sleep(0.02)
        for obj in answer["items"]:
            scribe.write(watcher.kind, "AFTER", int(answer["metadata"]["resourceVersion"]), obj)
    if complete:
        scribe.write("", "END", 0)
    scribe.close()
    return complete


def main() -> int:
    parser = argparse.ArgumentParser(prog="witness", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--events", action="store_true")
    options = parser.parse_args()
    stop = threading.Event()

    def when_orphaned() -> None:
        sys.stdin.buffer.read()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_unused: stop.set())
    threading.Thread(target=when_orphaned, name="stdin", daemon=True).start()
    complete = watch(options.kubeconfig, options.log, options.ready, options.events, stop)
    # Threads blocked in a watch need not be waited for: the log is closed.
    os._exit(0 if complete else 1)


if __name__ == "__main__":
    sys.exit(main())
