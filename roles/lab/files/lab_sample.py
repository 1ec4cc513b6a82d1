# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies the sample workload and waits until it is up.

Reads one JSON object from stdin, prints one to stdout; a failure is one sentence on
stderr and exit code 1:

    {kubectl, manifest, namespaces, wait, check} -> {changed, node}

`kubectl` is a command, `manifest` YAML, `node` the one with most of the single
replicas. `check` only reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

STATE = (
    r"--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} "
    r'{.metadata.generation}{"\n"}{end}'
)


class Sample:
    """The sample in one cluster."""

    def __init__(self, kubectl: Sequence[str], manifest: str, wait: int) -> None:
        self._kubectl = kubectl
        self._manifest = manifest
        self._wait = f"--timeout={wait}s"

    def run(self, *words: str) -> list[str]:
        """The lines that kubectl prints, of the objects in the manifest where it
        is told to read that.
        """
        command = [*self._kubectl, *words]
        done = subprocess.run(
            command, input=self._manifest, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"kubectl {words[0]}: {done.stderr.strip()}")
        return done.stdout.splitlines()

    def there(self) -> list[str]:
        """What exists of it, in which version."""
        return self.run("get", "--filename=-", "--ignore-not-found", STATE)

    def apply(self) -> list[str]:
        """Applies it; what exists afterwards.

        The server validates. To do it here as well, one that has just started would have to
        describe all of its API.
        """
        words = ["--server-side", "--force-conflicts", "--field-manager=lab", "--validate=false"]
        return self.run("apply", *words, "--filename=-", STATE)

    def settle(self, namespaces: Sequence[str]) -> None:
        """Waits until its pods are ready, and its Job that ends is complete."""
        for namespace in namespaces:
            kinds = "deployment,statefulset,daemonset"
            self.run("rollout", "status", kinds, f"--namespace={namespace}", self._wait)
        self.run(
            "wait", "--for=condition=Complete", "--namespace=shop", "job/schema-upgrade", self._wait
        )

    def node(self) -> str:
        """The node with most of the single replicas, of several the first."""
        output = '--output=jsonpath={range .items[*]}{.spec.nodeName}{"\\n"}{end}'
        found = Counter(
            self.run("get", "pods", "--namespace=shop", "--selector=tier=single", output)
        )
        return min(found, key=lambda name: (-found[name], name), default="")


def main() -> int:
    """Applies it, or says what would change."""
    given = json.load(sys.stdin)
    sample = Sample(given["kubectl"], given["manifest"], int(given["wait"]))
    before = sample.there()
    if given["check"]:
        changed = len(before) < given["manifest"].count("\n---")
    else:
        changed = sample.apply() != before
        sample.settle(given["namespaces"])
    print(json.dumps({"changed": changed, "node": sample.node()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
