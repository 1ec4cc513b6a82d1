# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler in its cluster: its workload, its ConfigMap and our journal, read and conditionally written."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    journaling,
    places,
    rollout,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing

Planned = t.Callable[[objects.Raw], "api_changes.Change | None"]


@dataclass
class Site:
    """One descheduler. ``workload`` is a Deployment, or a CronJob where the flavor is ``sigs``."""

    ctx: context.Context
    flavor: str
    place: places.Place
    workload: objects.Raw
    config_map: objects.Raw | None
    journal: journaling.Journal | None

    @classmethod
    def read(cls, ctx: context.Context, flavor: str, place: places.Place) -> Site:
        """Everything as it is now.

        Raises:
            StopRun: there is no such workload; the message says which one was probably meant.
        """
        workload = _workload(ctx, flavor, place)
        site = cls(ctx, flavor, place, workload, None, None)
        site.config_map = site._get(kinds.CONFIGMAPS, place.config_map, place.namespace)
        kept = site._get(kinds.CONFIGMAPS, f"descheduler-{workload['metadata']['uid']}", names.NAMESPACE)
        if kept is not None:
            try:
                site.journal = journaling.Journal.of(kept)
            except journaling.BadJournalError as error:
                raise context.StopRun("bad_journal", str(error)) from error
        return site

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
        """As many pods as the Deployment is to have."""
        return int(self.workload["spec"].get("replicas", 1))

    @property
    def text(self) -> str | None:
        """What the ConfigMap holds under the key, ``None`` where there is nothing."""
        return ((self.config_map or {}).get("data") or {}).get(self.place.key)

    def reread(self) -> None:
        """The workload as it is now."""
        request = verbs.get(self.kind, self.place.deployment, self.place.namespace)
        self.workload = self.ctx.cluster.send(request, patience=act.PATIENCE)

    def pods(self) -> list[objects.Raw]:
        """The Deployment's pods, of all its templates."""
        wanted = self.workload["spec"]["selector"].get("matchLabels") or {}
        labels = ",".join(f"{key}={value}" for key, value in wanted.items())
        return [
            dict(raw)
            for raw in self.ctx.cluster.items(
                kinds.PODS, namespace=self.place.namespace, labels=labels, patience=act.PATIENCE
            ).items
        ]

    def lease(self, election: places.Election) -> objects.Raw | None:
        """The leader's Lease."""
        return self._get(kinds.LEASES, election.name, election.namespace)

    def _get(self, kind: kinds.Kind, name: str, namespace: str) -> objects.Raw | None:
        try:
            return self.ctx.cluster.send(verbs.get(kind, name, namespace), patience=act.PATIENCE)
        except errors.NotFound:
            return None

    def write(self, text: str | None, expected: str | None, sentence: str, *, had_map: bool, had_data: bool) -> None:
        """Bring the ConfigMap's key to ``text`` if it still holds ``expected``.

        Raises:
            StopRun: somebody else wrote it meanwhile; nothing of theirs was overwritten.
        """
        tried = False

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            nonlocal tried
            self.config_map = raw
            if tried and self.text == text:
                return None
            if self.text != expected:
                where = f"ConfigMap {self.place.namespace}/{self.place.config_map}"
                raise context.StopRun(
                    "changed_meanwhile",
                    f"{where} was written by somebody else meanwhile.",
                    "Look who writes it (a GitOps controller?), then run again.",
                    where,
                )
            tried = True
            return self._change(text, sentence, had_map, had_data)

        target = objects.Ref("ConfigMap", self.place.config_map, self.place.namespace, api_version="v1")
        written = writing.write(self.ctx, target, decide, known=self.config_map)
        if not self.ctx.check:
            self.config_map = written.object

    def _change(self, text: str | None, sentence: str, had_map: bool, had_data: bool) -> api_changes.Change:
        key, found = self.place.key, self.config_map
        before = {key: self.text.splitlines()} if self.text is not None else {}
        after = {key: text.splitlines()} if text is not None else {}
        target = objects.Ref("ConfigMap", self.place.config_map, self.place.namespace, "", "v1")
        if found is None:
            meta = {"name": self.place.config_map, "namespace": self.place.namespace}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {key: text}}
            return api_changes.Change("create", target, sentence, body, before, after)
        version = found["metadata"]["resourceVersion"]
        if text is None and not had_map:
            target = replace(target, uid=found["metadata"]["uid"])
            return api_changes.Change("delete", target, sentence, None, before, after, version)
        data = None if text is None and not had_data else {key: text}
        return api_changes.Change("patch", target, sentence, {"data": data}, before, after, version)

    def settle(self, planned: Planned) -> bool:
        """Patch the workload as ``planned`` says of what it is now; whether it was needed.

        Raises:
            StopRun: it is not there any more.
            ClusterError: it never went through.
        """

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            if raw is None:
                raise context.StopRun("unknown_deployment", f"{self.ref} was deleted meanwhile.")
            self.workload = raw
            return planned(raw)

        written = writing.write(self.ctx, self.ref, decide, known=self.workload)
        if not self.ctx.check and written.object:
            self.workload = written.object
        return written.change is not None

    def change(
        self, workload: objects.Raw, body: objects.Raw, sentence: str, before: objects.Raw, after: objects.Raw
    ) -> api_changes.Change:
        """A conditional patch of the workload."""
        return api_changes.Change(
            "patch", self.ref, sentence, body, before, after, workload["metadata"]["resourceVersion"]
        )

    def keep(self, journal: journaling.Journal) -> None:
        """Write the journal before anything else is written."""
        if journal == self.journal:
            return
        if not self.ctx.check:
            body, target = (
                journal.to_config_map(),
                objects.Ref("ConfigMap", journal.name, names.NAMESPACE, api_version="v1"),
            )
            content = {"data": body["data"], "metadata": {"labels": body["metadata"]["labels"]}}

            def decide(found: objects.Raw | None) -> api_changes.Change | None:
                if found is None:
                    return api_changes.Change("create", target, f"Keep the state of {self.ref}", body=body)
                if found.get("data") == body["data"]:
                    return None
                version = found["metadata"]["resourceVersion"]
                return api_changes.Change(
                    "patch", target, f"Keep the state of {self.ref}", content, resource_version=version
                )

            writing.write(self.ctx, target, decide, known=None, remember=False)
        self.journal = journal

    def forget(self) -> None:
        """Delete the journal: there is nothing left to take back."""
        if self.journal is None:
            return
        if not self.ctx.check:
            target = objects.Ref("ConfigMap", self.journal.name, names.NAMESPACE, api_version="v1")
            change = api_changes.Change("delete", target, f"Forget the state of {self.ref}")
            writing.remove(self.ctx, change, remember=False)
        self.journal = None

    def as_it_is(self, *ours: str) -> journaling.Journal:
        """A journal of the present state."""
        found = self.config_map
        return journaling.Journal(
            flavor=self.flavor,
            place=self.place,
            kind=self.kind.kind,
            uid=self.workload["metadata"]["uid"],
            config=self.text,
            had_map=found is not None,
            had_data=bool((found or {}).get("data")),
            marks={} if self.is_cron else rollout.marks_of(self.workload),
            bare=not rollout.annotations_of(self.workload),
            ours=ours,
            by=self.ctx.by,
            since=self.ctx.clock.wall(),
        )


def _workload(ctx: context.Context, flavor: str, place: places.Place) -> objects.Raw:
    wanted = (kinds.DEPLOYMENTS, kinds.CRON_JOBS) if flavor == "sigs" else (kinds.DEPLOYMENTS,)
    for kind in wanted:
        try:
            return ctx.cluster.send(verbs.get(kind, place.deployment, place.namespace), patience=act.PATIENCE)
        except errors.NotFound:
            continue
    found = [
        raw["metadata"]["name"]
        for kind in wanted
        for raw in ctx.cluster.items(kind, namespace=place.namespace, patience=act.PATIENCE).items
    ]
    words = " or ".join(kind.kind for kind in wanted)
    raise context.StopRun(
        "unknown_deployment",
        f"There is no {words} {place.namespace}/{place.deployment}.",
        places.unknown_name(place, found, " and ".join(f"{kind.kind}s" for kind in wanted)),
        f"{wanted[0].kind} {place.namespace}/{place.deployment}",
    )
