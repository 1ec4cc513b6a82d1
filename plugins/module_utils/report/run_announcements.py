# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_event``: tells others of a run by a webhook and by Events, in this order.

Nothing of it stops a maintenance: what could not be told is a warning. The Events come last, so
whoever finds all of them knows that the webhook was called.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
    hook_definitions,
    run_hook_calls,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    announcement,
    build,
    model,
    read,
)

PATIENCE_SECONDS = 10.0
"""Seconds for which a request about Events is repeated while the API server is away."""
EVENTS_SECONDS = 30.0
"""Seconds after which no further Event is begun."""
KINDS = {kind.kind: kind for kind in kinds.KINDS.values()}
STATUS = (200, 201, 202, 204)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where to send the announcement, in which shape, and for how many seconds to try."""

    http: hook_definitions.Http
    format: announcement.Format = "json"
    deadline: float = 30.0


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Options of the module; ``start`` and ``end`` in seconds since the epoch.

    ``duration``: the seconds that the work takes by its forecast, if the results do not say it.
    """

    moment: announcement.Moment
    send: run_hook_calls.Send
    results: tuple[t.Any, ...] = ()
    reason: str = ""
    resumed: bool = False
    errors: tuple[str, ...] = ()
    start: float | None = None
    end: float | None = None
    duration: float | None = None
    events: bool = False
    webhook: Webhook | None = None
    blocked: tuple[reasons.Blocked, ...] = ()


def alarm(
    options: EventOptions,
    ctx: run_context.Context,
    about: objects.Raw,
    blocked: tuple[reasons.Blocked, ...],
) -> list[str]:
    """Why drains do not move on; ``about``: a result with these nodes. Returns what went wrong."""
    news = replace(options, results=(about,), reason=str(about["reason"] or ""), blocked=blocked)
    return list(announce(ctx, news).data["warnings"])


def announce(ctx: run_context.Context, options: EventOptions) -> run_context.Result:
    """The webhook is not called if Events show that this moment was announced before."""
    news = _announcement(ctx, options)
    about = _about(news) if options.events else []
    before = bool(about) and _all_exist(ctx, news, about)
    wrong = [] if before else _webhook(ctx, options, news)
    events = _events(ctx, news, about)
    failed = [event["message"] for event in events if event["failed"]]
    if failed:
        what = f"{len(failed)} of {len(events)} Events could not be created"
        wrong.append(f"{what}. The first: {failed[0]}")
    return run_context.Result({"announcement": news.body(), "events": events, "warnings": wrong})


def _announcement(ctx: run_context.Context, options: EventOptions) -> announcement.Announcement:
    report = build.build_report(options.results, check=ctx.check)
    return announcement.Announcement(
        moment=options.moment,
        at=ctx.clock.epoch(),
        by=ctx.by,
        report=report,
        run=ctx.run.id if ctx.run else report.run,
        resumed=options.resumed,
        reason=read.text(options.reason) or report.reason,
        errors=tuple(map(read.text, options.errors)),
        start=options.start,
        end=options.end,
        seconds=options.duration,
        blocked=options.blocked,
        cluster=model.Cluster(**ctx.cluster.place),
    )


def _webhook(
    ctx: run_context.Context, options: EventOptions, news: announcement.Announcement
) -> list[str]:
    """Call the webhook; returns why that failed."""
    hook = options.webhook
    if hook is None:
        return []
    body = news.slack() if hook.format == "slack" else news.body()
    place = hook.http.shown()
    if not ctx.check:

        def attempt(_tries: int, timeout: float) -> int:
            return options.send(hook.http, body, timeout)

        why = run_hook_calls.repeated(
            ctx.clock, attempt, hook.http.status, hook.deadline, ctx.clock.event()
        )
        if why:
            what = f"was not told that the maintenance is {news.moment}"
            return [f"The webhook at {place} {what}: {why}."]
    target = objects.Ref("Webhook", place)
    sentence = f"Tell the webhook at {place}: {news.sentence}"
    ctx.changed(api_changes.Change("create", target, sentence, before={}, after=body))
    return []


def _about(news: announcement.Announcement) -> list[objects.Ref]:
    about = [objects.Ref("Node", node.name) for node in news.nodes]
    about += [objects.Ref(each.kind, each.name, each.namespace) for each in news.workloads]
    return [ref for ref in about if ref.kind in KINDS]


def _all_exist(
    ctx: run_context.Context, news: announcement.Announcement, about: t.Iterable[objects.Ref]
) -> bool:
    """Whether all Events exist, as far as this can be found out."""
    try:
        return all(_exists(ctx, announcement.event(news, ref)) for ref in about)
    except errors.ClusterError:
        return False


def _exists(ctx: run_context.Context, change: api_changes.Change) -> bool:
    target = change.target
    try:
        ctx.cluster.send(
            verbs.get(kinds.NEW_EVENTS, target.name, target.namespace),
            timeout=PATIENCE_SECONDS,
            patience=PATIENCE_SECONDS,
        )
    except errors.NotFound:
        return False
    return True


def _events(
    ctx: run_context.Context, news: announcement.Announcement, about: t.Sequence[objects.Ref]
) -> list[dict[str, t.Any]]:
    """Create the Events that do not exist yet; a server that is away is not asked again."""
    until = ctx.clock.now() + EVENTS_SECONDS
    away: list[str] = []

    def each(ref: objects.Ref) -> dict[str, t.Any]:
        outcome = outcomes.EventOutcome.FAILED
        message = next(iter(away), "")
        if not message and ctx.clock.now() > until:
            message = f"There was no Event about {ref} within {EVENTS_SECONDS:g} s."
        if not message:
            try:
                outcome = _create(ctx, news, ref)
            except errors.ClusterError as error:
                message = f"No Event about {ref}: {error}"
                away.extend([message] if isinstance(error, errors.Unreachable) else [])
        place = {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}
        return {**place, "outcome": outcome.value, "failed": outcome.failed, "message": message}

    with ctx.clock.pool(run_requests.MAX_PARALLEL, "events") as pool:
        return list(pool.map(each, about))


def _create(
    ctx: run_context.Context, news: announcement.Announcement, ref: objects.Ref
) -> outcomes.EventOutcome:
    """One that exists is ours, of another start of the run or of a request without an answer."""
    change = announcement.event(news, _found(ctx, ref))
    if ctx.check and _exists(ctx, change):
        return outcomes.EventOutcome.ALREADY_CREATED
    lost = False
    for _again in range(3):
        try:
            run_requests.submit(ctx, change, patience=PATIENCE_SECONDS, timeout=PATIENCE_SECONDS)
        except errors.AlreadyExists:
            if not lost:
                return outcomes.EventOutcome.ALREADY_CREATED
            ctx.changed(change)
            return outcomes.EventOutcome.CREATED
        except errors.UnknownOutcome:
            lost = True
        else:
            return outcomes.EventOutcome.CREATED
    raise errors.UnknownOutcome("no answer to three requests")


def _found(ctx: run_context.Context, ref: objects.Ref) -> objects.Ref:
    """With its UID, by which `kubectl describe` finds its Events, where it may be read."""
    kind, uid = KINDS[ref.kind], ""
    try:
        raw = ctx.cluster.send(
            verbs.get(kind, ref.name, ref.namespace),
            timeout=PATIENCE_SECONDS,
            patience=PATIENCE_SECONDS,
        )
        uid = raw["metadata"]["uid"]
    except (errors.Forbidden, errors.NotFound):
        pass
    return objects.Ref(ref.kind, ref.name, ref.namespace, uid, kind.api_version)
