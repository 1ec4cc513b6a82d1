# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Tells of changes of node conditions until it is stopped, and keeps in the
cluster what has been told.

So a restart tells what happened in between, also where the API server no longer has the history:
then the nodes are listed and compared with what was told. An event is handed on before it is kept,
so one may come twice, none is lost. What is not healthy at a start is told again, because whoever
heard of it may have been killed before acting on it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, watch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import condition_events

KEEP_SECONDS = 60.0
"""After so many seconds without an event, how far the watch has come is stored anyway: the API
server has a history of five minutes, and a later start has to begin within it.
"""
LOOK_SECONDS = 0.25
"""How soon a stop is noticed."""

Emit = t.Callable[[dict[str, t.Any]], None]


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """``name`` tells the accounts of several listeners apart;
    ``conditions`` as ``condition_events.WatchedCondition.of`` reads them.
    """

    name: str
    conditions: tuple[str, ...] = (condition_events.POSITIVE,)
    node_selector: str = ""


class Listener:
    """One source of events: what it has told, and the watch behind it."""

    def __init__(self, ctx: run_context.Context, options: FollowOptions, emit: Emit) -> None:
        self._ctx = ctx
        self._wanted = tuple(
            condition_events.WatchedCondition.of(text) for text in options.conditions
        )
        self._selector = options.node_selector
        self._ref = objects.Ref(
            "ConfigMap", names.events_name(options.name), names.NAMESPACE, api_version="v1"
        )
        self._emit = emit
        self._account = condition_events.Account()
        self._wake = ctx.clock.condition()
        self._arrived: list[tuple[str, objects.Raw]] = []
        self._kept_at = ctx.clock.now()

    def follow(self, stopped: t.Callable[[], bool]) -> None:
        """Hand on events until ``stopped`` says so; for the rest see ``follow``."""
        self._account = condition_events.Account.read(run_reconcile.read(self._ctx, self._ref))
        self._begin()
        reflector = watch.Reflector(
            self._ctx.cluster,
            kinds.NODES,
            labels=self._selector,
            wake=self._wake,
            keep=condition_events.kept,
            on_event=lambda what, raw: self._arrived.append((what, raw)),
        )
        reflector.resource_version = self._account.version
        reflector.start()
        try:
            while not stopped():
                with self._wake:
                    if not self._arrived and not reflector.error:
                        self._wake.wait(LOOK_SECONDS)
                    events = list(self._arrived)
                    self._arrived[:] = []
                    error, version = reflector.error, reflector.resource_version
                if error:
                    raise error
                self._take(events, version)
        finally:
            reflector.stop()

    def _begin(self) -> None:
        """Tell what is not healthy now: all of it if nothing was told before, else what was."""
        listing = self._ctx.cluster.items(
            kinds.NODES, labels=self._selector, keep=condition_events.kept
        )
        condition_events.forget_others(listing.items, self._account)
        for raw in listing.items:
            for event in condition_events.standing(raw, self._wanted, self._account):
                self._emit(event)
        if not self._account.version:
            self._take([("ADDED", raw) for raw in listing.items], listing.resource_version)
            self._keep(listing.resource_version)

    def _take(self, events: t.Iterable[tuple[str, objects.Raw]], version: str) -> None:
        """Hand on what is new, and keep that it was, or now and then how far history is known."""
        reported = 0
        for what, raw in events:
            if what == "DELETED":
                condition_events.forget(raw, self._account)
                continue
            for event in condition_events.news(raw, self._wanted, self._account):
                self._emit(event)
                reported += 1
        late = self._ctx.clock.now() - self._kept_at > KEEP_SECONDS
        if version and version != self._account.version and (reported or late):
            self._keep(version)

    def _keep(self, version: str) -> None:
        self._account.version = version
        self._kept_at = self._ctx.clock.now()
        data = self._account.data()
        body: objects.Raw = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._ref.name, "namespace": names.NAMESPACE},
            "data": data,
        }

        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            if found is None:
                return api_changes.Change("create", self._ref, f"Create {self._ref}", body)
            if (found.get("data") or {}) == data:
                return None
            return api_changes.Change("patch", self._ref, f"Update {self._ref}", {"data": data})

        run_reconcile.reconcile(self._ctx, self._ref, decide, remember=False)


def follow(
    ctx: run_context.Context, options: FollowOptions, emit: Emit, stopped: t.Callable[[], bool]
) -> run_context.Result:
    """Hand events to ``emit`` until ``stopped`` says so, which it is asked every
    quarter of a second.

    Raises:
        ClusterError: the nodes may not be watched, or what was told may not be read or kept.
    """
    Listener(ctx, options, emit).follow(stopped)
    return run_context.Result({})
