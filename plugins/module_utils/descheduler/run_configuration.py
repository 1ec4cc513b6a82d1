# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``descheduler_config``: write a descheduler's configuration, restart it,
verify that it runs, or roll back.

The order of writes: the lock, our journal (the previous state), the ConfigMap, the Deployment, each
conditional on what was read. After a call that was killed at any point, the same call continues.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_context,
    run_listing,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    check,
    installation,
    rollback_record,
    rollout,
    run_proofs,
    run_running_jobs,
    run_targets,
    running,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    installations,
    left_out,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)

OWNED_PODS = ("pods", "deployments", "replica_sets", "stateful_sets")
"""What tells which pods a configuration leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerOptions:
    """Options of the module. ``desired`` is ``None`` if no configuration was given (``restarted``).

    ``schema`` and ``faults`` are of the ``version`` that was given, else of the default one until
    the image is known; ``image_version`` is empty until then, or if the image does not say.
    ``faults_with`` gives the faults in another schema, ``write`` the YAML of a configuration.
    """

    state: t.Literal["present", "validated", "previewed", "restarted", "paused", "resumed"]
    flavor: schemas.Flavor
    schema: schemas.Schema
    place: installation.Location
    parse: run_proofs.Parse
    desired: rollout.DesiredConfig | None
    faults: tuple[schemas.Fault, ...]
    version: str
    write: t.Callable[[t.Any], str]
    faults_with: t.Callable[[schemas.Schema], tuple[schemas.Fault, ...]]
    image_version: str = ""
    restart: t.Literal["rollout", "scale", "none"]
    verify: bool
    rollback: bool
    force_conflicts: bool
    running_jobs: t.Literal["wait", "refuse", "ignore"]
    timeout: float

    def result(
        self, outcome: outcomes.ConfigOutcome, message: str, *, failed: bool = False, **more: t.Any
    ) -> run_context.Result:
        """A result; without ``more``, of a call that restarted and verified nothing."""
        data = {
            "outcome": outcome.value,
            "findings": [fault.to_dict() for fault in self.faults],
            "version": self.schema.version,
            "image_version": self.image_version,
            "restarted": False,
            "running_config_matches": None,
            "drifted": [],
            "proof": "",
            "rolled_back": False,
            "reason": "",
            **more,
        }
        return run_context.Result(data, failed, message)

    def suited(self, found: check.Found) -> DeschedulerOptions:
        """The same with the rules of the descheduler's version, and its faults."""
        schema, faults = self.schema, self.faults
        if found.applied != schema.version:
            schema = check.schema_of(self.flavor, found.applied)
            faults = self.faults_with(schema)
        return replace(
            self, schema=schema, faults=(*found.faults, *faults), image_version=found.image
        )

    @property
    def always_invalid(self) -> bool:
        """Whether the configuration is invalid whatever the descheduler's version is."""
        known = [check.schema_of(self.flavor, version) for version in check.VERSIONS[self.flavor]]
        if not check.errors(self.faults):
            return False
        others = [schema for schema in known if schema.version != self.schema.version]
        return bool(self.version) or all(
            check.errors(self.faults_with(schema)) for schema in others
        )

    @property
    def invalid(self) -> run_context.Result | None:
        """The result of a configuration with errors; ``None`` if there are none."""
        wrong = " ".join(
            f"{fault.path or 'config'}: {fault.sentence}" for fault in check.errors(self.faults)
        )
        message = f"The configuration is invalid. {wrong}"
        return self.result(outcomes.ConfigOutcome.INVALID, message, failed=True) if wrong else None

    @property
    def unwritten(self) -> run_context.Result:
        """The same of a call that writes."""
        found = t.cast("run_context.Result", self.invalid)
        return replace(found, message=f"{found.message} Nothing was written.")


def descheduler(ctx: run_context.Context, options: DeschedulerOptions) -> run_context.Result:
    """Bring the descheduler to the desired state.

    Raises:
        CallAborted: the descheduler does not exist or does not read the ConfigMap, its jobs do not
            end, another call holds its lock (nothing was written in each case),
            or someone else writes at the same time.
    """
    if options.always_invalid:
        return options.unwritten

    def work(target: run_targets.DeschedulerTarget) -> run_context.Result | None:
        fitted = fit(options, target)
        if isinstance(fitted, run_context.Result):
            return fitted
        require_mount(target)
        return Rollout(ctx, warned(ctx, fitted), target).run()

    return run_targets.one_at_a_time(ctx, options.flavor, options.place, work)


def fit(
    options: DeschedulerOptions, target: run_targets.DeschedulerTarget
) -> DeschedulerOptions | run_context.Result:
    """The options with the rules of the descheduler's version, or the result if those forbid it."""
    fitted = options.suited(run_targets.look(target, options.version))
    return fitted.unwritten if fitted.invalid else fitted


def warned(ctx: run_context.Context, options: DeschedulerOptions) -> DeschedulerOptions:
    """The options with what the configuration means for the pods, where those may be read."""
    if options.desired is None or options.flavor == "sigs":
        return options
    try:
        seen = snapshots.Snapshot.of(run_listing.lists(ctx.cluster, OWNED_PODS))
        others = ctx.cluster.items(kinds.DEPLOYMENTS).items
    except errors.Forbidden:
        return options
    found = (
        *left_out.left_out(seen, options.desired.config),
        *installations.beside(others, options.place),
    )
    return replace(options, faults=(*options.faults, *found))


def taking(
    options: DeschedulerOptions,
    target: run_targets.DeschedulerTarget,
    found: objects.Raw | None,
    where: str,
    *path: str,
) -> DeschedulerOptions:
    """The options with a warning if this call takes the field over from those who apply it,
    which it tells before.

    Raises:
        CallAborted: it may not take it; nothing was written.
    """
    managers = installation.appliers(found, *path)
    said = f"{', '.join(managers)} applies {'.'.join(path)} of {where}"
    if managers and not options.force_conflicts:
        message = f"{said}, and this call may not take it over. Nothing was written."
        remedy = "Change it there instead, or take it over by force_conflicts: true."
        raise run_context.CallAborted("field_conflict", message, remedy, where)
    if not managers or not target.may_write:
        return options
    remedy = (
        "Change it there instead, or let it ignore that field: its next apply conflicts, "
        "or brings its own back."
    )
    fault = schemas.warning("managed_by", f"{said}, and this call takes it over.", remedy)
    target.tell(phases.What.NOTE, fault.message)
    return replace(options, faults=(*options.faults, fault))


def taking_all(
    options: DeschedulerOptions,
    target: run_targets.DeschedulerTarget,
    *,
    writes: bool,
    scales: bool,
) -> DeschedulerOptions:
    """The same for all that a rollout writes and others may apply."""
    place = target.place
    if writes:
        options = taking(options, target, target.config_map, place.map_name, "data", place.key)
    if scales:
        options = taking(options, target, target.workload, str(target.ref), "spec", "replicas")
    return options


def require_mount(target: run_targets.DeschedulerTarget) -> None:
    """Make sure that the descheduler's pods mount the ConfigMap, else raise CallAborted."""
    if unread := installation.unread(target.workload, target.place):
        remedy = "Set config_map and key to the ones that it reads."
        raise run_context.CallAborted("not_mounted", unread, remedy, str(target.ref))


def dry_run(
    desired: rollout.DesiredConfig,
    parse: run_proofs.Parse,
    place: installation.Location,
    value: bool = True,
) -> rollout.DesiredConfig:
    """The configuration with that ``dryRun``.

    Raises:
        CallAborted: it cannot be set in the text.
    """
    if (desired.config.get("dryRun") is True) == value:
        return desired
    config = {**desired.config, "dryRun": value}
    changed = rollout.DesiredConfig(
        config, rollout.with_dry_run(desired.text, value), desired.as_text
    )
    if parse(changed.text) != config:
        message = f"dryRun cannot be set in the text of {place.map_name}."
        raise run_context.CallAborted(
            "no_config", message, "Write it as plain YAML, one key per line.", place.map_name
        )
    return changed


@dataclass
class Rollout:
    """One call. A pause stays in place, unless the ``intent`` is to resume;
    ``note`` is added to its message.

    ``wanted`` is the configuration without the pause, ``desired`` the one to roll out.

    Raises:
        CallAborted: no configuration is given, and the ConfigMap holds none.
    """

    ctx: run_context.Context
    options: DeschedulerOptions
    target: run_targets.DeschedulerTarget
    intent: t.Literal["configure", "pause", "resume"] = "configure"
    note: str = ""
    restarted: bool = False
    drifted: tuple[rollout.Drifted, ...] = ()
    wanted: rollout.DesiredConfig = field(init=False)
    desired: rollout.DesiredConfig = field(init=False)
    verification: run_proofs.Verification = field(init=False)

    def __post_init__(self) -> None:
        options, target = self.options, self.target
        self.wanted = self.desired = options.desired or _present(target, options.parse)
        paused = target.journal is not None and target.journal.paused == "dry_run"
        if self.intent == "pause" or (paused and self.intent == "configure"):
            self.desired = dry_run(self.wanted, options.parse, options.place)
        self.verification = run_proofs.Verification(
            target, options.schema, self.desired.config, options.parse
        )

    def _parsed(self, text: str | None) -> t.Any:
        return None if text is None else self.options.parse(text)

    def run(self) -> run_context.Result | None:
        """Roll it out; ``None`` if that takes the lock, which is not held."""
        target, verification = self.target, self.verification
        present = target.text
        fresh = rollback_record.unsettled(target.journal) is not None
        means = self._parsed(present)
        text = self.desired.instead_of(present, means)
        changes = text is not None and (
            present is None or rollout.digest(means) != self.desired.digest
        )
        why = "" if target.is_cron else self._restart_reason(means, changes=changes)
        idle = not target.is_cron and not target.replicas and not target.scaled_down
        if text is not None or why or self._left() != target.journal:
            noted = rollout.noted(target.config_map)
            pending = ""
            if not (why or target.is_cron):
                pending = rollout.pending(
                    rollout.mark_of(target.workload), self.desired, noted, changes=changes
                )
            scales = bool(why) and not idle and self.options.restart == "scale"
            self.options = taking_all(self.options, target, writes=text is not None, scales=scales)
            if not target.locked:
                run_targets.permit(
                    target, writes=text is not None or pending != noted, restarts=bool(why)
                )
            if not target.may_write:
                return None
            self._write(text, why, pending, idle=idle)
        note = self._unverified(idle=idle)
        if note is not None:
            return self._done(note)
        proof = verification.proof
        proven = proof is not None and proof.conflicts == () and not self.restarted
        fresh = fresh or self.restarted
        failure, reason = (
            ("", "") if proven else verification.failure(self.options.timeout, fresh=fresh)
        )
        if not failure:
            return self._done()
        if not fresh and text is None:
            return self._failed(
                f"{failure}. This call did not change anything at {target.ref}.", reason
            )
        return self._roll_back(failure, reason)

    def _restart_reason(self, means: t.Any, *, changes: bool) -> str:
        """Why the Deployment's pods must restart, or the empty string;
        ``means`` is what the ConfigMap holds.
        """
        options, asked = self.options, self.options.state == "restarted"
        mark = rollout.mark_of(self.target.workload)
        restarts = options.restart != "none"
        rolled_out, known = mark == self.desired.digest, None
        if (
            pending := not (changes or rolled_out)
            and rollout.noted(self.target.config_map) == self.desired.digest
        ):
            # The digest on the template is older than what we wrote ourselves.
            mark = None
        if restarts and not asked and (rolled_out or (mark is None and not changes)):
            known = self._running_conflicts(means, changes=changes, strict=mark is None or changes)
        if rollback_record.unsettled(self.target.journal) is None and not pending:
            self.drifted = rollout.drifted(mark, self.desired, changes=changes, conflicts=known)
        if not restarts and not asked:
            return ""
        if self.target.scaled_down:
            return "an earlier restart was not finished"
        return rollout.restart_reason(
            mark, self.desired, changes=changes, conflicts=known, asked=asked
        )

    def _running_conflicts(
        self, means: t.Any, *, changes: bool, strict: bool
    ) -> tuple[str, ...] | None:
        """How the configuration that the pods run differs from the desired one;
        ``None`` if they cannot tell.

        ``strict``: settings that are not desired count, too.
        """
        if changes and not running.comparable(self.desired.config, means):
            return None
        # Pods that have just started are not asked until they are available.
        unsettled = rollback_record.unsettled(self.target.journal)
        progress = self.verification.settled(0.0 if unsettled else run_proofs.STEADY_SECONDS)
        found = None if progress.waiting else self.verification.prove(progress.pods).comparison
        if found is None:
            return None
        return found.conflicts or (found.extras if strict else ())

    def _write(self, text: str | None, why: str, pending: str, *, idle: bool) -> None:
        """Write the journal, ``text`` if it is given, and restart the pods if there is a reason."""
        target = self.target
        options = self.options
        present = self.target.text
        if why and not idle:
            run_running_jobs.wait(target, options.running_jobs, options.timeout)
        if text is not None or why:
            run_targets.keep(target, self._journal())
        if text is not None:
            name = target.place.map_name
            sentence = (
                f"{'Write' if present is None else 'Change'} the configuration in {name}, key "
                f"{target.place.key}"
            )
            target.write(text, present, sentence, pending=pending)
            target.tell(
                phases.What.WRITTEN, f"{name} {'written' if present is None else 'changed'}"
            )
        elif pending != rollout.noted(target.config_map):
            target.write(
                present, present, f"Note that no restart is pending in {target.place.map_name}"
            )
        if why:
            scale = options.restart == "scale"
            run_proofs.restart(
                target, self.desired.digest, why, scale=scale, idle=idle, timeout=options.timeout
            )
            self.restarted = not idle
            self.verification.proof = None

    def _journal(self) -> rollback_record.Journal:
        """The state to restore: the present one, or the one before an unfinished call."""
        target, kept = self.target, self.target.journal
        ours = (kept.config, *kept.ours) if kept else ()
        foreign = (
            target.text not in ours[:1]
            and rollout.digest(self._parsed(target.text)) not in ours[1:]
        )
        prior = target.snapshot(self.desired.digest).after(kept, foreign=foreign)
        if self.intent == "pause" and self.desired is not self.wanted:
            prior = replace(prior, paused="dry_run")
        scales = self.options.restart == "scale" and prior.replicas is None and not target.is_cron
        return replace(prior, replicas=target.replicas) if scales else prior

    def _left(self) -> rollback_record.Journal | None:
        """What stays stored after this rollout: a pause, and the configuration to resume with."""
        kept, given = self.target.journal, self.options.desired
        if kept is None or self.intent == "resume":
            return None
        resumes = kept.without_pause if kept.paused == "dry_run" else None
        if kept.paused == "dry_run" and (
            self.desired is not self.wanted if self.intent == "pause" else given
        ):
            resumes = self.wanted.instead_of(resumes, self._parsed(resumes)) or resumes
        return kept.ended(resumes)

    def _unverified(self, *, idle: bool) -> str | None:
        """Why nothing is verified, if that needs words; ``None`` if it must be verified."""
        if self.target.is_cron:
            return "The next run of the CronJob reads it; no restart is needed."
        if idle:
            return (
                f"{self.target.ref} has no pods (replicas: 0); "
                "it will start with this configuration."
            )
        if self.options.restart == "none" and not self.restarted:
            if self.ctx.changes:
                return (
                    "Nothing was restarted (restart: none); it takes effect when the pods restart."
                )
            noted = rollout.noted(self.target.config_map) == self.desired.digest
            if noted and rollout.mark_of(self.target.workload) != self.desired.digest:
                return "A restart is pending, unless the pods restarted since."
            return ""
        return None if self.options.verify and not self.ctx.check else ""

    def _roll_back(self, failure: str, reason: str) -> run_context.Result:
        journal = self.target.journal
        if not self.options.rollback or journal is None:
            return self._failed(f"{failure}. It was not rolled back (rollback: false).", reason)
        ours = (self.desired.digest, *journal.ours)
        try:
            restored = run_proofs.roll_back(self.verification, journal, ours)
        except (errors.ClusterError, run_context.CallAborted) as error:
            return self._failed(f"{failure}. The rollback was not finished: {error}", reason)
        return self._failed(f"{failure}. {restored}", reason, rolled_back=True)

    def _done(self, note: str = "") -> run_context.Result:
        """The result of a successful call, of whose journal only a pause is left."""
        target, proof = self.target, self.verification.proof
        run_targets.leave(target, self._left())
        if self.ctx.changes:
            outcome, verb = outcomes.ConfigOutcome.CHANGED, "given"
            if self.restarted:
                outcome, verb = outcomes.ConfigOutcome.RESTARTED, "restarted with"
            message = (
                f"{target.ref} {'would be' if self.ctx.check else 'was'} {verb} the configuration."
            )
        else:
            outcome = outcomes.ConfigOutcome.UNCHANGED
            is_so = "already has this configuration"
            if self.intent == "pause":
                is_so = "is paused already (dryRun: true)"
            message = f"{target.ref} {is_so}."
        stays = target.journal is not None and self.intent == "configure"
        paused = "Its evictions stay paused; resume them with state: resumed." if stays else ""
        matches = not proof.conflicts if proof and proof.comparison and not self.ctx.check else None
        message = " ".join(filter(None, (message, note, self.note, paused)))
        return self._result(outcome, message, matches)

    def _failed(
        self, message: str, reason: str, *, rolled_back: bool = False
    ) -> run_context.Result:
        outcome = (
            outcomes.ConfigOutcome.ROLLED_BACK if rolled_back else outcomes.ConfigOutcome.FAILED
        )
        return self._result(outcome, message, False, reason)

    def _result(
        self, outcome: outcomes.ConfigOutcome, message: str, matches: bool | None, reason: str = ""
    ) -> run_context.Result:
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


def _present(
    target: run_targets.DeschedulerTarget, parse: run_proofs.Parse
) -> rollout.DesiredConfig:
    present, place = target.text, target.place
    config = None if present is None else parse(present)
    if present is None or not isinstance(config, dict):
        message = f"{place.map_name} holds no configuration under {place.key}."
        raise run_context.CallAborted("no_config", message, "Set config.", str(target.ref))
    return rollout.DesiredConfig(config, present, as_text=True)
