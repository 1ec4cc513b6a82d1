# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler in its cluster: its workload, its ConfigMap and our journal."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import (
    permissions,
    run_permissions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    check,
    installation,
    rollback_record,
    rollout,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks

Planned = t.Callable[[objects.Raw], "api_changes.Change | None"]
"""The change of a workload as it was just read; ``None`` if there is nothing to change."""


class ChangedMeanwhileError(run_context.CallAborted):
    """Somebody else wrote the same object; theirs is kept."""

    def __init__(self, what: str, who: str, remedy: str) -> None:
        super().__init__(
            "changed_meanwhile", f"{what} was changed by {who} meanwhile.", remedy, what
        )


@dataclass
class DeschedulerTarget:
    """One descheduler. ``workload`` is a Deployment, or a CronJob with flavor ``sigs``.

    ``stored`` is the ConfigMap that holds the journal; ``prove_lock`` proves before each write that
    the lock is ours, and is ``None`` as long as it is not held.
    """

    ctx: run_context.Context
    flavor: schemas.Flavor
    place: installation.Location
    workload: objects.Raw
    config_map: objects.Raw | None
    journal: rollback_record.Journal | None
    stored: objects.Raw | None = None
    prove_lock: run_requests.ProveLock | None = None

    @classmethod
    def read(
        cls,
        ctx: run_context.Context,
        flavor: schemas.Flavor,
        place: installation.Location,
        prove_lock: run_requests.ProveLock | None = None,
    ) -> DeschedulerTarget:
        """The descheduler as it is now.

        Raises:
            CallAborted: the workload does not exist; the message suggests the right name. Or the
                journal is unreadable.
        """
        workload = _workload(ctx, flavor, place)
        config_map = run_reconcile.read(ctx, map_ref(place.config_map, place.namespace))
        kept = run_reconcile.read(
            ctx, map_ref(f"{names.DESCHEDULER_PREFIX}{workload['metadata']['uid']}")
        )
        try:
            journal = rollback_record.Journal.of(kept) if kept else None
        except rollback_record.BadJournalError as error:
            raise run_context.CallAborted("bad_journal", str(error)) from error
        return cls(ctx, flavor, place, workload, config_map, journal, kept, prove_lock)

    @property
    def locked(self) -> bool:
        """Whether this call holds the lock."""
        return self.prove_lock is not None

    @property
    def may_write(self) -> bool:
        """Whether the lock is held; check mode needs none."""
        return self.ctx.check or self.locked

    @property
    def kind(self) -> kinds.Kind:
        return kinds.CRON_JOBS if self.is_cron else kinds.DEPLOYMENTS

    @property
    def is_cron(self) -> bool:
        return installation.is_cron(self.workload)

    @property
    def ref(self) -> objects.Ref:
        kind, meta = self.kind, self.workload["metadata"]
        return objects.Ref(
            kind.kind, meta["name"], self.place.namespace, meta["uid"], kind.api_version
        )

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
        self.workload = self.ctx.cluster.send(request)

    @property
    def scaled_down(self) -> bool:
        """Whether an earlier call was killed between scaling down and up."""
        journal = rollback_record.unsettled(self.journal)
        return journal is not None and journal.replicas is not None and not self.replicas

    def pods(self) -> t.Sequence[objects.Raw]:
        """The Deployment's pods, of all its pod templates."""
        labels = selectors.as_query(self.workload["spec"]["selector"])
        namespace = self.place.namespace
        return self.ctx.cluster.items(kinds.PODS, namespace=namespace, labels=labels).items

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
        """Set the ConfigMap's key to ``text`` if it still holds ``expected``,
        and what is ``pending``.

        ``had_map`` and ``had_data``: whether the ConfigMap, and data in it,
        are to remain without the key.

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
        written = run_reconcile.reconcile(
            self.ctx, ref, decide, known=self.config_map, prove_lock=self.prove_lock
        )
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
            meta: dict[str, t.Any] = {
                "name": ref.name,
                "namespace": ref.namespace,
                **installation.release_of(self.workload),
            }
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
            CallAborted: the workload was deleted.
            ClusterError: the change did not succeed.
        """

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            if raw is None:
                raise run_context.CallAborted(
                    "unknown_deployment", f"{self.ref} was deleted meanwhile."
                )
            self.workload = raw
            return planned(raw)

        written = run_reconcile.reconcile(
            self.ctx, self.ref, decide, known=self.workload, prove_lock=self.prove_lock
        )
        if not self.ctx.check and written.object:
            self.workload = written.object
        return written.change is not None

    def patch(
        self,
        workload: objects.Raw,
        spec: objects.Raw,
        sentence: str,
        before: objects.Raw,
        after: objects.Raw,
    ) -> api_changes.Change:
        """A conditional patch of the workload's spec."""
        version = workload["metadata"]["resourceVersion"]
        return api_changes.Change(
            "patch", self.ref, sentence, {"spec": spec}, before, after, version
        )

    def switch(self, field: t.Literal["replicas", "suspend"], value: int, sentence: str) -> bool:
        """Turn a field of the spec on or off (0, ``False``) unless it is so; whether it changed."""

        def planned(workload: objects.Raw) -> api_changes.Change | None:
            present = workload["spec"].get(field, 1 if field == "replicas" else False)
            if bool(present) == bool(value):
                return None
            return self.patch(workload, {field: value}, sentence, {field: present}, {field: value})

        return self.settle(planned)

    def snapshot(self, *ours: str) -> rollback_record.Journal:
        """A journal of the present state; ``ours`` are digests about to be rolled out."""
        return rollback_record.Journal(
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


def _workload(
    ctx: run_context.Context, flavor: schemas.Flavor, place: installation.Location
) -> objects.Raw:
    wanted = (kinds.DEPLOYMENTS, kinds.CRON_JOBS) if flavor == "sigs" else (kinds.DEPLOYMENTS,)
    for kind in wanted:
        ref = objects.Ref(
            kind.kind, place.deployment, place.namespace, api_version=kind.api_version
        )
        if found := run_reconcile.read(ctx, ref):
            return found
    there = []
    for kind in wanted:
        listed = ctx.cluster.items(kind, namespace=place.namespace)
        there += [raw["metadata"]["name"] for raw in listed.items]
    message = (
        f"There is no {' or '.join(kind.kind for kind in wanted)} "
        f"{place.namespace}/{place.deployment}."
    )
    remedy = installation.unknown_name(
        place, there, " and ".join(f"{kind.kind}s" for kind in wanted)
    )
    subject = f"{wanted[0].kind} {place.namespace}/{place.deployment}"
    raise run_context.CallAborted("unknown_deployment", message, remedy, subject)


# The lock of one descheduler, a Lease of the same name as its journal: only its holder writes.
#
# It is a lock as nodes have one, but with a nonce of its own for each call, because a call is a
# whole rollout. What a call that was killed had begun is in the journal,
# by which the next holder goes on.


Work = t.Callable[[DeschedulerTarget], "run_context.Result | None"]
"""A call's work on a descheduler as just read; ``None`` if it has to write, and may not yet."""


def one_at_a_time(
    ctx: run_context.Context, flavor: schemas.Flavor, place: installation.Location, work: Work
) -> run_context.Result:
    """Do the work; if it has to write, do it again under the lock, with what is there by then.

    Raises:
        CallAborted: another call holds the lock, or the descheduler does not exist.
    """
    target = DeschedulerTarget.read(ctx, flavor, place)
    done = work(target)
    if done is None:
        with _locked(target) as prove_lock:
            done = work(DeschedulerTarget.read(ctx, flavor, place, prove_lock))
    return t.cast("run_context.Result", done)


@contextlib.contextmanager
def _locked(target: DeschedulerTarget) -> t.Iterator[run_requests.ProveLock]:
    ctx, ref = target.ctx, target.ref
    run_id, _nonce = ctx.caller
    me = run_context.Run(run_id or ctx.clock.token(), ctx.clock.token())
    name = f"{ref.namespace}/{ref.name}"
    locks = run_locks.Locks(
        ctx, me, {name: f"{names.NAMESPACE}/{names.DESCHEDULER_PREFIX}{ref.uid}"}, ref.kind
    )
    if refused := locks.take():
        locks.leave()
        remedy = "Wait until that rollout has ended, then run again. Nothing was written."
        raise run_context.CallAborted("held", f"{refused[name]}.", remedy, str(ref))
    try:
        yield locks.prove
    finally:
        locks.leave(drop=[name])


# A descheduler's journal in the cluster, written and deleted only as it was read.


def leave(target: DeschedulerTarget, journal: rollback_record.Journal | None) -> None:
    """Leave this journal, or none; raises as ``keep``."""
    if journal is None:
        forget(target)
    else:
        keep(target, journal)


def keep(target: DeschedulerTarget, journal: rollback_record.Journal) -> None:
    """Write the journal, before anything else is written.

    Raises:
        ChangedMeanwhileError: it is no longer the one that was read; it is kept.
    """
    if journal != target.journal and not target.ctx.check:
        body = journal.to_config_map()
        ref = map_ref(journal.name)
        content = {"data": body["data"], "metadata": {"labels": body["metadata"]["labels"]}}
        sentence = f"Keep the state of {target.ref}"

        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            if found and found.get("data") == body["data"]:
                return None
            if _version(found) != _version(target.stored):
                raise ChangedMeanwhileError(
                    str(ref), "another rollout", "Look at the other rollout, then run again."
                )
            if found is None:
                return api_changes.Change("create", ref, sentence, body=body)
            return api_changes.Change(
                "patch", ref, sentence, content, resource_version=_version(found)
            )

        written = run_reconcile.reconcile(
            target.ctx,
            ref,
            decide,
            known=target.stored,
            prove_lock=target.prove_lock,
            remember=False,
        )
        target.stored = written.object
    target.journal = journal


def forget(target: DeschedulerTarget) -> None:
    """Delete the journal, unless it is no longer the one that was read."""
    if target.journal and target.stored and not target.ctx.check:
        ref = replace(map_ref(target.journal.name), uid=target.stored["metadata"]["uid"])
        version = _version(target.stored)
        change = api_changes.Change(
            "delete", ref, f"Forget the state of {target.ref}", resource_version=version
        )
        run_reconcile.remove(target.ctx, change, prove_lock=target.prove_lock, remember=False)
    target.journal = target.stored = None


def _version(found: objects.Raw | None) -> str:
    """The resourceVersion, empty if there is no such object."""
    return str(found["metadata"]["resourceVersion"]) if found else ""


# What would stop a rollout half way, checked before its first write.


_KEPT = (
    *permissions.rights("get create patch delete", "", "configmaps", (names.NAMESPACE,)),
    *permissions.rights(
        "get list create patch delete",
        kinds.LEASES.group,
        kinds.LEASES.plural,
        (names.NAMESPACE,),
    ),
)
"""What a rollout keeps in our namespace: the previous state, and its lock."""


def permit(target: DeschedulerTarget, *, writes: bool, restarts: bool) -> None:
    """Check that the ConfigMap can be written and the Deployment restarted.

    Raises:
        CallAborted: they cannot; nothing was written.
    """
    place = target.place
    found = target.config_map or {}
    where = target.place.map_name
    if writes and found.get("immutable"):
        raise run_context.CallAborted(
            "immutable", f"{where} is immutable.", "Replace it with a mutable one.", where
        )
    if writes and place.key in (found.get("binaryData") or {}):
        raise run_context.CallAborted(
            "immutable", f"{where} has {place.key} as binaryData.", "Move it to data.", where
        )
    if restarts and target.workload["spec"].get("paused"):
        remedy = (
            f"kubectl -n {place.namespace} rollout resume deployment {place.deployment}, "
            "or set restart: none."
        )
        message = f"The rollout of {target.ref} is paused."
        raise run_context.CallAborted("deployment_paused", message, remedy, str(target.ref))
    # A role may be restricted to the names of these objects.
    asked: list[tuple[permissions.Need, str]] = []
    if writes:
        name = place.config_map if target.config_map else ""
        verb = "patch" if name else "create"
        asked.append((permissions.Need(verb, "", "configmaps", (place.namespace,)), name))
    if restarts:
        need = permissions.Need("patch", target.kind.group, target.kind.plural, (place.namespace,))
        asked.append((need, place.deployment))
    asked += [(need, "") for need in _KEPT]
    lacking = [
        need
        for need, name in asked
        if not run_permissions.allowed(target.ctx, need, need.namespaces[0], name)
    ]
    if lacking:
        lacks = [permissions.Lack(need, need.namespaces) for need in lacking]
        findings = run_permissions.missing(target.ctx, lacks)
        message = " ".join(finding.message for finding in findings)
        remedy = " ".join(finding.remedy for finding in findings)
        first = findings[0]
        raise run_context.CallAborted(
            first.code, message, f"{remedy} Nothing was written.", first.object
        )


# Reading the versions of a descheduler and of its cluster.


def look(target: DeschedulerTarget, given: str) -> check.Found:
    """The rules that apply, and what is wrong with the versions; ``given`` is the option."""
    try:
        page = target.ctx.cluster.send(verbs.server_version())
    except (errors.Forbidden, errors.NotFound):
        page = {}
    kubernetes = str(page.get("gitVersion") or "")
    image = str(installation.container_of(target.workload).get("image") or "")
    return check.judged(target.flavor, given, image, kubernetes)
