# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of a wave of ``maintain``, at any point of it: asked after each call, it says what the next one is for."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes

ABOUT_NODES = ("cordon", "protect", "migrate", "out", "returning", "verify", "taint", "guards", "uncordon", "parked")
"""The calls whose answers say why a node did not come through; the earliest that failed counts."""
OF_OTHERS = (outcomes.CordonOutcome.ADOPTED_BY, outcomes.CordonOutcome.HELD)
"""Outcomes of nodes that are another run's by now: that they were not given back is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A wave as the playbook knows it.

    ``answers`` are those of the calls of ``ABOUT_NODES``, of ``again``, which asks whether the wave still fits, and of
    ``lost_guards`` and ``lost_nodes``, which give back what did not come through. ``wanted`` is the input, ``works``
    what the tasks on the nodes' hosts came to, in the order of ``nodes``, as {outcome, message}; an outcome is waiting,
    done or failed.
    ``broken`` is the error of a call that ended the way out of service, ``broken_late`` that of the way back.
    ``run`` is the run with its nonce, ``runs`` are those that had left nodes out of service before.
    """

    answers: replies.Answers
    nodes: t.Sequence[str]
    wanted: t.Mapping[str, t.Any]
    evacuates: bool
    check: bool
    run: str
    runs: t.Mapping[str, str]
    works: t.Sequence[t.Mapping[str, str]]
    broken: str = ""
    broken_late: str = ""

    def of(self, *calls: str) -> list[replies.Answer]:
        return [self.answers.get(call) or {} for call in calls]

    def passed(self, call: str) -> list[str]:
        return replies.passed(*self.of(call))

    @property
    def has_work(self) -> bool:
        return not self.evacuates and bool(self.wanted["tasks"] or self.wanted["reboot"])

    @property
    def stop(self) -> str:
        """Why the wave is not begun; empty where it is."""
        (again,) = self.of("again")
        if again.get("feasible", True):
            return ""
        found = " ".join(finding["message"] for finding in replies.blockers(again))
        return (
            f"The cluster changed, and the wave {', '.join(self.nodes)} does not fit any more: {found} "
            "Run the same command again: it plans anew."
        )

    @property
    def cordoned(self) -> list[str]:
        return self.passed("cordon")

    @property
    def touched(self) -> list[str]:
        """The nodes that something may have been done to: all of them where the answer about it is missing."""
        known = self.stop or "nodes" in self.of("cordon")[0]
        return self.cordoned if known else list(self.nodes)

    @property
    def drained(self) -> list[str]:
        return [
            entry["name"]
            for entry in replies.entries(*self.of("migrate"))
            if not entry.get("failed") and entry["outcome"] != outcomes.CordonOutcome.GONE
        ]

    @property
    def ready(self) -> list[str]:
        """The nodes that are empty, and proven to be so once more where there is work to do on their hosts."""
        if self.broken:
            return []
        return self.passed("out") if self.has_work else self.drained

    def worked(self, outcome: str) -> list[str]:
        found = {node for node, work in zip(self.nodes, self.works, strict=True) if work["outcome"] == outcome}
        return [node for node in self.ready if node in found] if self.has_work else []

    @property
    def returning(self) -> list[str]:
        """The nodes that come back: those whose work is done, or failed and is not to keep them out."""
        if self.evacuates:
            return []
        done = self.worked("done") if self.has_work else self.ready
        return done + (self.worked("failed") if self.wanted["on_failure"] == "release" else [])

    @property
    def released(self) -> list[str]:
        return self.passed("returning" if self.wanted["on_failure"] == "release" else "verify")

    @property
    def untainted(self) -> list[str]:
        return replies.names(replies.failed(*self.of("taint")))

    @property
    def others(self) -> list[dict[str, t.Any]]:
        """The runs that had left nodes out of service which are back now, each with these nodes."""
        verified = self.passed("verify")
        run_id = self.run.partition("/")[0]
        runs = replies.unique(self.runs[node] for node in self.nodes if node in verified and node in self.runs)
        return [
            {"run": run, "nodes": [node for node in self.nodes if self.runs.get(node) == run and node in verified]}
            for run in runs
            if run != run_id
        ]

    @property
    def done(self) -> list[str]:
        """The nodes that are where they should be."""
        if self.check:
            return self.drained
        if self.evacuates:
            return [node for node in self.passed("parked") if node in self.drained]
        # In service, and something of what protected its pods is left: the same command takes that away.
        guarded = replies.names(replies.failed(*self.of("guards")))
        back = [node for node in self.passed("uncordon") if node in self.passed("verify")]
        return replies.without(back, [*self.worked("failed"), *guarded])

    def failure(self, node: str) -> dict[str, t.Any]:
        """The entry about a node that is not where it should be."""
        worked = node in self.worked("failed")
        not_back = self._not_given_back(node)
        why = self._why(node)
        message = why if not_back in why else f"{replies.ended(why)} It could not be given back: {not_back}"
        kept = node in self.ready or (self.wanted["on_failure"] == "keep" and node in self.cordoned)
        if (kept or not_back) and node not in self.passed("uncordon") and not self.check:
            message = (
                f"{replies.ended(message)} Node {node} stays out of service. Go on with the same command, "
                f"or give it back: ansible-playbook kubeops.node_maintenance.release -e maintain_nodes={node}"
            )
        outcome = outcomes.PlaybookOutcome.FAILED_TASKS if worked else outcomes.PlaybookOutcome.FAILED
        return {"name": node, "failed": True, "outcome": outcome.value, "message": message}

    def _why(self, node: str) -> str:
        told = [entry for entry in replies.entries(*self.of(*ABOUT_NODES)) if entry["name"] == node]
        told = [entry for entry in told if entry.get("failed")] + [
            entry for entry in told if entry.get("outcome") == outcomes.CordonOutcome.GONE
        ]
        reasons = [
            self.works[self.nodes.index(node)]["message"] if node in self.worked("failed") else "",
            told[0]["message"] if told else "",
            self.broken or self.broken_late,
            f"Host {node} was lost while your tasks ran." if node in self.ready and not self.evacuates else "",
        ]
        return next(filter(None, reasons), "It did not come through.")

    def _not_given_back(self, node: str) -> str:
        """Why a node that did not come through could not be given back; empty where it could, or is no longer ours."""
        if node not in self.touched:
            return ""
        calls = self.of("lost_guards", "lost_nodes")
        said = [
            entry["message"]
            for entry in replies.failed(*calls)
            if entry["name"] == node and entry.get("outcome") not in OF_OTHERS
        ]
        said += [call["msg"] for call in calls if not call.get("skipped") and "nodes" not in call and "msg" in call]
        return str(said[0]) if said else ""

    def summary(self) -> dict[str, t.Any]:
        failures = [] if self.stop else [self.failure(node) for node in replies.without(self.nodes, self.done)]
        uncordoned, verified = self.passed("uncordon"), self.passed("verify")
        return {
            "has_work": self.has_work,
            "stop": self.stop,
            "adopt": bool(self.wanted["run"])
            and all(self.runs.get(node, self.wanted["run"]) == self.wanted["run"] for node in self.nodes),
            "cordoned": self.cordoned,
            "protected": self.passed("protect"),
            "drained": self.drained,
            "ready": self.ready,
            "lost": replies.without(self.touched, self.ready),
            "unfinished": replies.without(self.ready, self.returning),
            "returning": self.returning,
            "finished": replies.without(verified, self.worked("failed")),
            "others": self.others,
            "released": self.released,
            "untainted": self.untainted,
            "give_back": replies.without(self.released, self.untainted),
            "not_back": replies.without(self.returning, uncordoned),
            "failed": failures,
        }


def wave(answers: replies.Answers, **known: t.Any) -> dict[str, t.Any]:
    """What came of a wave so far (``known`` by the words of ``Wave``), as names of nodes by what they are for.

    * ``has_work``: there is work to do on its hosts. ``adopt``: its nodes are those of the run that was named, or
      nobody's. ``stop``: why the wave is not begun;
    * ``cordoned``, ``protected``, ``drained``, ``ready``: how far they came. ``lost``: those that go no further and are
      given back at once;
    * ``unfinished``: those whose work is not done, and which stay out of service. ``returning``: those that come back;
    * ``finished``: those that passed the gates after their work. ``others``: the runs to be told so;
    * ``released``: those to be tainted, ``untainted``: those where that failed, ``give_back``: the rest of them;
    * ``not_back``: those that came back only half way;
    * ``failed``: an entry about each node that is not where it should be.
    """
    return Wave(**{**known, "answers": answers}).summary()
