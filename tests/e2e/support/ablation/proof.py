# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each right that an account can have, and what fails without it: found out on the lab, and kept beside the guide.

``docs/ablation.json`` has by step and right the scene that fails without it, and whether that names the right;
``KUBEOPS_ABLATION=docs/ablation.json make ablation`` writes it anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from witness.log import Json

from support.ablation.accounts import Right, granted
from support.ablation.scenes import Scene
from support.lab import ROOT

KEPT = ROOT / "docs/ablation.json"
NEW = os.environ.get("KUBEOPS_ABLATION", "")
"""Where what is found is written to; nothing is searched without it."""
UNLOGGED = frozenset(
    {
        *((step, "create pods/portforward") for step in ("koordinator", "descheduler")),
        *((step, "get leases.coordination.k8s.io") for step in ("koordinator", "descheduler", "kubelets")),
        ("kubelets", "list leases.coordination.k8s.io"),
    }
)
"""Rights whose use is not in the audit log: the lab leaves elections and heartbeats out, the API server the second verb
that it asks for to open a stream."""


def of_scene(name: str) -> Iterator[tuple[Right, bool]]:
    """The rights that this scene is known to fail without, each with whether it is named."""
    for step, found in json.loads(KEPT.read_text(encoding="utf-8")).items():
        for right in granted(step):
            known = found.get(right.words, {})
            if known.get("scene") == name:
                yield right, bool(known["named"])


def missed(scene: Scene, right: Right) -> list[str]:
    """What is wrong with the scene without the right."""
    with scene.account.without(right):
        return scene.go()


def search(scene: Scene, known: Collection[Right]) -> dict[Right, bool]:
    """The rights that this scene makes use of and fails without, beside those that are known."""
    found: dict[Right, bool] = {}
    wrong = scene.go()
    assert not wrong, wrong
    used = scene.account.used()
    for right in (right for right in scene.account.rights() if right not in known):
        if (right in used or (right.step, right.words) in UNLOGGED) and (said := missed(scene, right)):
            found[right] = right.named_in(" ".join(said))
    return found


def record(scene: Scene) -> None:
    """Adds what this scene proves to the new file."""
    path = Path(NEW)
    kept: dict[str, Json] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = {right for step in scene.steps for right in granted(step) if right.words in kept.get(step, {})}
    for right, named in search(scene, known).items():
        kept.setdefault(right.step, {})[right.words] = {"scene": scene.name, "named": named}
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")
