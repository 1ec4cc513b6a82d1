# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts that nobody here wrote, in a lab: a folder of rendered manifests, applied, with volumes for what claims them.

The folder is ZOO. Its files are YAML, each of any number of documents, with the namespaces that they need; a name that
ends in `.gz` is unpacked.
"""

from __future__ import annotations

import gzip
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from witness import measures
from witness import objects as o
from witness.api import ApiError
from witness.log import Json, Log

from support import nodes as fake
from support.lab import Lab
from support.waiting import until

FOLDER = Path(os.environ.get("ZOO", ""))
SPACE = {"capacity": {"ephemeral-storage": "500Gi"}, "allocatable": {"ephemeral-storage": "500Gi"}}
STAGES = (r"Namespace", r"CustomResourceDefinition", r"(?!ValidatingWebhook|MutatingWebhook|APIService)\w+")
"""Kinds, in order. Webhooks would be asked of servers that are not there, and stop everything."""
KIND = re.compile(r"^kind: ['\"]?(\w+)", re.MULTILINE)
PATIENCE = 600.0
AT_REST = 20.0
"""Seconds in which no pod has changed once all has settled."""
READY = {"Deployment": "readyReplicas", "StatefulSet": "readyReplicas", "DaemonSet": "numberReady"}
"""Where a workload's status counts the pods that are ready."""
CLAIMS = "/api/v1/persistentvolumeclaims"
CLASS: Json = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "zoo", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "zoo.example",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def documents() -> Iterator[str]:
    """All of the folder."""
    for path in sorted(FOLDER.glob("*.y*ml*")):
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        yield from re.split(r"^---.*$", text, flags=re.MULTILINE)


class Zoo:
    """The charts in a lab while the block lasts."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.api, self.folder = lab, lab.api, folder
        self._ends = threading.Event()
        self._provisions = threading.Thread(target=self._provision, name="provisions", daemon=True)

    def __enter__(self) -> Zoo:
        for node in self.api.items("/api/v1/nodes"):
            self.api.patch(f"{fake.path(o.name(node))}/status", {"status": SPACE})
        self.api.create("/apis/storage.k8s.io/v1/storageclasses", CLASS)
        self._provisions.start()
        known = list(documents())
        for number, kinds in enumerate(STAGES):
            chosen = [text for text in known if (kind := KIND.search(text)) and re.fullmatch(kinds, kind[1])]
            known = [text for text in known if text not in set(chosen)]
            self._apply(self.folder / f"stage-{number}.yaml", chosen)
            if kinds == "CustomResourceDefinition":
                self.lab.run_kubectl("wait", "crd", "--all", "--for=condition=Established", timeout=PATIENCE)
        self.settle()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._ends.set()
        self._provisions.join()

    def _apply(self, path: Path, texts: list[str]) -> None:
        path.write_text("\n---\n".join(texts), encoding="utf-8")
        words = ("apply", "--server-side", "--force-conflicts", "-f", str(path))
        done = self.lab.run_kubectl(*words, timeout=PATIENCE)
        # Some of what is rendered is refused, as by any cluster: the rest is there.
        print(f"{path.name}: {len(texts)} documents, refused: {done.stderr.strip() or 'none'}")

    def settle(self) -> None:
        """Until nothing has changed for a while."""
        known: list[object] = []

        def rests() -> bool:
            pods = sorted((o.namespace(p), o.name(p), p["status"].get("phase"), o.ready(p)) for p in self.pods())
            if not known or known[0] != pods:
                known[:] = [pods, time.monotonic()]
            return time.monotonic() - float(str(known[1])) > AT_REST

        until(rests, PATIENCE, "the charts have settled", every=2)

    def pods(self) -> list[Json]:
        return self.api.items("/api/v1/pods")

    def ready(self) -> dict[tuple[str, str, str], int]:
        """How many pods of each workload are ready."""
        return {
            (kind, o.namespace(raw), o.name(raw)): raw["status"].get(field, 0)
            for kind, field in READY.items()
            for raw in self.api.items(f"/apis/apps/v1/{kind.lower()}s")
        }

    def _provision(self) -> None:
        """Volumes for claims: of every third namespace on one node, of the others in the network."""
        hosts = sorted(o.name(node) for node in self.api.items("/api/v1/nodes"))
        spaces: list[str] = []
        while not self._ends.wait(1):
            for claim in self.api.items(CLAIMS):
                where = o.namespace(claim)
                spaces += [where] if where not in spaces else []
                if not claim["spec"].get("volumeName"):
                    number = int((re.findall(r"(\d+)$", o.name(claim)) or ["0"])[0])
                    local = spaces.index(where) % 3 == 2
                    try:
                        volume = _volume(claim, hosts[number % len(hosts)] if local else "")
                        self.api.create("/api/v1/persistentvolumes", volume)
                    except ApiError as error:
                        if error.status != 409:
                            raise


def _volume(claim: Json, host: str) -> Json:
    meta, spec = claim["metadata"], claim["spec"]
    made: Json = {
        "capacity": spec["resources"]["requests"],
        "accessModes": spec["accessModes"],
        "storageClassName": spec.get("storageClassName", ""),
        "volumeMode": spec.get("volumeMode", "Filesystem"),
        "claimRef": {key: meta[key] for key in ("namespace", "name", "uid")},
    }
    made["claimRef"] |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    if host:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
        made["local"] = {"path": f"/mnt/{meta['uid']}"}
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    else:
        made["csi"] = {"driver": "zoo.example", "volumeHandle": meta["uid"]}
    return {"metadata": {"name": f"pvc-{meta['uid']}"}, "spec": made}


def dark(log: Log) -> dict[str, float]:
    """Services that served at first and then had no ready endpoint, with the seconds of that."""
    before = log.before
    served = [raw for raw in before.of("Service") if o.ready_endpoints(raw, before)]
    found = {
        f"{o.namespace(raw)}/{o.name(raw)}": measures.dark_seconds(log, o.namespace(raw), o.name(raw)) for raw in served
    }
    return {name: seconds for name, seconds in found.items() if seconds}
