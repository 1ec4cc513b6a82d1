# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CSI driver's external attacher, as the attach-detach controller sees it: slow to attach and to detach."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from witness.api import Api, ApiError
from witness.log import Json

PATH = "/apis/storage.k8s.io/v1/volumeattachments"
HOLDS = "external-attacher/lab-kubeops-io"
DRIVER = "lab.kubeops.io"
EVERY = 0.2


@dataclass
class Attacher:
    """`attached` are the nodes to which the volume was attached, in order, `both` the times at which two had it."""

    api: Api
    volume: str
    seconds: float
    attached: list[str] = field(default_factory=list)
    both: list[float] = field(default_factory=list)
    _leaves: dict[str, float] = field(default_factory=dict)

    def attachments(self) -> list[Json]:
        of_driver = [one for one in self.api.items(PATH) if one["spec"]["attacher"] == DRIVER]
        return [one for one in of_driver if one["spec"]["source"].get("persistentVolumeName") == self.volume]

    def on(self, node: str) -> bool:
        """Whether the volume is attached to the node, or will be."""
        return any(one["spec"]["nodeName"] == node for one in self.attachments())

    def look(self) -> None:
        """Attach what is to be attached, and detach what has been asked for long enough."""
        found = self.attachments()
        there = [one for one in found if (one.get("status") or {}).get("attached")]
        if len(there) > 1:
            self.both.append(time.time())
        for one in found:
            name, meta = one["metadata"]["name"], one["metadata"]
            if meta.get("deletionTimestamp"):
                since = self._leaves.setdefault(name, time.monotonic())
                if time.monotonic() - since >= self.seconds:
                    self.api.patch(f"{PATH}/{name}", {"metadata": {"finalizers": None}})
            elif one not in there:
                self.api.patch(f"{PATH}/{name}", {"metadata": {"finalizers": [HOLDS]}})
                self.api.patch(f"{PATH}/{name}/status", {"status": {"attached": True}})
                self.attached.append(one["spec"]["nodeName"])


@contextmanager
def attaching(api: Api, volume: str, seconds: float) -> Iterator[Attacher]:
    """Serves the volume meanwhile; `seconds` is how long it takes to detach it."""
    attacher, over = Attacher(api, volume, seconds), threading.Event()

    def serve() -> None:
        while not over.wait(EVERY):
            try:
                attacher.look()
            except ApiError:
                # Somebody else has changed or deleted the attachment since it was listed.
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield attacher
    finally:
        over.set()
        thread.join()
        for one in attacher.attachments():
            api.patch(f"{PATH}/{one['metadata']['name']}", {"metadata": {"finalizers": None}})
            api.delete(f"{PATH}/{one['metadata']['name']}")
