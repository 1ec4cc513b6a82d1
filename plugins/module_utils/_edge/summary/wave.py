# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of a wave of ``maintain`` so far, and which nodes the next calls are for."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import details
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes

ABOUT_NODES = (
    *("cordon", "protect", "migrate", "out", "returning", "verify", "taint", "guards", "uncordon", "parked"),
    "hooks",
)
"""The calls that say why a node failed, in order; the first failure counts."""
WHOLE = ("cordon", "protect", "migrate", "returning", "verify", "guards", "uncordon")
"""The calls whose failure as a whole ends the way of the wave; others fail their tasks themselves."""


@dataclass(frozen=True, kw_only=True)
class Wave:
    """A wave as the playbook knows it.

    ``answers`` are those of ``ABOUT_NODES``, of ``again``, which checks whether the wave still fits, and of
    ``lost_guards`` and ``lost_nodes``, which return failed nodes to service. ``works`` are the results of the tasks on
    the nodes' hosts, in the order of ``nodes``, as {outcome, message}; the outcome is waiting, done or failed. Without
    work there are none.
    ``broken`` is the error of a call that ended the way out of service, ``broken_late`` of one on the way back.
    ``run`` is the run with its nonce, ``runs`` are the runs that had left nodes out of service before.
    """

    answers: replies.Answers
    nodes: t.Sequence[str]
    has_work: bool
    evacuates: bool
    on_failure: str
    check: bool
    run: str
    runs: t.Mapping[str, str]
    works: t.Sequence[t.Mapping[str, t.Any]]
    broken: str = ""
    broken_late: str = ""

    def of(self, *calls: str) -> list[replies.Answer]:
        return [self.answers.get(call) or {} for call in calls]

    def passed(self, call: str) -> list[str]:
        return replies.passed(*self.of(call))

    @functools.cached_property
    def stop(self) -> str:
        """Why the wave does not start; empty if it does."""
        (again,) = self.of("again")
        if again.get("feasible", True) or not self.fitting:
            return ""
        found = " ".join(finding["message"] for finding in replies.blockers(again))
        return (
            f"The cluster has changed, and the wave {', '.join(self.nodes)} no longer fits: {found} "
            "Run the same command again, which makes a new plan."
        )

    @functools.cached_property
    def fitting(self) -> list[str]:
        """The nodes that are not left out because of a blocker by now."""
        (again,) = self.of("again")
        return replies.without(self.nodes, again.get("left_out") or ())

    @functools.cached_property
    def cordoned(self) -> list[str]:
        return self.passed("cordon")

    @functools.cached_property
    def unhooked(self) -> list[str]:
        """The nodes of which a hook failed."""
        return replies.names(replies.failed(*self.of("hooks")))

    @functools.cached_property
    def verified(self) -> list[str]:
        return replies.without(self.passed("verify"), self.unhooked)

    @functools.cached_property
    def uncordoned(self) -> list[str]:
        return self.passed("uncordon")

    @functools.cached_property
    def touched(self) -> list[str]:
        """The nodes that may have been changed: all of them if the result of the cordon is missing."""
        known = self.stop or not self.fitting or "nodes" in self.of("cordon")[0]
        return self.cordoned if known else self.fitting

    @functools.cached_property
    def drained(self) -> list[str]:
        through = [
            entry["name"]
            for entry in replies.entries(*self.of("migrate"))
            if not entry.get("failed") and entry["outcome"] != outcomes.CordonOutcome.GONE
        ]
        hooks = [entry for entry in replies.failed(*self.of("hooks")) if entry.get("hook") == "after_pod"]
        return replies.without(through, replies.names(hooks))

    @functools.cached_property
    def ready(self) -> list[str]:
        """The nodes that are drained and, if there is work to do on their hosts, were checked again for it."""
        if self.broken:
            return []
        return self.passed("out") if self.has_work else self.drained

    @functools.cached_property
    def work(self) -> dict[str, t.Mapping[str, t.Any]]:
        """The result of the work on each host that is ready for it; empty without work."""
        if not self.has_work:
            return {}
        found = dict(zip(self.nodes, self.works, strict=True))
        return {node: found[node] for node in self.ready}

    def worked(self, outcome: str) -> list[str]:
        return [node for node, work in self.work.items() if work["outcome"] == outcome]

    @functools.cached_property
    def failed_work(self) -> list[str]:
        return self.worked("failed")

    @functools.cached_property
    def returning(self) -> list[str]:
        """The nodes that return: those whose work is done, or failed without keeping them out."""
        if self.evacuates:
            return []
        done = self.worked("done") if self.has_work else self.ready
        return done + (self.failed_work if self.on_failure == "release" else [])

    @functools.cached_property
    def over(self) -> list[str]:
        """The nodes that are gone or were registered again while they were out: nothing keeps them out any more."""
        ended = (
            outcomes.CordonOutcome.GONE,
            outcomes.CordonOutcome.REPLACED,
            outcomes.CordonOutcome.NOT_IN_MAINTENANCE_YET,
        )
        found = (entry for entry in replies.entries(*self.of("returning", "parked")) if entry.get("outcome") in ended)
        return replies.names(found)

    @functools.cached_property
    def not_rebooted(self) -> list[str]:
        """The returning nodes whose hosts did not have to be rebooted."""
        return [node for node in self.returning if self.work and self.work[node].get("not_rebooted") in (True, "True")]

    @functools.cached_property
    def others(self) -> list[dict[str, t.Any]]:
        """The other runs that had left nodes out of service which are back now, each with these nodes."""
        verified = set(self.verified)
        nodes: dict[str, list[str]] = {}
        for node in self.nodes:
            if node in verified and self.runs.get(node, "") not in ("", self.run.partition("/")[0]):
                nodes.setdefault(self.runs[node], []).append(node)
        return [{"run": run, "nodes": found} for run, found in nodes.items()]

    @functools.cached_property
    def done(self) -> list[str]:
        """The nodes that are where they should be."""
        if self.check:
            return self.drained
        if self.evacuates:
            parked = set(self.passed("parked"))
            return [node for node in self.drained if node in parked]
        verified = set(self.passed("verify"))
        # In service, but something is left that protected the node's pods: the same command removes that.
        guarded = replies.names(replies.failed(*self.of("guards")))
        return replies.without([node for node in self.uncordoned if node in verified], [*self.failed_work, *guarded])

    @functools.cached_property
    def failed(self) -> list[dict[str, t.Any]]:
        """An entry about each node that is not where it should be."""
        calls = self.of(*ABOUT_NODES)
        gone = [each for each in replies.entries(*calls) if each.get("outcome") == outcomes.CordonOutcome.GONE]
        messages = replies.messages([*replies.failed(*calls), *gone])
        return [self._failure(node, messages.get(node, "")) for node in replies.without(self.fitting, self.done)]

    def _failure(self, node: str, message: str) -> dict[str, t.Any]:
        worked = node in self.failed_work
        lost = f"The connection to host {node} was lost while your tasks ran."
        why = replies.reason(
            self.work[node]["message"] if worked else "",
            message,
            self.broken or self.broken_late,
            lost if node in self.ready and not self.evacuates else "",
        )
        kept = node in self.ready or (self.on_failure == "keep" and node in self.cordoned)
        not_back = self.not_given_back.get(node, "")
        if not_back not in why:
            why = f"{replies.ended(why)} It could not be returned to service: {not_back}"
        remedy = (
            "To continue, run the same command again. To return the node to service: "
            f"ansible-playbook kubeops.node_maintenance.release -e maintain_nodes={node}"
        )
        stays = (kept or not_back) and node not in (*self.uncordoned, *self.over) and not self.check
        outcome = outcomes.PlaybookOutcome.FAILED_TASKS if worked else outcomes.PlaybookOutcome.FAILED
        return replies.failure(node, why, remedy if stays else None, outcome)

    @functools.cached_property
    def not_given_back(self) -> dict[str, str]:
        """Why failed nodes could not be returned to service; without those that could, or belong to another run."""
        calls = self.of("lost_guards", "lost_nodes")
        about = [each for each in replies.failed(*calls) if each.get("outcome") not in replies.OF_OTHERS]
        whole = [call["msg"] for call in calls if not call.get("skipped") and "nodes" not in call and "msg" in call]
        messages = {**dict.fromkeys(self.touched, next(iter(whole), "")), **replies.messages(about)}
        return {node: messages[node] for node in self.touched}


def wave(answers: replies.Answers, **known: t.Any) -> dict[str, t.Any]:
    """What came of a wave so far, as names of nodes; ``known`` are the other fields of ``Wave``.

    * ``stop``: why the wave does not start;
    * ``drained``, ``ready``: how far the nodes came. ``lost``: those that failed and are returned to service at once;
    * ``unfinished``: those that stay out of service because their work is not done. ``returning``: those that return,
      and of them ``not_rebooted`` those whose hosts did not have to be;
    * ``finished``: those that passed the gates after their work. ``others``: the other runs to be told about them;
    * ``held``: those that stay out because of a hook. ``released``: those to be tainted, ``untainted``: those where
      that failed, ``give_back``: the others of them, and those that are ``over``: gone, or registered again;
    * ``not_back``: those that returned only in part;
    * ``done``: those that are where they should be, ``failed``: an entry about each of the others.
    """
    found = Wave(**{**known, "answers": answers})
    through = found.passed("returning" if found.on_failure == "release" else "verify")
    released = replies.without(through, found.unhooked)
    untainted = replies.names(replies.failed(*found.of("taint")))
    give_back = replies.without(released, untainted)
    return {
        "stop": found.stop,
        "drained": found.drained,
        "ready": found.ready,
        "lost": replies.without(found.touched, found.ready),
        "unfinished": replies.without(found.ready, found.returning),
        "returning": found.returning,
        "not_rebooted": found.not_rebooted,
        "finished": replies.without(found.verified, found.failed_work),
        "others": found.others,
        "held": replies.without(through, released),
        "released": released,
        "untainted": untainted,
        "give_back": [*give_back, *(node for node in found.over if node in found.returning and node not in give_back)],
        "over": found.over,
        "not_back": replies.without(found.returning, found.uncordoned),
        "done": [] if found.stop else found.done,
        "failed": [] if found.stop else found.failed,
    }


def through(answers: replies.Answers) -> dict[str, list[str]]:
    """The ``nodes`` that came through a call (``call``), and of which no hook (``hooks``) failed."""
    return {"nodes": replies.without(replies.passed(answers["call"]), replies.names(replies.failed(answers["hooks"])))}


def broken(answers: replies.Answers) -> dict[str, str]:
    """What the first of the ``WHOLE`` calls said that failed as a whole, as ``text``; empty if none did."""
    calls = (answers.get(call) or {} for call in WHOLE)
    said = (call["msg"] for call in calls if "msg" in call and "nodes" not in call and not call.get("skipped"))
    return {"text": next(said, "")}


def came(answers: replies.Answers, **known: t.Any) -> dict[str, t.Any]:
    """What is kept of a wave that has ended: ``failed``, ``stop``, ``left_out``, ``back`` for the run, and ``told``.

    ``told`` are the results for the report, with what came of the nodes at the end.
    """
    found = wave(answers, **known)
    told = [details.told(call) for call in answers.values() if call and not call.get("skipped")]
    return {
        "failed": found["failed"],
        "stop": found["stop"],
        "left_out": replies.left_out(answers.get("again") or {}),
        "back": found["done"],
        "told": [*told, {"nodes": found["failed"]}],
    }
