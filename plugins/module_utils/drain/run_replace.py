# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pods that are replaced before they leave: let go by their ReplicaSets,
and evicted once others are enough.

Steps are taken by a loop that has other things to do: requests are made beside it. All that has to
be known is on the pods themselves, so whoever drains their node later goes on.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_background,
    run_context,
    run_reconcile,
    run_requests,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    released,
    run_dispositions,
    run_evictor,
    unserved,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import queues
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    run_pod_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_lock_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_raise,
    run_surge_lease,
)

SERVES_WITHIN_SECONDS = 600.0
"""Seconds after which a replacement that does not serve is given up,
where nothing says earlier that it cannot.
"""
KEPT_SECONDS = 10.0
"""Seconds for which its ReplicaSet may keep a pod that was let go until it is asked why."""
SERVICE_WAIT_SECONDS = 600.0
"""Seconds after which Services that do not drop the pod are waited for no longer."""


@dataclasses.dataclass
class _Replacement:
    """One pod on its way. Times are of the context's monotonic clock.

    ``version`` is the pod's resourceVersion after our last write; ``since`` is when it was let go,
    ``serving`` since when others are enough, and ``blocked`` since when its replacement
    cannot come, for ``why``. ``tried``: it was asked whether its ReplicaSet may let go of it.
    """

    version: str = ""
    since: float | None = None
    serving: float | None = None
    blocked: float | None = None
    why: str = ""
    tried: bool = False

    def behind(self, pod: objects.Pod) -> bool:
        """Whether the pod is seen as it was before our last write."""
        now = pod.resource_version
        return now.isdigit() and self.version.isdigit() and int(now) < int(self.version)


@dataclasses.dataclass
class _Others:
    """What is known of the pods beside those that were let go, until the cluster has changed:
    most turns have another reason. ``nodes`` are those that are drained.
    """

    nodes: t.Collection[str]
    _seen: tuple[snapshots.Snapshot, t.Collection[str]] | None = None
    _known: dict[str, tuple[str, reasons.Reason | None]] = dataclasses.field(default_factory=dict)

    def lack(
        self,
        pod: objects.Pod,
        mark: released.Mark,
        snapshot: snapshots.Snapshot,
        leaving: t.Collection[str],
    ) -> tuple[str, reasons.Reason | None]:
        """Why they are not enough without the pod, empty if they are,
        and what keeps a replacement from serving.
        """
        if self._seen is None or self._seen[0] is not snapshot or self._seen[1] != leaving:
            self._seen = (snapshot, leaving)
            self._known = {}
        if pod.uid not in self._known:
            why = released.lacks(snapshot, pod, mark, leaving)
            found = released.hindrance(snapshot, mark, self.nodes) if why else None
            self._known[pod.uid] = why, found
        return self._known[pod.uid]


@dataclasses.dataclass
class Unserving:
    """When a pod that was replaced has to leave its Services, and for how long that lasts before it
    may end. What was taken off and when is on the pod, so whoever goes on waits for the rest.

    ``wait`` is the ``load_balancer_wait`` of the call. When a Service was last seen to have a pod
    is by its UID.
    """

    ctx: run_context.Context
    wait: float
    _listed: dict[str, float] = dataclasses.field(default_factory=dict)

    def out(
        self, move: run_pod_drain.PodDrain, pod: objects.Pod, snapshot: snapshots.Snapshot
    ) -> unserved.Unserved | None:
        """What takes the pod out of its Services; ``None`` where nobody wants that,
        it is done, or not possible.
        """
        deployment = snapshot.workload(move.plan.workload.uid) if move.plan.workload else None
        if (
            not move.plan.policy.balanced(self.wait)
            or deployment is None
            or names.UNSERVED in pod.annotations
        ):
            return None
        labels = unserved.chosen(snapshot, pod, deployment)
        if isinstance(labels, reasons.Reason) or not labels:
            return None
        return unserved.Unserved(self.ctx.clock.server(), labels)

    def waits_for(
        self, move: run_pod_drain.PodDrain, pod: objects.Pod, snapshot: snapshots.Snapshot
    ) -> str:
        """What a pod waits for that has left its Services; empty if it may end, or was in none."""
        out = unserved.of(pod)
        if out is None:
            return ""
        passed = out.passed(self.ctx.clock.server())
        now = self.ctx.clock.now()
        if (found := unserved.listed(snapshot, pod)) and passed < SERVICE_WAIT_SECONDS:
            self._listed[pod.uid] = now
            return f"{found} to drop {pod.ref}"
        wait = move.plan.policy.balanced(self.wait)
        passed = min(passed, now - self._listed.get(pod.uid, float("-inf")))
        return f"{wait:g} s for load balancers to drop {pod.ref}" if passed < wait else ""


@dataclasses.dataclass
class Replacing:
    """All replacements of a drain. ``prove_locks`` proves the locks of nodes,
    ``wake`` is called for each answer.

    Where the server's own fence refuses a write, ``regain`` is called with the pod's node,
    and it is sent once more.
    """

    ctx: run_context.Context
    routing: run_dispositions.Routing
    prove_locks: run_surge_lease.ProveLocks
    wake: t.Callable[[], None]
    regain: t.Callable[[str], None]
    _known: dict[str, _Replacement] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._others = _Others(self.routing.node_drains)
        self._writes = run_background.BackgroundCalls(self.ctx, "replace", self.wake)
        self._unserving = Unserving(self.ctx, self.routing.choices.load_balancer_wait)

    def close(self) -> None:
        """Wait for requests that are under way."""
        self._writes.close()

    def predict(self, move: run_pod_drain.PodDrain) -> None:
        """Note that the move's pod would be let go and leave its Services, for check mode."""
        if mark := self._mark(move):
            decide = functools.partial(released.releasing, uid=move.pod.uid, mark=mark)
            run_reconcile.reconcile(self.ctx, move.pod.ref, decide)
        if out := self._unserving.out(move, move.pod, self.routing.live.snapshot()):
            labels = {key: value for key, value in move.pod.labels.items() if key != names.HASH}
            run_requests.submit(
                self.ctx, released.left(dataclasses.replace(move.pod, labels=labels), out)
            )

    def step(self, moves: t.Iterable[run_pod_drain.PodDrain], snapshot: snapshots.Snapshot) -> None:
        """Let go what may be let go now, and leave to the evictor what may end."""
        mine = [
            move
            for move in moves
            if move.plan.route == "replace" or move.plan.code == released.CODE
        ]
        if not mine:
            return
        every = self.routing.moves()
        leaving = frozenset(move.pod.uid for move in every if move.state in ("asked", "leaving"))
        going = collections.Counter[str]()
        for move in every:
            workload = move.plan.workload
            if workload and move.state in ("waiting", "asked") and self._let_go(move, snapshot):
                going[workload.uid] += 1
        for move in mine:
            if move.state != "waiting":
                continue
            pod = snapshot.pod(move.pod.uid)
            if pod is None or pod.deleting or self._writing(move, pod):
                continue
            if self.ctx.clock.now() < move.not_before:
                continue
            if (mark := released.mark_of(pod)) is None:
                self._begin(move, pod, snapshot, going)
            elif mark.deployment in self.routing.unreplaced and released.may_return(snapshot, mark):
                self._write(pod, functools.partial(released.undoing, uid=pod.uid))
            else:
                self._follow(move, pod, mark, snapshot, leaving)

    def _let_go(self, move: run_pod_drain.PodDrain, snapshot: snapshots.Snapshot) -> bool:
        """Whether its ReplicaSet may do without it, also where the watch does not show that yet."""
        pod = snapshot.pod(move.pod.uid)
        state = self._known.get(move.pod.uid, _Replacement())
        written = self._writes.going(move.pod.uid) or (pod is not None and state.behind(pod))
        return written or (pod is not None and names.RELEASED in pod.labels)

    def _writing(self, move: run_pod_drain.PodDrain, pod: objects.Pod) -> bool:
        """Whether a write of the pod is under way, or its watch has not shown it yet."""
        state = self._known.setdefault(pod.uid, _Replacement())
        if not self._writes.going(pod.uid):
            return state.behind(pod)
        if not self._writes.done(pod.uid):
            return True
        try:
            state.version = self._writes.answer(pod.uid)
        except run_evictor.StaleDecision:
            return True
        except errors.ClusterError as error:
            if not isinstance(error, run_reconcile.PASSING) and not run_lock_policy.by_the_fence(
                error
            ):
                # An account that may not let it go may not give it back either.
                self._give_up(move, str(error))
                return True
            move.tries += 1
            move.not_before = self.ctx.clock.now() + (
                run_evictor.again_after(error, move.tries) or 1.0
            )
            move.block(pod.ref, str(error))
        return True

    def _begin(
        self,
        move: run_pod_drain.PodDrain,
        pod: objects.Pod,
        snapshot: snapshots.Snapshot,
        going: collections.Counter[str],
    ) -> None:
        workload = snapshot.workload(move.plan.workload.uid) if move.plan.workload else None
        if workload is None or workload.uid in self.routing.unreplaced:
            # It is planned anew.
            return
        if going[workload.uid] >= released.most_at_once(workload):
            move.block(workload.ref, f"others of {workload.ref} are replaced before it")
            return
        if mark := self._mark(move):
            going[workload.uid] += 1
            self._write(pod, functools.partial(released.releasing, uid=pod.uid, mark=mark))

    def _mark(self, move: run_pod_drain.PodDrain) -> released.Mark | None:
        """What the pod will carry; ``None`` where it is not its ReplicaSet's any more."""
        pod, workload = move.pod, move.plan.workload
        record = self.routing.node_drains[pod.node].record
        if workload is None or pod.owner is None or names.HASH not in pod.labels:
            return None
        run, nonce = (record.run, record.nonce) if record else ("", "")
        return released.Mark(
            run=run,
            nonce=nonce,
            node=pod.node,
            since=self.ctx.clock.server(),
            deployment=workload.uid,
            name=workload.name,
            replica_set=pod.owner.uid,
            hash=pod.labels[names.HASH],
        )

    def _write(
        self, pod: objects.Pod, decide: t.Callable[[released.Found], api_changes.Change | None]
    ) -> None:
        """Write what is decided of the pod as it is seen; read it if it is another one by now."""
        node_drain = self.routing.node_drains[pod.node]
        first = decide(pod)
        if first is None:
            return
        lock = node_drain.record.lock if node_drain.record else ""

        def prove_lock() -> None:
            self.prove_locks((pod.node,))
            if not node_drain.open:
                raise run_evictor.StaleDecision

        def work() -> str:
            # Without patience: instead of sending an old decision, the loop decides anew.
            written = run_reconcile.reconcile(
                self.ctx,
                pod.ref,
                run_lock_policy.named(run_reconcile.at_first(first, decide), lock),
                known=None,
                prove_lock=prove_lock,
                patience=run_requests.NO_PATIENCE,
            ).object
            return str(((written or {}).get("metadata") or {}).get("resourceVersion") or "")

        self._writes.start(
            pod.uid, lambda: run_lock_policy.sent(work, lambda: self.regain(pod.node))
        )

    def _follow(
        self,
        move: run_pod_drain.PodDrain,
        pod: objects.Pod,
        mark: released.Mark,
        snapshot: snapshots.Snapshot,
        leaving: t.Collection[str],
    ) -> None:
        """Look whether others are enough by now, or never will be."""
        now = self.ctx.clock.now()
        state = self._known[pod.uid]
        if state.since is None:
            state.since = now
            move.let_go = True
            text = (
                f"let go by its ReplicaSet, so that {mark.owner(pod.namespace)} starts another pod"
            )
            move.note(self.ctx, phases.What.RELEASED, text)
        deployment = snapshot.workload(mark.deployment)
        owner = mark.owner(pod.namespace)
        spec = deployment.spec if deployment else {}
        least = max(queues.SERVING_SECONDS, spec.get("minReadySeconds") or 0)
        why, found = self._others.lack(pod, mark, snapshot, leaving)
        kept = why and not state.tried and now - state.since >= KEPT_SECONDS
        if kept and (change := released.loosening(pod, mark)):
            state.tried = True
            self._writes.start(pod.uid, functools.partial(_try, self.ctx, change, state.version))
        if why:
            state.serving = None
            waits = why
        else:
            if state.serving is None:
                state.serving = now
            if now - state.serving < least:
                waits = f"other pods of {owner} to serve for {least:g} s"
            else:
                waits = self._leave(move, pod, snapshot)
        route: drain_policy.Route = "replace" if waits else "evict"
        if (move.plan.route, move.plan.code) != (route, released.CODE):
            move.plan = dataclasses.replace(move.plan, route=route, code=released.CODE)
        if not waits:
            return
        if why and names.UNSERVED in pod.annotations and deployment and not deployment.deleting:
            # It serves until others are enough again.
            self._write(pod, functools.partial(released.returning, uid=pod.uid))
        move.block(owner, waits)
        if self._hopeless(state, found) and released.may_return(snapshot, mark):
            self._give_up(
                move, found.message if found else f"{why} for {SERVES_WITHIN_SECONDS:g} s."
            )

    def _leave(
        self, move: run_pod_drain.PodDrain, pod: objects.Pod, snapshot: snapshots.Snapshot
    ) -> str:
        """Take it out of its Services, where that is wanted;
        what it still waits for before it may end.
        """
        out = self._unserving.out(move, pod, snapshot)
        if out is None:
            return self._unserving.waits_for(move, pod, snapshot)
        self._write(pod, functools.partial(released.leaving, uid=pod.uid, out=out))
        why = "taken out of its Services, before it is told to end"
        move.note(self.ctx, phases.What.UNSERVED, why)
        return f"{pod.ref} to leave its Services"

    def _hopeless(self, state: _Replacement, found: reasons.Reason | None) -> bool:
        """Whether a replacement will not come, or not soon enough;
        what may be a moment's is waited for.
        """
        now = self.ctx.clock.now()
        code = found.code if found else ""
        if code != state.why:
            state.why = code
            state.blocked = now
        grows = self.routing.choices.node_autoscaler and code == "surge_unschedulable"
        lasts = state.blocked is not None and now - state.blocked >= run_raise.SECONDS_BY_CODE.get(
            code, 0.0
        )
        if found and lasts and not grows:
            return True
        return (
            state.serving is None
            and state.since is not None
            and now - state.since >= SERVES_WITHIN_SECONDS
        )

    def _give_up(self, move: run_pod_drain.PodDrain, why: str) -> None:
        """Let all pods of its workload leave by their own route in this drain."""
        pod, workload = move.pod, move.plan.workload
        if workload is not None and workload.uid not in self.routing.unreplaced:
            self.routing.unreplaced[workload.uid] = why
            text = f"no replacement comes to serve: {why}"
            self.ctx.tell(
                phases.What.KEPT, text, node=pod.node, namespace=pod.namespace, name=pod.name
            )


def _try(ctx: run_context.Context, change: api_changes.Change, version: str) -> str:
    """Ask why a ReplicaSet keeps a pod that was let go; gives the pod's version, as a write does.

    Raises:
        ClusterError: a policy forbids that pods have no controller. Then the ReplicaSet's own
            request is refused, and no event says so.
    """
    if refused := run_lock_policy.refusal(ctx, change, by_others=True):
        raise refused
    return version
