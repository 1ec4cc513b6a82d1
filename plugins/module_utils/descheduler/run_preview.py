# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``state: previewed``: which pods a configuration would evict now, by a dry run of the
descheduler's own program.

What a dry run creates belongs to nobody but bears our label; whoever previews the same descheduler
next, or recovers, deletes what a killed call left.
"""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_listing,
    run_reconcile,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
    previews,
    profiles,
    rollout,
    run_configuration,
    run_preview_leftovers,
    run_running_jobs,
    run_targets,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import left_out
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)

POLL_SECONDS = 0.5
QUIET_SECONDS = 5.0
"""Seconds without a line after which koord-descheduler's only cycle counts as over."""
MAX_RESTARTS = 6
"""How often another process is tried where one logs no evictions; a build may log no flags."""
FORGOTTEN_POD_SECONDS = 60
"""Seconds after the call's own limit at which the kubelet ends a pod that was forgotten."""


def preview(
    ctx: run_context.Context, options: run_configuration.DeschedulerOptions
) -> run_context.Result:
    """Run the new and the present configuration dry, side by side,
    and compare what they would evict.

    Raises:
        CallAborted: the descheduler does not exist, or its pods cannot be imitated.
        ClusterError: a dry run's objects may not be created.
    """
    if options.always_invalid:
        return options.unwritten
    target = run_targets.DeschedulerTarget.read(ctx, options.flavor, options.place)
    fitted = run_configuration.fit(options, target)
    if isinstance(fitted, run_context.Result):
        return fitted
    run_configuration.require_mount(target)
    return _previewed(ctx, run_configuration.warned(ctx, fitted), target)


def _previewed(
    ctx: run_context.Context,
    options: run_configuration.DeschedulerOptions,
    target: run_targets.DeschedulerTarget,
) -> run_context.Result:
    desired = t.cast("rollout.DesiredConfig", options.desired)
    present = None if target.text is None else options.parse(target.text)
    if ctx.check:
        message = (
            f"Dry runs of the new and the present configuration of {target.ref} would be "
            "started and deleted."
        )
        unknown: dict[str, t.Any] = {
            "would_evict": None,
            "would_evict_before": None,
            "would_stay": None,
        }
        return options.result(outcomes.ConfigOutcome.PREVIEWED, message, **unknown)
    _require_account(target)
    run_preview_leftovers.sweep(ctx, target.ref.uid, target.place.namespace)
    dry = DryRuns(ctx, options, target)
    try:
        new = dry.start("new", desired.config, desired.text)
        old = new
        if isinstance(present, dict) and rollout.digest(present) != desired.digest:
            old = dry.start("present", present, t.cast("str", target.text))
        dry.wait(options.timeout)
    finally:
        run_preview_leftovers.sweep(ctx, target.ref.uid, target.place.namespace)
    return _result(
        options, target, new, old if isinstance(present, dict) else None, _staying(ctx, options)
    )


def _staying(
    ctx: run_context.Context, options: run_configuration.DeschedulerOptions
) -> list[dict[str, str]] | None:
    """The pods that the new configuration leaves where they are; ``None`` if unknown."""
    desired = t.cast("rollout.DesiredConfig", options.desired)
    if options.flavor == "sigs":
        return None
    try:
        seen = snapshots.Snapshot.of(run_listing.lists(ctx.cluster, run_configuration.OWNED_PODS))
        jobs = run_running_jobs.listed(ctx)
    except errors.Forbidden:
        return None
    return [stay.to_dict() for stay in left_out.staying(seen, desired.config, jobs)]


def _result(
    options: run_configuration.DeschedulerOptions,
    target: run_targets.DeschedulerTarget,
    new: DryRun,
    old: DryRun | None,
    stay: list[dict[str, str]] | None,
) -> run_context.Result:
    now = new.reading.evictions
    before = old.reading.evictions if old and not old.failure else None
    added = set(previews.added(now, before or ()))
    data: dict[str, t.Any] = {
        "would_evict": [{**asdict(each), "added": each in added} for each in now],
        "would_evict_before": None if before is None else [asdict(each) for each in before],
        "would_stay": stay,
    }
    if new.failure:
        message = (
            f"The new configuration of {target.ref} does not run: {new.failure}. "
            "Nothing was changed."
        )
        return options.result(
            outcomes.ConfigOutcome.FAILED, message, failed=True, reason=new.failure, **data
        )
    compared = "what the present one would evict is unknown"
    if before is not None:
        compared = f"{len(added)} of them new; the present one {len(before)}"
    message = f"The new configuration of {target.ref} would evict {len(now)} pods now, {compared}."
    failed = f" The present one does not run: {old.failure}." if old and old.failure else ""
    return options.result(outcomes.ConfigOutcome.PREVIEWED, f"{message}{failed}", **data)


@dataclass
class DryRun:
    """One configuration and its pod, empty if none is needed;
    times are of the context's monotonic clock.

    ``says_start``: its process says when its caches are filled, which MigrationController does.
    """

    text: str
    which: str
    says_start: bool
    again: int = 0
    pod: str = ""
    reading: previews.Reading = field(default_factory=lambda: previews.read(""))
    failure: str = ""
    over: bool = False
    waiting: str = "its pod has not started"
    since: float = 0.0


@dataclass
class DryRuns:
    """The dry runs of one call."""

    ctx: run_context.Context
    options: run_configuration.DeschedulerOptions
    target: run_targets.DeschedulerTarget
    runs: list[DryRun] = field(default_factory=list)

    def start(self, which: str, config: t.Mapping[str, t.Any], text: str) -> DryRun:
        """Start one, unless the configuration itself says that nothing is evicted."""
        flavor = self.options.flavor
        written = (
            text if flavor == "sigs" else self.options.write(previews.sandboxed(config, flavor))
        )
        parsed = profiles.profiles_of(config, self.options.schema) if flavor != "sigs" else ()
        says_start = any("MigrationController" in profile.plugins for profile in parsed)
        run = DryRun(written, which, says_start)
        self.runs.append(run)
        run.over = flavor != "sigs" and config.get("dryRun") is True
        if not run.over:
            self._launch(run)
        return run

    def _launch(self, run: DryRun) -> None:
        flavor, place = self.options.flavor, self.options.place
        name = f"{previews.PREFIX}{self.ctx.clock.token()}"
        lasts = int(self.options.timeout) + FORGOTTEN_POD_SECONDS
        # The pod, which waits for its ConfigMap, comes first and goes last:
        # it is by the pod that both are found.
        for body in previews.manifests(name, run.text, self.target.workload, place, flavor, lasts):
            self._create(body)
        run.pod = name
        said = f"a dry run of the {run.which} configuration was started in pod {run.pod}"
        self.target.tell(phases.What.PREVIEW, said)

    def _create(self, body: objects.Raw) -> None:
        meta = body["metadata"]
        ref = objects.Ref(
            body["kind"], meta["name"], meta["namespace"], api_version=body["apiVersion"]
        )
        change = api_changes.Change("create", ref, f"Create {ref}", body)
        run_reconcile.reconcile(
            self.ctx, ref, lambda found: None if found else change, known=None, remember=False
        )

    def wait(self, timeout: float) -> None:
        """Wait until each dry run is over, or ``timeout`` seconds."""
        left = [run for run in self.runs if not run.over]
        for late in self.ctx.poll(POLL_SECONDS, timeout):
            for run in left:
                self._look(run)
            left = [run for run in left if not run.over]
            if not left:
                return
            if late:
                for run in left:
                    run.failure = f"its dry run did not end within {timeout:.0f} s ({run.waiting})"

    def _look(self, run: DryRun) -> None:
        namespace, clock = self.options.place.namespace, self.ctx.clock
        pod = run_reconcile.read(self.ctx, objects.Ref("Pod", run.pod, namespace, api_version="v1"))
        if pod is None:
            run.over = True
            run.failure = "its pod was deleted by somebody else, maybe by another preview"
            return
        status = pod.get("status") or {}
        ended = status.get("phase") in ("Failed", "Succeeded")
        if not ended and status.get("phase") != "Running":
            run.waiting = _not_started(pod) or run.waiting
            return
        try:
            reading = previews.read(self._log(run))
        except errors.ClusterError as error:
            run.waiting = f"its log cannot be read: {error}"
            return
        if reading.mute and run.again < MAX_RESTARTS:
            run_preview_leftovers.remove(self.ctx, pod["metadata"], remember=False)
            run.again += 1
            run.since = 0.0
            run.waiting = "its process logs no evictions, another is tried"
            self._launch(run)
            return
        now = clock.now()
        if reading.lines != run.reading.lines or not run.since:
            run.since = now
        run.reading = reading
        run.waiting = "its cycle is not over"
        started = reading.started or not run.says_start
        silent = self.options.flavor != "sigs" and started and now - run.since >= QUIET_SECONDS
        run.over = ended or reading.over or silent
        if ended and status["phase"] == "Failed" and not reading.over:
            said = rollout.last_words(self._log(run))
            run.failure = said or status.get("message") or "its pod failed"
        elif reading.failure:
            run.failure = reading.failure

    def _log(self, run: DryRun) -> str:
        container = installation.container_of(self.target.workload)["name"]
        return self.ctx.cluster.text(
            verbs.pod_log(self.options.place.namespace, run.pod, container)
        )


def _not_started(pod: objects.Raw) -> str:
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        waits = (each.get("state") or {}).get("waiting") or {}
        if waits:
            return f"{waits.get('reason', '')}: {waits.get('message', '')}".strip(": ")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""


def _require_account(target: run_targets.DeschedulerTarget) -> None:
    namespace, account = target.place.namespace, previews.ACCOUNT
    if (
        run_reconcile.read(
            target.ctx, objects.Ref("ServiceAccount", account, namespace, api_version="v1")
        )
        is None
    ):
        message = (
            f"There is no ServiceAccount {namespace}/{account}, "
            "which dry runs use because it may only read."
        )
        remedy = (
            "Create it and bind the ClusterRole of that name in playbooks/files/rights.yml to it: "
            f"kubectl -n {namespace} create serviceaccount {account}; kubectl create "
            f"clusterrolebinding {account} --clusterrole {account} --serviceaccount "
            f"{namespace}:{account}."
        )
        raise run_context.CallAborted(
            "no_dry_run_account", message, remedy, f"ServiceAccount {namespace}/{account}"
        )
