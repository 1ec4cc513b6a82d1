# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How a change reaches the cluster: read, decide, prove the lock, write,
and again after a conflict.

A write that failed because of another writer or without a clear answer is not an error: the object
is read and decided on again. A decision has to recognize its own work, so that a write whose answer
was lost is not repeated.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)

MAX_TRIES = 20
"""How often a change is decided; status updates of kubelets and controllers conflict, too."""
PAUSE_SECONDS = 0.02
"""Seconds before the second read; each further one waits that much longer."""
MAX_SERVER_ERRORS = 3
"""How often a 500 is retried; it says that nothing was done."""

Decide = t.Callable[["objects.Raw | None"], "api_changes.Change | None"]
"""From the object as it was read (``None``: it does not exist) to the change,
``None`` if there is nothing to do.
"""


class Contended(errors.ClusterError):
    """Others keep writing the object."""

    rule = "written by somebody else again and again"
    remedy = "Run the same command again."


PASSING = (errors.Unreachable, errors.Overloaded, errors.UnknownOutcome, Contended)
"""Failures that are not about the change itself: it may succeed a little later."""


@dataclass(frozen=True, slots=True)
class Written:
    """``object`` as it is now, ``None`` if it does not exist; the ``change`` that was written,
    ``None`` without one.
    """

    object: objects.Raw | None
    change: api_changes.Change | None


class Unread:
    """Stands for an object that has not been read yet."""


UNREAD = Unread()


# Each answer that a write may get decides what the next try does, or that there is none.
def reconcile(  # noqa: C901
    ctx: run_context.Context,
    target: objects.Ref,
    decide: Decide,
    *,
    known: objects.Raw | Unread | None = UNREAD,
    prove_lock: run_requests.ProveLock | None = None,
    remember: bool = True,
    patience: float = run_requests.PATIENCE,
    timeout: float = run_requests.TIMEOUT,
    tries: int = MAX_TRIES,
) -> Written:
    """Bring ``target`` to where ``decide`` wants it; in check mode the change is only remembered.

    ``decide`` is called at most ``tries`` times, again after every write that failed; what it
    raises is passed on. ``known`` is the object as it was read just now; without it, it is read
    first. ``prove_lock`` is called before every attempt of every write. ``remember`` says whether
    the change belongs in the call's result; a lock's does not. ``patience`` is for how many seconds
    an API server that is away or overloaded is asked again, ``timeout`` how many seconds one
    attempt of a request may take.

    Raises:
        Contended: it was changed by others at every try.
        UnknownOutcome: no try got a clear answer.
        ClusterError: the server refused, or could not be reached.
    """
    unsure: api_changes.Change | None = None
    trouble: errors.ClusterError | None = None
    hiccups = 0
    for attempt in range(tries):
        if attempt:
            ctx.clock.sleep((PAUSE_SECONDS * attempt + hiccups / 2) * ctx.clock.jitter())
        if attempt or isinstance(known, Unread):
            known = read(ctx, target, patience=patience, timeout=timeout)
        change = decide(known)
        if change is None:
            # The answer was lost, and here is what it would have said.
            if unsure and remember:
                ctx.changed(unsure)
            return Written(known, unsure)
        try:
            made = run_requests.submit(
                ctx,
                change,
                prove_lock=prove_lock,
                patience=patience,
                timeout=timeout,
                remember=remember,
            )
            return Written(known if ctx.check else made, change)
        except errors.UnknownOutcome as error:
            unsure, trouble = change, error
        except (errors.Conflict, errors.AlreadyExists) as error:
            trouble = error
        except errors.ServerError as error:
            trouble, hiccups = error, hiccups + 1
            if hiccups > MAX_SERVER_ERRORS:
                raise
        except errors.NotFound as error:
            trouble = error
            if change.verb == "create" and target.namespace != names.NAMESPACE:
                raise
            if change.verb == "create":
                ensure_namespace(ctx)
    if isinstance(trouble, errors.UnknownOutcome):
        raise trouble
    raise Contended(f"{target} was changed {tries} times in a row") from trouble


def go_on(
    ctx: run_context.Context, target: objects.Ref, decide: Decide, *, remember: bool = True
) -> Written:
    """As ``reconcile``, from the object as this call has known it last, if it has.

    For what nobody else writes as a rule: where somebody has, the write conflicts, and is decided
    anew by what is read then. That there is nothing to write is believed.
    """
    known = ctx.latest.get(target, UNREAD)
    written = reconcile(ctx, target, decide, known=known, remember=remember)
    deleted = written.change is not None and written.change.verb == "delete"
    if written.object is None or deleted:
        ctx.latest.pop(target, None)
    else:
        ctx.latest[target] = written.object
    return written


def remove(
    ctx: run_context.Context,
    change: api_changes.Change,
    *,
    prove_lock: run_requests.ProveLock | None = None,
    remember: bool = True,
) -> bool:
    """Delete the object of ``change``, by UID and resourceVersion where it names them;
    whether it was there as named.

    Raises:
        ClusterError: the server refused, or could not be reached.
    """
    named = {"uid": change.target.uid, "resourceVersion": change.resource_version}
    wanted = {key: value for key, value in named.items() if value}

    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        return change if found and wanted.items() <= found["metadata"].items() else None

    written = reconcile(
        ctx,
        change.target,
        decide,
        known={"metadata": wanted},
        prove_lock=prove_lock,
        remember=remember,
    )
    return written.change is not None


def at_first(change: api_changes.Change, decide: Decide) -> Decide:
    """Decides for ``change`` without reading (give ``known=None``),
    and after a failed write as ``decide``.
    """
    first = iter([change])

    def both(found: objects.Raw | None) -> api_changes.Change | None:
        return next(first, None) or decide(found)

    return both


def read(
    ctx: run_context.Context,
    target: objects.Ref,
    *,
    patience: float = run_requests.PATIENCE,
    timeout: float = run_requests.TIMEOUT,
) -> objects.Raw | None:
    """The object as it is now, ``None`` if it does not exist.

    Raises:
        ClusterError: it may not be read, or the server could not be reached.
    """
    kind = kinds.KINDS[(target.api_version, target.kind)]
    try:
        return ctx.cluster.send(
            verbs.get(kind, target.name, target.namespace), timeout=timeout, patience=patience
        )
    except errors.NotFound:
        return None


def ensure_namespace(ctx: run_context.Context) -> None:
    """Create our namespace at first use; raises CallAborted if it is missing and may not be
    created.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": names.NAMESPACE, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}},
    }
    for attempt in range(MAX_TRIES):
        if attempt:
            ctx.clock.sleep(PAUSE_SECONDS * attempt * ctx.clock.jitter())
        try:
            # It is not read first: that may be forbidden where creating it is allowed.
            ctx.cluster.send(verbs.create(kinds.NAMESPACES, body))
        except errors.AlreadyExists:
            return
        except (errors.Conflict, errors.UnknownOutcome):
            continue
        except errors.Forbidden as error:
            raise run_context.CallAborted(
                "namespace_missing",
                f"Namespace {names.NAMESPACE}, which holds the locks, is missing and may not "
                f"be created: {error}",
                f"Create it once: kubectl create namespace {names.NAMESPACE}",
                f"Namespace {names.NAMESPACE}",
            ) from error
        return
