# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``descheduler_config``: write a descheduler's configuration, restart it, verify that it runs, or roll back.

The order of writes: our journal (the previous state), the ConfigMap, the Deployment, each conditional on what was
read. After a call that was killed at any point, the same call continues.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    check,
    journaling,
    places,
    rollout,
    rules,
    running,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes, phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import (
    permits,
    proofs,
    restarting,
    running_jobs,
    targets,
)

ROLLED_BACK_WITHIN = 40.0
"""Seconds to wait for the restored configuration to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerOptions:
    """Options of the module. ``desired`` is ``None`` if no configuration was given (``restarted``)."""

    state: t.Literal["present", "validated", "restarted", "paused", "resumed"]
    flavor: check.Flavor
    schema: schemas.Schema
    place: places.Place
    parse: proofs.Parse
    desired: rollout.DesiredConfig | None = None
    faults: tuple[rules.Fault, ...] = ()
    restart: t.Literal["rollout", "scale", "none"] = "rollout"
    verify: bool = True
    rollback: bool = True
    running_jobs: t.Literal["wait", "refuse", "ignore"] = "wait"
    timeout: float = 300.0

    def result(
        self, outcome: outcomes.ConfigOutcome, message: str, *, failed: bool = False, **more: t.Any
    ) -> context.Result:
        """A result; without ``more``, of a call that restarted and verified nothing."""
        data = {
            "outcome": outcome.value,
            "findings": [fault.to_dict() for fault in self.faults],
            "restarted": False,
            "running_config_matches": None,
            "drifted": [],
            "proof": "",
            "rolled_back": False,
            "reason": "",
            **more,
        }
        return context.Result(data, failed, message)

    @property
    def invalid(self) -> context.Result | None:
        """The result of a configuration with errors; ``None`` if there are none."""
        wrong = " ".join(f"{fault.path or 'config'}: {fault.sentence}" for fault in check.errors(self.faults))
        message = f"The configuration is invalid. {wrong}"
        return self.result(outcomes.ConfigOutcome.INVALID, message, failed=True) if wrong else None


def descheduler(ctx: context.Context, options: DeschedulerOptions) -> context.Result:
    """Bring the descheduler to the desired state.

    Raises:
        StopRun: the descheduler does not exist or does not read the ConfigMap, its jobs do not end (nothing was
            written), or someone else writes at the same time.
    """
    if found := options.invalid:
        return replace(found, message=f"{found.message} Nothing was written.")
    target = targets.DeschedulerTarget.read(ctx, options.flavor, options.place)
    if unread := places.unread(target.workload, options.place):
        remedy = "Set config_map and key to the ones that it reads."
        raise context.StopRun("not_mounted", unread, remedy, str(target.ref))
    return Rollout(ctx, options, target).run()


@dataclass
class Rollout:
    """One call; ``pausing`` keeps the journal, so that the previous configuration can be restored later.

    Raises:
        StopRun: no configuration is given, and the ConfigMap holds none.
    """

    ctx: context.Context
    options: DeschedulerOptions
    target: targets.DeschedulerTarget
    pausing: bool = False
    restarted: bool = False
    drifted: tuple[rollout.Drifted, ...] = ()
    desired: rollout.DesiredConfig = field(init=False)
    verification: proofs.Verification = field(init=False)

    def __post_init__(self) -> None:
        options, target = self.options, self.target
        self.desired = options.desired or self._present_config()
        self.verification = proofs.Verification(target, options.schema, self.desired.config, options.parse)

    def _present_config(self) -> rollout.DesiredConfig:
        present, place = self.target.text, self.options.place
        config = self._parsed(present)
        if present is None or not isinstance(config, dict):
            message = f"{place.map_name} holds no configuration under {place.key}."
            raise context.StopRun("no_config", message, "Set config.", str(self.target.ref))
        return rollout.DesiredConfig(config, present, as_text=True)

    def _parsed(self, text: str | None) -> t.Any:
        return None if text is None else self.options.parse(text)

    def run(self) -> context.Result:
        target, verification = self.target, self.verification
        present, before = target.text, target.journal
        means = self._parsed(present)
        text = self.desired.instead_of(present, means)
        changes = text is not None and (present is None or rollout.digest(means) != self.desired.digest)
        why = "" if target.is_cron else self._restart_reason(means, changes=changes)
        idle = not target.is_cron and not target.replicas and not self._unfinished
        self._write(text, why, idle=idle)
        note = self._unverified(idle=idle)
        if note is not None:
            return self._done(note)
        fresh = self.restarted or before is not None
        proven = verification.proof is not None and verification.proof.conflicts == () and not self.restarted
        failure, reason = ("", "") if proven else verification.failure(self.options.timeout, fresh=fresh)
        if not failure:
            return self._done()
        if not fresh and text is None:
            return self._failed(f"{failure}. This call did not change anything at {target.ref}.", reason)
        return self._roll_back(failure, reason)

    @property
    def _unfinished(self) -> bool:
        """Whether an earlier call was killed between scaling down and up."""
        target = self.target
        return target.journal is not None and target.journal.replicas is not None and not target.replicas

    def _restart_reason(self, means: t.Any, *, changes: bool) -> str:
        """Why the Deployment's pods must restart, or the empty string; ``means`` is what the ConfigMap holds."""
        options, asked = self.options, self.options.state == "restarted"
        mark, restarts = rollout.marks_of(self.target.workload)[rollout.DIGEST], options.restart != "none"
        rolled_out, known = mark == self.desired.digest, None
        if restarts and not asked and (rolled_out or (mark is None and not changes)):
            known = self._running_conflicts(means, changes=changes, strict=mark is None or changes)
        if self.target.journal is None or self.target.journal.paused:
            self.drifted = rollout.drifted(mark, self.desired, changes=changes, conflicts=known)
        if not restarts and not asked:
            return ""
        if self._unfinished:
            return "an earlier restart was not finished"
        return rollout.restart_reason(mark, self.desired, changes=changes, conflicts=known, asked=asked)

    def _running_conflicts(self, means: t.Any, *, changes: bool, strict: bool) -> tuple[str, ...] | None:
        """How the configuration that the pods run differs from the desired one; ``None`` if they cannot tell.

        ``strict``: settings that are not desired count, too.
        """
        if changes and not running.comparable(self.desired.config, means):
            return None
        # Pods that have just started are not asked until they are available.
        progress = self.verification.settled(within=0.0 if self.target.journal else proofs.STEADY)
        found = None if progress.waiting else self.verification.prove(progress.pods).comparison
        if found is None:
            return None
        return found.conflicts or (found.extras if strict else ())

    def _write(self, text: str | None, why: str, *, idle: bool) -> None:
        """Write the journal, the ConfigMap if ``text`` is given, and restart the pods if there is a reason."""
        target, options, present = self.target, self.options, self.target.text
        permits.permit(target, writes=text is not None, restarts=bool(why))
        if why and not idle:
            running_jobs.wait(target, options.running_jobs, options.timeout)
        if text is not None or why:
            target.keep(self._journal())
        if text is not None:
            name = target.place.map_name
            sentence = f"{'Write' if present is None else 'Change'} the configuration in {name}, key {target.place.key}"
            target.write(text, present, sentence, had_map=True, had_data=True)
            target.tell(phases.What.WRITTEN, f"{name} {'written' if present is None else 'changed'}")
        if why:
            scale = options.restart == "scale"
            restarting.restart(target, self.desired.digest, why, scale=scale, idle=idle, timeout=options.timeout)
            self.restarted, self.verification.proof = not idle, None

    def _journal(self) -> journaling.Journal:
        """The state to restore: the present one, or the one before an unfinished call."""
        target, kept, digest = self.target, self.target.journal, self.desired.digest
        prior = target.snapshot(digest)
        if kept is not None:
            foreign = target.text != kept.config and rollout.digest(self._parsed(target.text)) not in kept.ours
            ours = tuple(dict.fromkeys((*kept.ours, digest)))
            prior = replace(prior, replicas=kept.replicas) if foreign else replace(kept, ours=ours)
        if self.pausing:
            prior = replace(prior, paused="dry_run")
        scales = self.options.restart == "scale" and prior.replicas is None and not target.is_cron
        return replace(prior, replicas=target.replicas) if scales else prior

    def _unverified(self, *, idle: bool) -> str | None:
        """Why nothing is verified, if there is anything to say; ``None`` if the configuration must be verified."""
        if self.target.is_cron:
            return "The next run of the CronJob reads it; no restart is needed."
        if idle:
            return f"{self.target.ref} has no pods (replicas: 0); it will start with this configuration."
        if self.options.restart == "none" and not self.restarted:
            note = "Nothing was restarted (restart: none); it takes effect when the pods restart."
            return note if self.ctx.changes else ""
        return None if self.options.verify and not self.ctx.check else ""

    def _roll_back(self, failure: str, reason: str) -> context.Result:
        target, journal = self.target, self.target.journal
        if not self.options.rollback or journal is None:
            return self._failed(f"{failure}. It was not rolled back (rollback: false).", reason)
        kept = ""
        if target.text != journal.config:
            if rollout.digest(self._parsed(target.text)) in (self.desired.digest, *journal.ours):
                sentence, had_map, had_data = f"Restore {target.place.map_name}", journal.had_map, journal.had_data
                target.write(journal.config, target.text, sentence, had_map=had_map, had_data=had_data)
            else:
                kept = " Someone else changed the ConfigMap meanwhile; that was kept."
        restarting.restore(target, journal)
        target.reread()
        waiting = self.verification.settled(within=ROLLED_BACK_WITHIN).waiting
        restored = f"ConfigMap and {target.ref} are restored, {f'but {waiting}' if waiting else 'and the old one runs'}"
        target.tell(outcomes.ConfigOutcome.ROLLED_BACK, f"rolled back: {restored}")
        target.forget()
        return self._failed(f"{failure}. {restored}.{kept}", reason, rolled_back=True)

    def _done(self, note: str = "") -> context.Result:
        """The result of a successful call, whose journal is no longer needed unless it was to pause."""
        target, proof = self.target, self.verification.proof
        if not self.pausing:
            if target.journal and target.journal.suspended is not None:
                target.switch("suspend", False, f"Resume {target.ref}")
            target.forget()
        if self.ctx.changes:
            outcome = outcomes.ConfigOutcome.RESTARTED if self.restarted else outcomes.ConfigOutcome.CHANGED
            verb = "restarted with" if self.restarted else "given"
            message = f"{target.ref} {'would be' if self.ctx.check else 'was'} {verb} the configuration. {note}"
        else:
            outcome = outcomes.ConfigOutcome.UNCHANGED
            message = f"{target.ref} already has this configuration. {note}"
        matches = not proof.conflicts if proof and proof.comparison and not self.ctx.check else None
        return self._result(outcome, message.strip(), matches)

    def _failed(self, message: str, reason: str, *, rolled_back: bool = False) -> context.Result:
        outcome = outcomes.ConfigOutcome.ROLLED_BACK if rolled_back else outcomes.ConfigOutcome.FAILED
        return self._result(outcome, message, False, reason)

    def _result(
        self, outcome: outcomes.ConfigOutcome, message: str, matches: bool | None, reason: str = ""
    ) -> context.Result:
        proof = self.verification.proof
        data = {
            "restarted": self.restarted,
            "running_config_matches": matches,
            "drifted": list(self.drifted),
            "proof": proof.kind if proof and matches is not False and not self.ctx.check else "",
            "proof_note": proof.why if proof else "",
            "rolled_back": outcome is outcomes.ConfigOutcome.ROLLED_BACK,
            "reason": reason,
            "digest": self.desired.digest,
        }
        return self.options.result(outcome, message, failed=bool(reason), **data)
