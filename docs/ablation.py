# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes into the guide to rights what fails without each of them,
as ``ablation.json`` beside this file has it.

``python docs/ablation.py`` writes; ``KUBEOPS_ABLATION=docs/ablation.json make ablation`` finds out
anew. ``tests/unit/access/test_ablation.py`` fails if the guide is out of date, or if a right has
neither proof nor reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import roles  # noqa: E402

GUIDE = ROOT / "docs/docsite/rst/guide_rights.rst"
PROOF = ROOT / "docs/ablation.json"
BEGIN, END = ".. What fails: python docs/ablation.py writes it.\n", ".. End of what fails.\n"

SCENES = {
    "plan": "a plan, as an account that only plans",
    "devices": "a plan where a pod has a device",
    "copy": "``cluster_copy``, the first step of a rehearsal",
    "fence": "installing, correcting and removing the fence",
    "fenced": "a drain where the fence is installed",
    "maintain": "the whole way of two nodes",
    "delete": "a drain with ``disable_eviction``",
    "replaced": "a drain with ``method: replace``",
    "hooks": "a drain with a hook by annotations",
    "dead": "the plan and the evacuation of a dead node",
    "namespace": "the first run in a cluster",
    "moved": "``pod_migration_job``: created, rejected, removed; approved and moved",
    "limits": "a plan by jobs, with the limits that koord-descheduler's port tells",
    "limitslog": "a plan by jobs, with the limits that koord-descheduler's log tells",
    "limitsmap": "a plan by jobs, with the limits that its ConfigMap has",
    "several": "a plan by jobs where two koord-deschedulers are ready",
    "descheduler": "``descheduler_config``: rolled out, paused, resumed; a wrong name",
    "deschedulerlog": "``descheduler_config`` where the log is the proof",
    "deschedulerlease": "``descheduler_config`` where the Lease of its leader is the proof",
    "created": "a configuration that is refused, where there was no ConfigMap",
    "cron": "``descheduler_config`` with a CronJob",
    "preview": "``descheduler_config`` with ``state: previewed``",
}
"""What the tests of ``make ablation`` do, by the name of the scene."""
ADD_ON = "read and written only where the cluster has this add-on, which the lab has not"
ELSEWHERE: dict[tuple[str, str], str] = {
    **{
        (step, group): ADD_ON
        for step in ("read", "surge")
        for group in ("argoproj.io", "apps.kruise.io")
    },
    ("evict", ""): "nothing fails without it: why a drain waits may remain unknown",
    (
        "read",
        "admissionregistration.k8s.io",
    ): "nothing fails without it: the plan says that webhooks are unknown",
    ("read", "kubevirt.io"): ADD_ON,
    (
        "read",
        "lifecycle.k8s.io",
    ): "needs the feature gates of Kubernetes 1.37; the tests of 1.37 run with it",
    (
        "read",
        "scheduling.k8s.io",
    ): "needs the feature gates of Kubernetes 1.37; the tests of 1.37 run with it",
    **{
        ("dry-run", group): "what a descheduler reads depends on its plugins"
        for group in sorted({rule.group for rule in roles.BY_STEP["dry-run"].rules})
    },
}
"""Why rights are granted that no scene is about, by step and API group."""


def rights() -> Iterator[tuple[str, str, str]]:
    """Each right: its step, its API group, and its words as RBAC has them."""
    for role in roles.ROLES:
        for rule in role.rules:
            for resource in rule.resources.split():
                plural, slash, subresource = resource.partition("/")
                name = f"{plural}{'.' + rule.group if rule.group else ''}{slash}{subresource}"
                yield from (
                    (role.step, rule.group, f"{verb} {name}") for verb in rule.verbs.split()
                )


def unproven() -> list[str]:
    """The rights with neither proof nor reason."""
    known = json.loads(PROOF.read_text(encoding="utf-8"))
    return [
        f"{step}: {words}"
        for step, group, words in rights()
        if words not in known.get(step, {}) and (step, group) not in ELSEWHERE
    ]


def table() -> str:
    """Role, rights, and what fails without each of them."""
    known = json.loads(PROOF.read_text(encoding="utf-8"))
    rows: dict[tuple[str, str], list[str]] = {}
    for step, group, words in rights():
        found = known.get(step, {}).get(words)
        if found:
            end = ", which names it" if found["named"] else ""
            why = f"{SCENES[found['scene']]}{end}"
        else:
            why = f"not tried: {ELSEWHERE.get((step, group), 'no reason')}"
        rows.setdefault((step, why), []).append(words)
    lines = ["", ".. list-table::", "   :header-rows: 1", "   :widths: 14 46 40", ""]
    lines += ["   * - Role", "     - Without one of", "     - fails"]
    for (step, why), words_ in rows.items():
        lines += [f"   * - ``{step}``", f"     - {', '.join(words_)}", f"     - {why}"]
    return "\n".join([*lines, "", ""])


def written(guide: str) -> str:
    """The guide with the table."""
    before, _begin, rest = guide.partition(BEGIN)
    _old, end, after = rest.partition(END)
    return before + BEGIN + table() + end + after


if __name__ == "__main__":
    GUIDE.write_text(written(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
