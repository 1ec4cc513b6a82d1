# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How a run of ``maintain`` starts: which nodes are left to do, and in which batches of hosts."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes

HOOKS = ("before_node", "before_pod", "after_pod", "after_node")


def _on_hosts(wanted: t.Mapping[str, t.Any]) -> bool:
    """Whether task files of hooks or of a fence run, which may be delegated to the nodes' hosts."""
    return bool(wanted["fence_tasks"]) or any(rule.get("tasks") for hook in HOOKS for rule in wanted[hook])


def _without(plan: replies.Answer, unreached: t.Mapping[str, str]) -> dict[str, t.Any]:
    """What a plan says otherwise once its nodes with such hosts join no wave; ``unreached`` has the reasons."""
    if not unreached:
        return {}
    waves = [[node for node in wave if node not in unreached] for wave in plan["waves"]]
    told = {name: outcomes.entry(name, outcomes.PlanOutcome.BLOCKED, why) for name, why in unreached.items()}
    found: dict[str, t.Any] = {"nodes": [{**node, **told.get(node["name"], {})} for node in plan["nodes"]]}
    for key in ("waves", "wave_seconds", "wave_ranges", "wave_parts"):
        values = zip(waves, waves if key == "waves" else plan.get(key) or (), strict=False)
        found[key] = [value for wave, value in values if wave]
    whole = [sum(each) for each in zip((0, 0), *found["wave_ranges"], strict=True)]
    return {**found, "estimate_seconds": sum(found["wave_seconds"]), "estimate_range": whole}


def _left(plan: replies.Answer, over: t.Container[str]) -> list[tuple[list[str], float]]:
    """The waves of the plan without the nodes that are over, each with its forecast."""
    waves = zip(plan.get("waves") or (), plan.get("wave_seconds") or (), strict=True)
    rest = (([node for node in wave if node not in over], seconds) for wave, seconds in waves)
    return [(wave, seconds) for wave, seconds in rest if wave]


def _out(traces: t.Sequence[t.Mapping[str, t.Any]], run: str) -> tuple[list[str], list[str]]:
    """The nodes that are out of service with the record of this run, and those with the record of another."""
    found = [trace for trace in traces if trace["object"].startswith("Node ")]
    own = [node for trace in found if trace["run"] == run for node in trace.get("nodes") or ()]
    return own, [node for trace in found if trace["run"] != run for node in trace.get("nodes") or ()]


def _host(name: str, hosts: t.Container[str], planned: t.Mapping[str, replies.Answer]) -> dict[str, str]:
    """A host; its address only where the inventory does not have it."""
    return {"name": name, "address": "" if name in hosts else planned.get(name, {}).get("address") or ""}


def start(
    answers: replies.Answers,
    *,
    hosts: t.Collection[str],
    wanted: t.Mapping[str, t.Any],
    evacuates: bool = False,
    out_of_reach: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """What is left to do, from an earlier start (``listed``) and the plan for what it did not finish (``plan``).

    ``hosts`` are the hosts of the inventory, ``wanted`` is the input, ``out_of_reach`` says by host why tasks cannot
    run there (empty: they can), if the nodes of such hosts are to be left out. Returns

    * ``has_work``: whether there is work to do on the hosts;
    * ``finished``: the nodes that the earlier start has finished. Those of them that are still out of service with its
      record are ``half_back``; those that no other run has taken out are uncordoned once more (``give_back``);
    * ``waves``: the nodes left to do, and ``batches``: the same, each with its controller host first. The nodes are
      hosts of a batch only if something runs on hosts: ``sizes`` says how many hosts each has;
    * ``hosts``: the hosts of these nodes, with addresses for those that are not in the inventory, and ``members``: all
      hosts of the batches in order. ``adopt`` says that no node of the batch belongs to a run other than the one
      named, whose tasks are known to be over by that;
    * ``seconds``: the forecast for each batch, with the work on its hosts;
    * ``runs``: the runs that had left nodes out of service before, by node;
    * ``replanned``: what the plan says otherwise without the nodes whose hosts are out of reach;
    * ``left_out``: why wanted nodes join no wave, ``blockers``: what prevents the maintenance, in one line, or none.
    """
    listed, plan = answers["listed"], answers["plan"]
    resumable = listed.get("resumable") or {}
    finished = list(resumable.get("finished") or ())
    own, others = _out(listed["traces"], resumable.get("run") or "")
    has_work = not evacuates and bool(wanted["tasks"] or wanted["reboot"])
    unreached = {host: why for host, why in (out_of_reach or {}).items() if why}
    left = _left(plan, [*finished, *unreached])
    waves = [wave for wave, _seconds in left]
    batches = [[f"maintenance-wave-{n}", *wave] for n, wave in enumerate(waves, 1 + (resumable.get("waves_done") or 0))]
    manned = batches if has_work or _on_hosts(wanted) else [batch[:1] for batch in batches]
    planned = {node["name"]: node for node in plan.get("nodes") or ()}
    runs = {name: node["record"]["run"] for name, node in planned.items() if node.get("record")}

    def member(name: str, batch: t.Sequence[str]) -> dict[str, t.Any]:
        adopt = bool(wanted["run"]) and all(runs.get(node, wanted["run"]) == wanted["run"] for node in batch[1:])
        return {**_host(name, hosts, planned), "leads": name == batch[0], "nodes": batch[1:], "adopt": adopt}

    return {
        "has_work": has_work,
        "finished": finished,
        "half_back": replies.unique(node for node in own if node in finished),
        "give_back": replies.without(finished, others),
        "waves": waves,
        "batches": batches,
        "sizes": [len(batch) for batch in manned],
        "seconds": [seconds + (wanted["tasks_estimate"] if has_work else 0) for _wave, seconds in left],
        "hosts": [_host(node, hosts, planned) for wave in waves for node in wave],
        "members": [member(name, batch) for batch, some in zip(batches, manned, strict=True) for name in some],
        "runs": runs,
        "replanned": _without(plan, unreached),
        "left_out": [*(replies.left_out(plan) if plan.get("feasible") else ()), *unreached.values()],
        "blockers": [] if plan.get("feasible") else replies.short(replies.blockers(plan)),
    }
