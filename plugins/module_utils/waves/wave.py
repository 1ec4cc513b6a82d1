# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of a wave so far, and which nodes the next steps are for."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    outcomes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import call_results

ABOUT_NODES = (
    "cordon",
    "protect",
    "migrate",
    "fenced",
    "out",
    "returning",
    "verify",
    "taint",
    "guards",
    "uncordon",
    "parked",
    "before_node",
    "after_node",
    "lost_hooks",
    "files",
)
"""The steps that say why a node failed, in order; the first failure counts."""


NOT_DONE: t.Mapping[str, t.Any] = {"outcome": "waiting", "message": ""}
"""The work on a host of which nothing is known, as after its connection was lost."""


@dataclass(frozen=True, kw_only=True)
class Wave:
    """A wave with the ``answers`` of its steps so far.

    ``answers`` are by the names of ``run_wave``; of ``again`` (whether the wave still fits), of
    those of ``ABOUT_NODES``, and of ``lost_guards`` and ``lost_nodes``, which return failed nodes
    to service. ``works`` are the results of the tasks on the nodes' hosts, by node, as {outcome,
    message, not_rebooted}; the outcome is waiting, done or failed. ``broken`` is the error of a
    step that ended the way out of service for all of the wave, ``broken_late`` of one on the way
    back. ``run`` is the run with its nonce, ``runs`` are the runs that had left nodes
    out of service before, by node. ``releases``: the nodes are those that earlier runs left out of
    service, and return without a way out before.
    """

    answers: call_results.Answers
    nodes: t.Sequence[str]
    has_work: bool
    evacuates: bool
    on_failure: str
    check: bool
    run: str
    runs: t.Mapping[str, str]
    works: t.Mapping[str, t.Mapping[str, t.Any]]
    releases: bool = False
    broken: str = ""
    broken_late: str = ""

    def of(self, *calls: str) -> list[call_results.Answer]:
        return [self.answers.get(call) or {} for call in calls]

    def passed(self, call: str) -> list[str]:
        return call_results.passed(*self.of(call))

    @functools.cached_property
    def stop(self) -> str:
        """Why the wave does not start; empty if it does."""
        (again,) = self.of("again")
        if again.get("feasible", True) or not self.fitting:
            return ""
        found = " ".join(finding["message"] for finding in call_results.blockers(again))
        return (
            f"The cluster has changed, and the wave {', '.join(self.nodes)} no longer fits: "
            f"{found} Run the same command again, which makes a new plan."
        )

    @functools.cached_property
    def fitting(self) -> list[str]:
        """The nodes that are not left out because of a blocker by now."""
        (again,) = self.of("again")
        return call_results.without(self.nodes, again.get("left_out") or ())

    @functools.cached_property
    def cordoned(self) -> list[str]:
        return self.passed("cordon")

    @functools.cached_property
    def unhooked(self) -> list[str]:
        """The nodes of which a hook failed."""
        failed = call_results.failed(*self.of("before_node", "after_node", "files"))
        return call_results.names(failed)

    @functools.cached_property
    def verified(self) -> list[str]:
        return call_results.without(self.passed("verify"), self.unhooked)

    @functools.cached_property
    def uncordoned(self) -> list[str]:
        return self.passed("uncordon")

    @functools.cached_property
    def touched(self) -> list[str]:
        """The nodes that may have been changed: all of them if the result of
        the cordon is missing.
        """
        known = self.stop or not self.fitting or "nodes" in self.of("cordon")[0]
        return self.cordoned if known else self.fitting

    @functools.cached_property
    def hooked(self) -> list[str]:
        """The cordoned nodes of which no hook failed."""
        return call_results.without(self.cordoned, self.unhooked)

    @functools.cached_property
    def protected(self) -> list[str]:
        """The nodes to be drained."""
        return call_results.without(self.passed("protect"), self.unhooked)

    @functools.cached_property
    def emptied(self) -> list[call_results.Entry]:
        """The drain's result for each node; of a fenced one that of its last drain."""
        again = call_results.entries(*self.of("fenced"))
        names = call_results.names(again)
        first = call_results.entries(*self.of("migrate"))
        return [*(entry for entry in first if entry["name"] not in names), *again]

    @functools.cached_property
    def drained(self) -> list[str]:
        through = [
            entry["name"]
            for entry in self.emptied
            if not entry.get("failed") and entry["outcome"] != outcomes.CordonOutcome.GONE
        ]
        hooks = [
            entry
            for entry in call_results.failed(*self.of("files"))
            if entry.get("hook") == "after_pod"
        ]
        # A surge may fail while its node is drained.
        failed = [*hooks, *call_results.failed(*self.of("protect"))]
        return call_results.without(through, call_results.names(failed))

    @functools.cached_property
    def ready(self) -> list[str]:
        """The nodes that are drained and, if there is work to do on their hosts,
        were checked again for it.
        """
        if self.broken:
            return []
        return self.passed("out") if self.has_work else self.drained

    @functools.cached_property
    def work(self) -> dict[str, t.Mapping[str, t.Any]]:
        """The result of the work on each host that is ready for it; empty without work."""
        if not self.has_work:
            return {}
        return {node: self.works.get(node, NOT_DONE) for node in self.ready}

    def worked(self, outcome: str) -> list[str]:
        return [node for node, work in self.work.items() if work["outcome"] == outcome]

    @functools.cached_property
    def failed_work(self) -> list[str]:
        return self.worked("failed")

    @functools.cached_property
    def returning(self) -> list[str]:
        """The nodes that return: those whose work is done, or failed without keeping them out."""
        if self.releases:
            return list(self.nodes)
        if self.evacuates:
            return []
        done = self.worked("done") if self.has_work else self.ready
        return done + (self.failed_work if self.on_failure == "release" else [])

    @functools.cached_property
    def over(self) -> list[str]:
        """The nodes that are gone or were registered again while they were out:
        nothing keeps them out any more.
        """
        ended = (
            outcomes.CordonOutcome.GONE,
            outcomes.CordonOutcome.REPLACED,
            outcomes.CordonOutcome.NOT_IN_MAINTENANCE_YET,
        )
        found = (
            entry
            for entry in call_results.entries(*self.of("returning", "parked"))
            if entry.get("outcome") in ended
        )
        return call_results.names(found)

    @functools.cached_property
    def not_rebooted(self) -> list[str]:
        """The returning nodes whose hosts did not have to be rebooted."""
        return [
            node
            for node in self.returning
            if self.work and self.work[node].get("not_rebooted") in (True, "True")
        ]

    @functools.cached_property
    def done(self) -> list[str]:
        """The nodes that are where they should be."""
        if self.stop:
            return []
        if self.check and not self.releases:
            return self.drained
        if self.evacuates:
            parked = set(self.passed("parked"))
            return [node for node in self.drained if node in parked]
        verified = set(self.returning if self.check else self.passed("verify"))
        # In service, but something is left that protected the node's pods:
        # the same command removes that.
        guarded = call_results.names(call_results.failed(*self.of("guards")))
        return call_results.without(
            [node for node in self.uncordoned if node in verified], [*self.failed_work, *guarded]
        )

    @functools.cached_property
    def failed(self) -> list[dict[str, t.Any]]:
        """An entry about each node that is not where it should be."""
        if self.stop:
            return []
        calls = self.of(*ABOUT_NODES)
        gone = [
            each
            for each in call_results.entries(*calls)
            if each.get("outcome") == outcomes.CordonOutcome.GONE
        ]
        messages = call_results.messages([*call_results.failed(*calls), *gone])
        return [
            _failure(self, node, messages.get(node, ""))
            for node in call_results.without(self.fitting, self.done)
        ]

    @functools.cached_property
    def lost(self) -> list[str]:
        """The nodes that failed on the way out, and are returned to service at once."""
        return call_results.without(self.touched, self.ready)

    @functools.cached_property
    def unfinished(self) -> list[str]:
        """The nodes that stay out of service because their work is not done."""
        return call_results.without(self.ready, self.returning)

    @functools.cached_property
    def through(self) -> list[str]:
        """The nodes that the gates, which check mode does not ask, do not keep out."""
        if self.check:
            return self.returning
        return self.passed("returning" if self.on_failure == "release" else "verify")

    @functools.cached_property
    def released(self) -> list[str]:
        """The nodes to be tainted and returned: no hook keeps them out either."""
        return call_results.without(self.through, self.unhooked)

    @functools.cached_property
    def held(self) -> list[str]:
        """The nodes that stay out because of a hook."""
        return call_results.without(self.through, self.released)

    @functools.cached_property
    def finished(self) -> list[str]:
        """The nodes that passed the gates after their work."""
        return call_results.without(self.verified, self.failed_work)

    @functools.cached_property
    def untainted(self) -> list[str]:
        return call_results.names(call_results.failed(*self.of("taint")))

    @functools.cached_property
    def give_back(self) -> list[str]:
        """The released nodes whose taints are set, and those that are ``over``."""
        found = call_results.without(self.released, self.untainted)
        over = [node for node in self.over if node in self.returning]
        return [*found, *call_results.without(over, found)]

    @functools.cached_property
    def not_back(self) -> list[str]:
        """The nodes that returned only in part."""
        return call_results.without(self.returning, self.uncordoned)


def others(wave: Wave) -> dict[str, list[str]]:
    """The other runs that had left nodes out of service which are back now, with these nodes."""
    found: dict[str, list[str]] = {}
    for node in wave.verified:
        run = wave.runs.get(node, "")
        if run not in ("", wave.run.partition("/")[0]):
            found.setdefault(run, []).append(node)
    return found


def _failure(wave: Wave, node: str, message: str) -> dict[str, t.Any]:
    worked = node in wave.failed_work
    lost = f"The connection to host {node} was lost while your tasks ran."
    why = call_results.reason(
        wave.work[node]["message"] if worked else "",
        message,
        wave.broken or wave.broken_late,
        lost if node in wave.ready and not wave.evacuates else "",
    )
    kept = node in wave.ready or (wave.on_failure == "keep" and node in wave.cordoned)
    kept = kept or wave.releases
    not_back = _not_given_back(wave).get(node, "")
    if not_back not in why:
        why = f"{call_results.ended(why)} It could not be returned to service: {not_back}"
    stays = (kept or not_back) and node not in (*wave.uncordoned, *wave.over) and not wave.check
    outcome = outcomes.PlaybookOutcome.FAILED_TASKS if worked else outcomes.PlaybookOutcome.FAILED
    if stays and wave.releases:
        # The message about a node of another run says how to take it over.
        remedy = "" if node in _of_others(wave) else _release(node)
        return call_results.failure(node, why, remedy, outcome)
    if stays:
        return kept_out(node, why, outcome)
    return call_results.failure(node, why, None, outcome)


def _of_others(wave: Wave) -> set[str]:
    """The nodes that other runs hold or have taken over."""
    entries = call_results.entries(*wave.of(*ABOUT_NODES))
    return {each["name"] for each in entries if each.get("outcome") in call_results.OF_OTHERS}


def _not_given_back(wave: Wave) -> dict[str, str]:
    """Why failed nodes could not be returned to service; without those that could,
    or belong to another run.
    """
    calls = wave.of("lost_guards", "lost_nodes")
    about = [
        each
        for each in call_results.failed(*calls)
        if each.get("outcome") not in call_results.OF_OTHERS
    ]
    whole = [call["msg"] for call in calls if "nodes" not in call and "msg" in call]
    messages = {
        **dict.fromkeys(wave.touched, next(iter(whole), "")),
        **call_results.messages(about),
    }
    return {node: messages[node] for node in wave.touched}


def kept_out(
    node: str, why: str, outcome: outcomes.Outcome = outcomes.PlaybookOutcome.FAILED
) -> dict[str, t.Any]:
    """The entry about a node that stays out of service, and what to do."""
    remedy = f"To continue, run the same command again. {_release(node)}"
    return call_results.failure(node, why, remedy, outcome)


def _release(node: str) -> str:
    return f"To return the node to service: {commands.release([node])}"


def task_files(answer: call_results.Answer, hook: str) -> list[call_results.Entry]:
    """The task files of a hook of pods that are left to run, as the drain's answer lists them."""
    found = [each for entry in call_results.entries(answer) for each in entry.get("hooks") or ()]
    files = [each for each in found if each["hook"] == hook and each["action"] == "tasks"]
    return [each for each in files if each["state"] != "done"]
