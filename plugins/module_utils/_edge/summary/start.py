# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How a run of ``maintain`` starts: what is left to do of its nodes, and in which batches of hosts."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies


def start(answers: replies.Answers, *, hosts: t.Collection[str]) -> dict[str, t.Any]:
    """What the memory of an earlier start (``listed``) and the preflight of what it left to do (``plan``) come to.

    ``hosts`` are the hosts that the inventory knows. Returned are

    * ``finished``: the nodes that the earlier start has finished. Of them, those that are still out of service with its
      record are ``half_back``, and those that no other run has out are to be given back once more (``give_back``);
    * ``waves``: the nodes left to do, wave by wave, and ``batches``: the same, each led by its controller host;
    * ``hosts``: the hosts of these nodes with the addresses of those that the inventory does not know, and
      ``members``: all hosts of the batches in order;
    * ``runs``: of the nodes that were out of service before, the runs that had left them so;
    * ``blockers``: what stands in the way, as sentences.
    """
    listed, plan = answers["listed"], answers["plan"]
    resumable = listed.get("resumable") or {}
    resumed, finished = resumable.get("run") or "", list(resumable.get("finished") or ())
    recorded = [trace for trace in listed["traces"] if trace["object"].startswith("Node ")]
    own = [node for trace in recorded if trace["run"] == resumed for node in trace.get("nodes") or ()]
    others = [node for trace in recorded if trace["run"] != resumed for node in trace.get("nodes") or ()]
    waves = [left for wave in plan.get("waves") or () if (left := replies.without(wave, finished))]
    batches = [[f"maintenance-wave-{number}", *wave] for number, wave in enumerate(waves, start=1)]
    planned = {node["name"]: node for node in plan.get("nodes") or ()}

    def host(name: str) -> dict[str, str]:
        address = "" if name in hosts else planned.get(name, {}).get("address") or ""
        return {"name": name, "address": address}

    return {
        "finished": finished,
        "half_back": replies.unique(node for node in own if node in finished),
        "give_back": replies.without(finished, others),
        "waves": waves,
        "batches": batches,
        "hosts": [host(node) for wave in waves for node in wave],
        "members": [
            {**host(name), "leads": name == batch[0], "nodes": batch[1:]} for batch in batches for name in batch
        ],
        "runs": {name: node["record"]["run"] for name, node in planned.items() if node.get("record")},
        "blockers": [replies.sentence(finding) for finding in replies.blockers(plan)],
    }
