# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler in its cluster: its workload, its ConfigMap and our journal, read and conditionally written."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    check,
    journaling,
    places,
    rollout,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    outcomes,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing

Planned = t.Callable[[objects.Raw], "api_changes.Change | None"]
"""The change of a workload as it was just read; ``None`` if there is nothing to change."""


class ChangedMeanwhileError(context.StopRun):
    """Somebody else wrote the same object; theirs is kept."""

    def __init__(self, what: str, who: str, remedy: str) -> None:
        super().__init__("changed_meanwhile", f"{what} was changed by {who} meanwhile.", remedy, what)


@dataclass
class DeschedulerTarget:
    """One descheduler. ``workload`` is a Deployment, or a CronJob with flavor ``sigs``.

    ``stored`` is the ConfigMap that holds the journal; ``fence`` proves before each write that the lock is ours, and is
    ``None`` as long as it is not held.
    """

    ctx: context.Context
    flavor: check.Flavor
    place: places.Place
    workload: objects.Raw
    config_map: objects.Raw | None
    journal: journaling.Journal | None
    stored: objects.Raw | None = None
    fence: act.Fence | None = None

    @classmethod
    def read(
        cls, ctx: context.Context, flavor: check.Flavor, place: places.Place, fence: act.Fence | None = None
    ) -> DeschedulerTarget:
        """The descheduler as it is now.

        Raises:
            StopRun: the workload does not exist; the message suggests the right name. Or the journal is unreadable.
        """
        workload = _workload(ctx, flavor, place)
        config_map = writing.read(ctx, map_ref(place.config_map, place.namespace))
        kept = writing.read(ctx, map_ref(f"{journaling.PREFIX}{workload['metadata']['uid']}"))
        try:
            journal = journaling.Journal.of(kept) if kept else None
        except journaling.BadJournalError as error:
            raise context.StopRun("bad_journal", str(error)) from error
        return cls(ctx, flavor, place, workload, config_map, journal, kept, fence)

    @property
    def locked(self) -> bool:
        """Whether this call holds the lock."""
        return self.fence is not None

    @property
    def may_write(self) -> bool:
        """Whether the lock is held; check mode needs none."""
        return self.ctx.check or self.locked

    @property
    def kind(self) -> kinds.Kind:
        return kinds.CRON_JOBS if self.is_cron else kinds.DEPLOYMENTS

    @property
    def is_cron(self) -> bool:
        return places.is_cron(self.workload)

    @property
    def ref(self) -> objects.Ref:
        kind, meta = self.kind, self.workload["metadata"]
        return objects.Ref(kind.kind, meta["name"], self.place.namespace, meta["uid"], kind.api_version)

    @property
    def replicas(self) -> int:
        """The desired number of pods."""
        return int(self.workload["spec"].get("replicas", 1))

    @property
    def text(self) -> str | None:
        """The configuration in the ConfigMap, ``None`` if there is none."""
        return ((self.config_map or {}).get("data") or {}).get(self.place.key)

    def reread(self) -> None:
        """Read the workload again."""
        request = verbs.get(self.kind, self.place.deployment, self.place.namespace)
        self.workload = self.ctx.cluster.send(request, patience=act.PATIENCE)

    @property
    def scaled_down(self) -> bool:
        """Whether an earlier call was killed between scaling down and up."""
        journal = journaling.unsettled(self.journal)
        return journal is not None and journal.replicas is not None and not self.replicas

    def pods(self) -> t.Sequence[objects.Raw]:
        """The Deployment's pods, of all its pod templates."""
        labels = selectors.as_query(self.workload["spec"]["selector"])
        namespace = self.place.namespace
        return self.ctx.cluster.items(kinds.PODS, namespace=namespace, labels=labels, patience=act.PATIENCE).items

    def tell(self, what: outcomes.Outcome, message: str) -> None:
        """Report progress; check mode makes none."""
        if not self.ctx.check:
            self.ctx.tell(what, message, namespace=self.place.namespace, name=self.place.deployment)

    def write(
        self,
        text: str | None,
        expected: str | None,
        sentence: str,
        *,
        had_map: bool = True,
        had_data: bool = True,
        pending: str = "",
    ) -> None:
        """Set the ConfigMap's key to ``text`` if it still holds ``expected``, and what is ``pending``.

        ``had_map`` and ``had_data``: whether the ConfigMap, and data in it, are to remain without the key.

        Raises:
            ChangedMeanwhileError: someone else did; their text is kept.
        """

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            self.config_map = raw
            if self.text == text and rollout.noted(raw) == pending:
                return None
            if self.text not in (text, expected):
                remedy = "Find out who writes it (a GitOps controller?), then run again."
                raise ChangedMeanwhileError(self.place.map_name, "someone else", remedy)
            return self._change(text, sentence, had_map, had_data, pending)

        ref = map_ref(self.place.config_map, self.place.namespace)
        written = writing.write(self.ctx, ref, decide, known=self.config_map, fence=self.fence)
        if not self.ctx.check:
            self.config_map = written.object

    def _change(
        self, text: str | None, sentence: str, had_map: bool, had_data: bool, pending: str
    ) -> api_changes.Change:
        key, found = self.place.key, self.config_map
        before = {key: self.text.splitlines()} if self.text is not None else {}
        after = {key: text.splitlines()} if text is not None else {}
        ref = map_ref(self.place.config_map, self.place.namespace)
        if found is None:
            meta: dict[str, t.Any] = {"name": ref.name, "namespace": ref.namespace, **places.release_of(self.workload)}
            if pending:
                meta["annotations"] = {**meta.get("annotations", {}), rollout.PENDING: pending}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {key: text}}
            return api_changes.Change("create", ref, sentence, body, before, after)
        version = found["metadata"]["resourceVersion"]
        if text is None and not had_map:
            ref = replace(ref, uid=found["metadata"]["uid"])
            return api_changes.Change("delete", ref, sentence, None, before, after, version)
        data = None if text is None and not had_data else {key: text}
        changed: dict[str, t.Any] = {"data": data}
        if pending != rollout.noted(found):
            changed["metadata"] = {"annotations": {rollout.PENDING: pending or None}}
        return api_changes.Change("patch", ref, sentence, changed, before, after, version)

    def settle(self, planned: Planned) -> bool:
        """Patch the workload as ``planned`` decides; whether anything changed.

        Raises:
            StopRun: the workload was deleted.
            ClusterError: the change did not succeed.
        """

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            if raw is None:
                raise context.StopRun("unknown_deployment", f"{self.ref} was deleted meanwhile.")
            self.workload = raw
            return planned(raw)

        written = writing.write(self.ctx, self.ref, decide, known=self.workload, fence=self.fence)
        if not self.ctx.check and written.object:
            self.workload = written.object
        return written.change is not None

    def patch(
        self, workload: objects.Raw, spec: objects.Raw, sentence: str, before: objects.Raw, after: objects.Raw
    ) -> api_changes.Change:
        """A conditional patch of the workload's spec."""
        version = workload["metadata"]["resourceVersion"]
        return api_changes.Change("patch", self.ref, sentence, {"spec": spec}, before, after, version)

    def switch(self, field: t.Literal["replicas", "suspend"], value: int, sentence: str) -> bool:
        """Turn a field of the spec on or off (0, ``False``), unless it is so already; whether anything changed."""

        def planned(workload: objects.Raw) -> api_changes.Change | None:
            present = workload["spec"].get(field, 1 if field == "replicas" else False)
            if bool(present) == bool(value):
                return None
            return self.patch(workload, {field: value}, sentence, {field: present}, {field: value})

        return self.settle(planned)

    def snapshot(self, *ours: str) -> journaling.Journal:
        """A journal of the present state; ``ours`` are the digests of configurations about to be rolled out."""
        return journaling.Journal(
            flavor=self.flavor,
            place=self.place,
            kind=self.kind.kind,
            uid=self.workload["metadata"]["uid"],
            config=self.text,
            had_map=self.config_map is not None,
            had_data=bool((self.config_map or {}).get("data")),
            marks={} if self.is_cron else rollout.marks_of(self.workload),
            bare=not rollout.annotations_of(self.workload),
            ours=ours,
            by=self.ctx.by,
            since=self.ctx.clock.wall(),
        )


def map_ref(name: str, namespace: str = names.NAMESPACE) -> objects.Ref:
    """The ConfigMap of that name."""
    return objects.Ref("ConfigMap", name, namespace, api_version="v1")


def _workload(ctx: context.Context, flavor: check.Flavor, place: places.Place) -> objects.Raw:
    wanted = (kinds.DEPLOYMENTS, kinds.CRON_JOBS) if flavor == "sigs" else (kinds.DEPLOYMENTS,)
    for kind in wanted:
        ref = objects.Ref(kind.kind, place.deployment, place.namespace, api_version=kind.api_version)
        if found := writing.read(ctx, ref):
            return found
    there = [
        raw["metadata"]["name"]
        for kind in wanted
        for raw in ctx.cluster.items(kind, namespace=place.namespace, patience=act.PATIENCE).items
    ]
    message = f"There is no {' or '.join(kind.kind for kind in wanted)} {place.namespace}/{place.deployment}."
    remedy = places.unknown_name(place, there, " and ".join(f"{kind.kind}s" for kind in wanted))
    subject = f"{wanted[0].kind} {place.namespace}/{place.deployment}"
    raise context.StopRun("unknown_deployment", message, remedy, subject)
