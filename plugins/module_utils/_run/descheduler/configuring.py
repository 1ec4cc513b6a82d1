# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``descheduler_config``: bring a descheduler's configuration in, restart it, and see that it runs, or take it back.

The order of writes: our journal (what was before), the ConfigMap, the Deployment. Each is conditional on what was
read. A call that is killed anywhere leaves a state from which the same call goes on.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    check,
    journaling,
    places,
    rollout,
    rules,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes, phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import (
    permits,
    proofs,
    restarting,
    sites,
)

STEADY = 10.0
"""Seconds for which new pods have to be ready where nothing tells what they run."""

TAKEN_BACK_WITHIN = 40.0
"""Seconds for the old configuration to run again after it was restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerOptions:
    """Options of the module. ``wish`` is ``None`` where no configuration was given (``restarted``)."""

    state: t.Literal["present", "restarted", "paused", "resumed"]
    flavor: check.Flavor
    schema: schemas.Schema
    place: places.Place
    means: proofs.Means
    wish: rollout.Wish | None = None
    faults: tuple[rules.Fault, ...] = ()
    restart: t.Literal["rollout", "scale", "none"] = "rollout"
    verify: bool = True
    rollback: bool = True
    running_jobs: t.Literal["wait", "refuse", "ignore"] = "wait"
    timeout: float = 300.0


def invalid(faults: t.Sequence[rules.Fault]) -> context.Result | None:
    """The result of a configuration with errors; ``None`` where there is none."""
    wrong = check.errors(faults)
    if not wrong:
        return None
    words = " ".join(f"{fault.path or 'config'}: {fault.sentence}" for fault in wrong)
    data = {
        "outcome": outcomes.ConfigOutcome.INVALID.value,
        "findings": [fault.to_dict() for fault in faults],
        **NOTHING,
    }
    return context.Result(data, failed=True, message=f"The configuration is wrong, nothing was written. {words}")


NOTHING: t.Mapping[str, t.Any] = {
    "restarted": False,
    "running_config_matches": None,
    "proof": "",
    "rolled_back": False,
    "reason": "",
}
"""The returns of a call that did nothing."""


def descheduler(ctx: context.Context, options: DeschedulerOptions) -> context.Result:
    """Bring the descheduler to what is wanted.

    Raises:
        StopRun: the descheduler is not there or does not read that ConfigMap, or its jobs do not end; nothing was
            written. Or somebody else wrote at the same time.
    """
    if found := invalid(options.faults):
        return found
    site = sites.Site.read(ctx, options.flavor, options.place)
    unread = places.unread(site.workload, options.place)
    if unread:
        raise context.StopRun("not_mounted", unread, "Name the ConfigMap and the key that it reads.", str(site.ref))
    return Rollout(ctx, options, site).run()


@dataclass
class Rollout:
    """One call; ``pausing`` keeps the journal, so that what was before can be given back."""

    ctx: context.Context
    options: DeschedulerOptions
    site: sites.Site
    pausing: bool = False
    restarted: bool = False
    proof: proofs.Proof | None = None

    def run(self) -> context.Result:
        site, options = self.site, self.options
        present = site.text
        means = None if present is None else options.means(present)
        wish = options.wish or self._present_wish(present, means)
        text = wish.written(present, means)
        changes = text is not None and (present is None or rollout.digest(means) != wish.digest)
        prover = proofs.Prover(site, options.flavor, options.schema, wish.config, options.means)
        why = self._restart_reason(wish, prover, changes=changes)
        marks = why and not site.is_cron
        idle = not site.is_cron and not site.replicas and not self._to_finish
        permits.permit(site, writes=text is not None, restarts=bool(marks))
        if marks and not idle:
            restarting.wait_for_jobs(site, options.running_jobs, options.timeout)
        before = site.journal
        if text is not None or marks:
            site.keep(self._journal(wish))
        if text is not None:
            site.write(text, present, self._sentence(present), had_map=True, had_data=True)
            restarting.say(phases.What.WRITTEN, f"{self._sentence(present)}.", site)
        if marks:
            scale = options.restart == "scale"
            restarting.restart(site, wish.digest, why, scale=scale, idle=idle, timeout=options.timeout)
            self.restarted = not idle
        if site.is_cron:
            self._end()
            return self._done("The next run of the CronJob reads it; nothing needs a restart.", wish)
        if idle:
            self._end()
            return self._done(f"{site.ref} has no pods (replicas: 0); it will start with this configuration.", wish)
        if options.restart == "none" and not self.restarted:
            self._end()
            note = "Nothing was restarted (restart: none); it takes effect when the pods start anew."
            return self._done(note if self.ctx.changes else "", wish)
        if not options.verify or self.ctx.check:
            self._end()
            return self._done("", wish)
        failure = self._prove(prover, fresh=self.restarted or before is not None)
        if not failure:
            self._end()
            return self._done("", wish)
        if not (self.restarted or before or text is not None):
            return self._failed(failure, False, f"{site.ref} is not as it should be, and this call changed nothing.")
        return self._take_back(wish, failure)

    def _end(self) -> None:
        """Nothing is left to take back."""
        site = self.site
        if self.pausing:
            return
        if site.journal and site.journal.suspended is not None:
            site.settle(restarting.unsuspended(site))
        site.forget()

    @property
    def _to_finish(self) -> bool:
        """Whether an earlier call was killed between scaling down and up."""
        return self.site.journal is not None and self.site.journal.replicas is not None and not self.site.replicas

    def _present_wish(self, present: str | None, means: t.Any) -> rollout.Wish:
        if present is None or not isinstance(means, dict):
            raise context.StopRun(
                "no_config",
                f"ConfigMap {self.site.place.namespace}/{self.site.place.config_map} holds no configuration under "
                f"{self.site.place.key}.",
                "Give config.",
                str(self.site.ref),
            )
        return rollout.Wish(means, present, as_text=True)

    def _restart_reason(self, wish: rollout.Wish, prover: proofs.Prover, *, changes: bool) -> str:
        site, options = self.site, self.options
        if site.is_cron:
            return ""
        if options.restart == "none" and options.state != "restarted":
            return ""
        if self._to_finish:
            return "an earlier restart was not finished"
        conflicts: tuple[str, ...] | None = None
        mark = rollout.marks_of(site.workload)[rollout.DIGEST]
        if not changes and options.state == "present" and mark in (None, wish.digest):
            # Pods without a digest can only be asked, and those that have just started tell nothing yet.
            progress = self._settled(within=STEADY if mark is None else 0.0)
            if not progress.waiting:
                self.proof = prover.prove(progress.pods)
                conflicts = self.proof.conflicts
                if mark is None and self.proof.comparison and self.proof.comparison.extras:
                    conflicts = conflicts or self.proof.comparison.extras
        asked = options.state == "restarted"
        return rollout.restart_reason(site.workload, wish, changes=changes, conflicts=conflicts, asked=asked)

    def _settled(self, within: float) -> rollout.Progress:
        """How far the pods are: once they are all available, or after so many seconds."""
        deadline = self.ctx.clock.now() + within
        while True:
            progress = rollout.progress(self.site.workload, self.site.pods())
            if not progress.waiting or self.ctx.clock.now() >= deadline:
                return progress
            self.ctx.clock.sleep(restarting.POLL)
            self.site.reread()

    def _sentence(self, present: str | None) -> str:
        place = self.options.place
        verb = "Change" if present is not None else "Write"
        return f"{verb} the configuration in ConfigMap {place.namespace}/{place.config_map}, key {place.key}"

    def _journal(self, wish: rollout.Wish) -> journaling.Journal:
        """What to take back to: the state of now, or the one that an unfinished call had found."""
        site, kept = self.site, self.site.journal
        now = site.as_it_is(wish.digest)
        if kept is None:
            prior = now
        else:
            means = None if site.text is None else self.options.means(site.text)
            theirs = site.text != kept.config and rollout.digest(means) not in kept.ours
            ours = tuple(dict.fromkeys((*kept.ours, wish.digest)))
            prior = replace(now, replicas=kept.replicas) if theirs else replace(kept, ours=ours)
        if self.pausing:
            prior = replace(prior, paused="dry_run")
        scales = self.options.restart == "scale" and prior.replicas is None and not site.is_cron
        return replace(prior, replicas=site.replicas) if scales else prior

    def _prove(self, prover: proofs.Prover, *, fresh: bool) -> str:
        """Wait until the wanted configuration runs; why it does not, or the empty text.

        Where nobody can read what runs, ``fresh`` pods have to stay ready for a while: the descheduler of sigs.k8s.io
        serves its health before it looks at everything that its policy names.
        """
        site, deadline = self.site, self.ctx.clock.now() + self.options.timeout
        if self.proof and self.proof.comparison and not self.proof.conflicts and not self.restarted:
            return ""
        told, held, since = "", None, 0.0
        while True:
            site.reread()
            progress = rollout.progress(site.workload, site.pods())
            waiting, lasting = progress.waiting, rollout.lives(progress.pods)
            if not waiting:
                self.proof = prover.prove(progress.pods)
                waiting = self.proof.waiting
                if not waiting and self.proof.conflicts:
                    waiting = f"another configuration runs ({self.proof.conflicts[0]})"
                if not waiting and (self.proof.comparison or not fresh):
                    return ""
            if waiting or lasting != held:
                held, since = lasting, self.ctx.clock.now()
            if not waiting and self.ctx.clock.now() - since >= STEADY:
                return ""
            waiting = waiting or "the new pods have to stay ready for a while"
            steadying = not (progress.waiting or self.proof is None or self.proof.waiting or self.proof.conflicts)
            if progress.hopeless or self.ctx.clock.now() >= deadline + (STEADY if steadying else 0.0):
                self.proof = None
                words = proofs.last_words(site, progress.dead)
                ended = "" if progress.hopeless else f" within {self.options.timeout:.0f} s"
                said = f" {progress.dead[0].pod} said: {words}" if words else f" ({waiting})"
                return f"The new configuration does not run{ended}.{said}"
            if waiting != told:
                restarting.say(phases.What.WAITING, f"Waiting: {waiting}.", site)
                told = waiting
            self.ctx.clock.sleep(restarting.POLL)

    def _take_back(self, wish: rollout.Wish, failure: str) -> context.Result:
        site, journal = self.site, self.site.journal
        if not self.options.rollback or journal is None:
            return self._failed(failure, False, "It was left so (rollback: false).")
        kept = ""
        if site.text != journal.config:
            place = self.options.place
            sentence = f"Restore ConfigMap {place.namespace}/{place.config_map}"
            means = None if site.text is None else self.options.means(site.text)
            if rollout.digest(means) in (wish.digest, *journal.ours):
                site.write(journal.config, site.text, sentence, had_map=journal.had_map, had_data=journal.had_data)
            else:
                kept = " Somebody else wrote the ConfigMap meanwhile; that was kept."
        restarting.unmark(site, journal)
        site.reread()
        waiting = self._settled(within=TAKEN_BACK_WITHIN).waiting
        ended = f"but {waiting}" if waiting else "and the old one runs"
        restarting.say(outcomes.ConfigOutcome.ROLLED_BACK, f"ConfigMap and {site.ref} are as before, {ended}.", site)
        site.forget()
        return self._failed(failure, True, f"ConfigMap and {site.ref} are as before, {ended}.{kept}")

    def _done(self, note: str, wish: rollout.Wish) -> context.Result:
        matches: bool | None = None
        if self.proof and not self.ctx.check:
            matches = not self.proof.conflicts
        verb = "would be " if self.ctx.check else ""
        told = []
        if self.ctx.changes:
            told.append(f"{self.site.ref} {verb}{'restarted with' if self.restarted else 'given'} the configuration.")
        else:
            told.append(f"{self.site.ref} has this configuration already.")
        told += [note] if note else []
        written = outcomes.ConfigOutcome.CHANGED if self.ctx.changes else outcomes.ConfigOutcome.UNCHANGED
        outcome = outcomes.ConfigOutcome.RESTARTED if self.restarted else written
        return context.Result(self._data(outcome, matches, "", wish), message=" ".join(told))

    def _failed(self, failure: str, rolled_back: bool, then: str) -> context.Result:
        words = failure.partition(" said: ")[2]
        outcome = outcomes.ConfigOutcome.ROLLED_BACK if rolled_back else outcomes.ConfigOutcome.FAILED
        return context.Result(self._data(outcome, False, words or failure), failed=True, message=f"{failure}. {then}")

    def _data(
        self, outcome: outcomes.ConfigOutcome, matches: bool | None, reason: str, wish: rollout.Wish | None = None
    ) -> dict[str, t.Any]:
        proof = self.proof
        return {
            "outcome": outcome.value,
            "findings": [fault.to_dict() for fault in self.options.faults],
            "restarted": self.restarted,
            "running_config_matches": matches,
            "proof": proof.kind if proof and matches else "",
            "proof_note": proof.why if proof else "",
            "rolled_back": outcome is outcomes.ConfigOutcome.ROLLED_BACK,
            "reason": reason,
            "digest": wish.digest if wish else "",
        }


def plainly(
    ctx: context.Context, options: DeschedulerOptions, outcome: outcomes.ConfigOutcome, message: str
) -> context.Result:
    """The result of a call after which nothing had to be proven."""
    del ctx
    data = {"outcome": outcome.value, "findings": [fault.to_dict() for fault in options.faults], **NOTHING}
    return context.Result(data, message=message)
