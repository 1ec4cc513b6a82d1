# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of a wave of ``maintain`` so far, and which nodes the next calls are for."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import details
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import call_results

ABOUT_NODES = (
    *(
        "cordon",
        "protect",
        "migrate",
        "out",
        "returning",
        "verify",
        "taint",
        "guards",
        "uncordon",
        "parked",
    ),
    "hooks",
)
"""The calls that say why a node failed, in order; the first failure counts."""
WHOLE = ("cordon", "protect", "migrate", "returning", "verify", "guards", "uncordon")
"""The calls whose failure as a whole ends the way of the wave;
others fail their tasks themselves.
"""


@dataclass(frozen=True, kw_only=True)
class Wave:
    """A wave as the playbook knows it.

    ``answers`` are those of ``ABOUT_NODES``, of ``again``, which checks whether the wave still
    fits, and of ``lost_guards`` and ``lost_nodes``, which return failed nodes to service. ``works``
    are the results of the tasks on the nodes' hosts, in the order of ``nodes``, as {outcome,
    message}; the outcome is waiting, done or failed. Without work there are none. ``broken`` is the
    error of a call that ended the way out of service, ``broken_late`` of one on the way back.
    ``run`` is the run with its nonce, ``runs`` are the runs that had left nodes
    out of service before.
    """

    answers: call_results.Answers
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
        return call_results.names(call_results.failed(*self.of("hooks")))

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
    def drained(self) -> list[str]:
        through = [
            entry["name"]
            for entry in call_results.entries(*self.of("migrate"))
            if not entry.get("failed") and entry["outcome"] != outcomes.CordonOutcome.GONE
        ]
        hooks = [
            entry
            for entry in call_results.failed(*self.of("hooks"))
            if entry.get("hook") == "after_pod"
        ]
        return call_results.without(through, call_results.names(hooks))

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
    def others(self) -> list[dict[str, t.Any]]:
        """The other runs that had left nodes out of service which are back now,
        each with these nodes.
        """
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
        # In service, but something is left that protected the node's pods:
        # the same command removes that.
        guarded = call_results.names(call_results.failed(*self.of("guards")))
        return call_results.without(
            [node for node in self.uncordoned if node in verified], [*self.failed_work, *guarded]
        )

    @functools.cached_property
    def failed(self) -> list[dict[str, t.Any]]:
        """An entry about each node that is not where it should be."""
        calls = self.of(*ABOUT_NODES)
        gone = [
            each
            for each in call_results.entries(*calls)
            if each.get("outcome") == outcomes.CordonOutcome.GONE
        ]
        messages = call_results.messages([*call_results.failed(*calls), *gone])
        return [
            self._failure(node, messages.get(node, ""))
            for node in call_results.without(self.fitting, self.done)
        ]

    def _failure(self, node: str, message: str) -> dict[str, t.Any]:
        worked = node in self.failed_work
        lost = f"The connection to host {node} was lost while your tasks ran."
        why = call_results.reason(
            self.work[node]["message"] if worked else "",
            message,
            self.broken or self.broken_late,
            lost if node in self.ready and not self.evacuates else "",
        )
        kept = node in self.ready or (self.on_failure == "keep" and node in self.cordoned)
        not_back = self.not_given_back.get(node, "")
        if not_back not in why:
            why = f"{call_results.ended(why)} It could not be returned to service: {not_back}"
        remedy = (
            "To continue, run the same command again. To return the node to service: "
            f"ansible-playbook kubeops.node_maintenance.release -e maintain_nodes={node}"
        )
        stays = (kept or not_back) and node not in (*self.uncordoned, *self.over) and not self.check
        outcome = (
            outcomes.PlaybookOutcome.FAILED_TASKS if worked else outcomes.PlaybookOutcome.FAILED
        )
        return call_results.failure(node, why, remedy if stays else None, outcome)

    @functools.cached_property
    def not_given_back(self) -> dict[str, str]:
        """Why failed nodes could not be returned to service; without those that could,
        or belong to another run.
        """
        calls = self.of("lost_guards", "lost_nodes")
        about = [
            each
            for each in call_results.failed(*calls)
            if each.get("outcome") not in call_results.OF_OTHERS
        ]
        whole = [
            call["msg"]
            for call in calls
            if not call.get("skipped") and "nodes" not in call and "msg" in call
        ]
        messages = {
            **dict.fromkeys(self.touched, next(iter(whole), "")),
            **call_results.messages(about),
        }
        return {node: messages[node] for node in self.touched}


def wave(answers: call_results.Answers, **known: t.Any) -> dict[str, t.Any]:
    """What came of a wave so far, as names of nodes; ``known`` are the other fields of ``Wave``.

    * ``stop``: why the wave does not start;
    * ``drained``, ``ready``: how far the nodes came. ``lost``:
      those that failed and are returned to service at once;
    * ``unfinished``: those that stay out of service because their work is not done. ``returning``:
      those that return, and of them ``not_rebooted`` those whose hosts did not have to be;
    * ``finished``: those that passed the gates after their work. ``others``:
      the other runs to be told about them;
    * ``held``: those that stay out because of a hook. ``released``: those to be tainted,
      ``untainted``: those where that failed, ``give_back``: the others of them, and those that are
      ``over``: gone, or registered again;
    * ``not_back``: those that returned only in part;
    * ``done``: those that are where they should be, ``failed``: an entry about each of the others.
    """
    found = Wave(**{**known, "answers": answers})
    through = found.passed("returning" if found.on_failure == "release" else "verify")
    released = call_results.without(through, found.unhooked)
    untainted = call_results.names(call_results.failed(*found.of("taint")))
    give_back = call_results.without(released, untainted)
    return {
        "stop": found.stop,
        "drained": found.drained,
        "ready": found.ready,
        "lost": call_results.without(found.touched, found.ready),
        "unfinished": call_results.without(found.ready, found.returning),
        "returning": found.returning,
        "not_rebooted": found.not_rebooted,
        "finished": call_results.without(found.verified, found.failed_work),
        "others": found.others,
        "held": call_results.without(through, released),
        "released": released,
        "untainted": untainted,
        "give_back": [
            *give_back,
            *(node for node in found.over if node in found.returning and node not in give_back),
        ],
        "over": found.over,
        "not_back": call_results.without(found.returning, found.uncordoned),
        "done": [] if found.stop else found.done,
        "failed": [] if found.stop else found.failed,
    }


def through(answers: call_results.Answers) -> dict[str, list[str]]:
    """The ``nodes`` that came through a call (``call``), and of which no
    hook (``hooks``) failed.
    """
    return {
        "nodes": call_results.without(
            call_results.passed(answers["call"]),
            call_results.names(call_results.failed(answers["hooks"])),
        )
    }


def broken(answers: call_results.Answers) -> dict[str, str]:
    """What the first of the ``WHOLE`` calls said that failed as a whole,
    as ``text``; empty if none did.
    """
    calls = (answers.get(call) or {} for call in WHOLE)
    said = (
        call["msg"]
        for call in calls
        if "msg" in call and "nodes" not in call and not call.get("skipped")
    )
    return {"text": next(said, "")}


def came(answers: call_results.Answers, **known: t.Any) -> dict[str, t.Any]:
    """What is kept of a wave that has ended: ``failed``, ``stop``, ``left_out``,
    ``back`` for the run, and ``told``.

    ``told`` are the results for the report, with what came of the nodes at the end.
    """
    found = wave(answers, **known)
    told = [details.told(call) for call in answers.values() if call and not call.get("skipped")]
    return {
        "failed": found["failed"],
        "stop": found["stop"],
        "left_out": call_results.left_out(answers.get("again") or {}),
        "back": found["done"],
        "told": [*told, {"nodes": found["failed"]}],
    }


# What came of the hooks of a wave so far, in the shape of one more call's result.


def hooked(
    answers: call_results.Answers, hook: call_results.Answer | None = None, wrong: str = ""
) -> dict[str, t.Any]:
    """The result ``so_far`` with what the other answers add: nodes that failed, and progress.

    With a ``hook`` these are about its task file alone, which failed if ``wrong`` says why.
    """
    failed = call_results.failed(*([answers["so_far"]] if hook else answers.values()))
    if hook and wrong:
        about = (
            f"Pod {hook['namespace']}/{hook['name']}" if hook.get("uid") else f"Node {hook['node']}"
        )
        what = f"{about}: hook {hook['hook']}, rule {hook['rule']} (tasks {hook['tasks']}) failed:"
        message = f"{what} {call_results.ended(wrong)} Mend that, then run the same command again."
        failed.append({**call_results.failure(hook["node"], message, None), "hook": hook["hook"]})
    timeline = [event for answer in answers.values() for event in answer.get("timeline") or ()]
    return {"nodes": failed, "failed": bool(failed), "timeline": timeline}


def task_files(answers: call_results.Answers, hook: str) -> dict[str, t.Any]:
    """``due``: the task files of a hook that are left to run, as listed by the
    answers for their nodes.
    """
    found = [
        each
        for entry in call_results.entries(*answers.values())
        for each in entry.get("hooks") or ()
    ]
    files = [each for each in found if each["hook"] == hook and each["action"] == "tasks"]
    return {"due": [each for each in files if each["state"] != "done"]}
