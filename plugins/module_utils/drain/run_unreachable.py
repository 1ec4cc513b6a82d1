# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Nodes without a kubelet in a drain: pods that are terminating there never end,
so nobody waits for them.

Without a proof that the machine is off the drain gives such a node up and says what became of its
pods. With one (``fenced``), and if the cluster has lost the kubelet, too, the taint
``out-of-service`` releases the pods and volumes; it is part of the node's record, so giving the
node back removes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    node_taints,
    objects,
    run_background,
    run_context,
    run_listing,
    run_requests,
    run_targeted_reads,
    run_watch_cache,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    run_node_drain,
    unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    cordon,
    ownership,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import run_pod_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_surge_lease

LISTEN_SECONDS = 12.0
"""Seconds for which a lease has to stay as it is, by our own clock:
a kubelet renews it every 10 s.
"""
LIST, LIST_EVERY_SECONDS = "nodes", 15.0
"""Seconds between two lists of nodes with overdue pods."""
LOOK_EVERY_SECONDS = 2.0
"""Seconds between two looks at a fenced node or at attachments,
and between two lists that are to confirm a loss.
"""
LOOP_PAUSE_SECONDS = 0.5
OVERDUE_SECONDS = 5.0
"""Seconds after its grace period from which a pod that has not ended makes us look at its node."""
ALL_ENDING_SECONDS = 2.0
STALLED_SECONDS = 15.0
"""Seconds without progress after which a lost node is given up: the first where all of its pods
are terminating, which only its kubelet could end, the second where evictions are still possible.
"""
NO_PROGRESS_SECONDS = 300.0
"""Seconds without progress after which a fenced node is given up. The pod garbage collector, which
deletes its pods, works every 20 s.
"""


class _UnchangedTimer:
    """Tells for how many seconds the state of each node has been the same."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[t.Any, float]] = {}

    def seconds(self, node: str, state: t.Any, now: float) -> float:
        before, since = self._seen.get(node, (None, now))
        self._seen[node] = state, since if before == state else now
        return now - self._seen[node][1]

    def forget(self, node: str) -> None:
        self._seen.pop(node, None)


@dataclasses.dataclass(frozen=True)
class _List:
    """Nodes as a list found them, which began at ``began``, when the watch had them as
    they were ``before``.
    """

    began: float = float("-inf")
    before: t.Mapping[str, objects.Node | None] = dataclasses.field(default_factory=dict)
    found: t.Mapping[str, objects.Node] = dataclasses.field(default_factory=dict)

    def newest(self, name: str, watched: objects.Node | None) -> objects.Node | None:
        """The node as listed, or as watched if the watch has brought a newer one since."""
        return self.found.get(name, watched) if self.before.get(name) is watched else watched


class KubeletWatch:
    """Notices nodes whose kubelet is gone, before the drain or in the middle of it.

    The watch shows that. But a watch may hang, so nodes with overdue pods are listed as well: every
    ``LIST_EVERY_SECONDS``, and before one of them is given up. The list is sent beside the loop;
    ``wake`` is called when it is there.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        node_drains: t.Mapping[str, run_node_drain.NodeDrain],
        wake: t.Callable[[], None],
    ) -> None:
        self.ctx = ctx
        self._node_drains = node_drains
        self._background = run_background.BackgroundCalls(ctx, "nodes", wake)
        self._list = _List()
        self._began = float("-inf")
        self._unchanged = _UnchangedTimer()

    def given_up(self, node_drain: run_node_drain.NodeDrain) -> str:
        """Why nothing more will happen on the node; empty while something may."""
        now = self.ctx.clock.now()
        left = node_drain.left()
        if not left or any(move.state == "asked" for move in left):
            return ""
        suspect = _suspect(node_drain, now)
        if suspect:
            self._look(now, LIST_EVERY_SECONDS)
        node = self._list.newest(node_drain.name, node_drain.node)
        if not suspect or not unreachable.lost(node):
            self._unchanged.forget(node_drain.name)
            return ""
        state = tuple((move.pod.uid, move.state) for move in node_drain.moves.values())
        seconds = self._unchanged.seconds(node_drain.name, state, now)
        ending = [move for move in left if move.state == "leaving"]
        if seconds < (ALL_ENDING_SECONDS if len(ending) == len(left) else STALLED_SECONDS):
            return ""
        if self._list.began < now - seconds:
            self._look(now, LOOK_EVERY_SECONDS)
            return ""
        return _given_up(t.cast(objects.Node, node), left, ending)

    def close(self) -> None:
        """Wait for a list that is under way."""
        self._background.close()

    def _look(self, now: float, every: float) -> None:
        """Take in the list that has come; begin another one if the last began so long ago."""
        if self._background.done(LIST):
            # What was known before holds until they can be listed again.
            with contextlib.suppress(errors.ClusterError):
                self._list = self._background.answer(LIST)
        if self._background.going(LIST) or now - self._began < every:
            return
        self._began = now
        before = {
            name: node_drain.node
            for name, node_drain in self._node_drains.items()
            if node_drain.open and _suspect(node_drain, now)
        }
        self._background.start(LIST, functools.partial(self._listed, now, before))

    def _listed(self, now: float, before: t.Mapping[str, objects.Node | None]) -> _List:
        found, _whole = run_targeted_reads.nodes_of(self.ctx.cluster, before)
        return _List(
            now, before, {name: objects.Node.of(found[name]) for name in before if name in found}
        )


def _suspect(node_drain: run_node_drain.NodeDrain, now: float) -> bool:
    """Whether its kubelet may be gone: it is not known to be ready, or a pod should have ended."""
    if node_drain.node is None or not node_drain.node.ready:
        return True
    return any(
        move.left_at is not None and now - move.left_at > move.pod.grace_seconds + OVERDUE_SECONDS
        for move in node_drain.left()
    )


def _given_up(
    node: objects.Node,
    left: t.Sequence[run_pod_drain.PodDrain],
    ending: t.Sequence[run_pod_drain.PodDrain],
) -> str:
    """What became of its pods, and what helps."""
    names = reasons.listed([str(move.pod.ref) for move in ending])
    words = [
        f"its kubelet has not responded{unreachable.since(node)}, so terminating pods never end"
    ]
    if ending:
        words.append(f"{names} {'is' if len(ending) == 1 else 'are'} terminating")
    for move in [move for move in left if move.state != "leaving"][:5]:
        why = (move.blocked_by or {}).get("message") or move.plan.reason
        words.append(f"{move.pod.ref} was not evicted ({why})")
    return (
        f"{'. '.join(words)}. They end when the kubelet is back. If the machine is certainly off, "
        f"set {reasons.options(fenced=(node.name,))}."
    )


class Evacuation:
    """Releases the pods and volumes of fenced nodes by the taint out-of-service. The nodes are
    locked; ``prove_locks`` is called before each write.

    ``deadline`` is when the call ends at the latest, on the context's monotonic clock.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        live: run_watch_cache.WatchCache,
        prove_locks: run_surge_lease.ProveLocks,
        deadline: float,
    ) -> None:
        self.ctx = ctx
        self.live = live
        self.prove_locks = prove_locks
        self.deadline = deadline
        self._looked = float("-inf")
        self._volumes: dict[str, set[str]] = {}
        self._attached: dict[str, set[str]] = {}

    def predict(self, node_drains: t.Collection[run_node_drain.NodeDrain]) -> None:
        """Note what the real run would write; a node that lives is closed as it would be."""
        for node_drain in _not_alive(self.ctx, node_drains):
            if node_drain.record is None:
                continue
            node = t.cast(objects.Node, node_drain.node)
            _kept, change = cordon.hold_with(node, node_drain.record, node_taints.OUT_OF_SERVICE)
            if change:
                run_requests.submit(self.ctx, change)

    def work(
        self, node_drains: t.Collection[run_node_drain.NodeDrain]
    ) -> list[run_node_drain.NodeDrain]:
        """Evacuate the nodes; returns those that are empty.
        The others are closed with the reason.
        """
        leases = _leases(self.ctx)
        going = [
            node_drain
            for node_drain in _listen(self.ctx, _not_alive(self.ctx, node_drains), leases)
            if self._set(node_drain)
        ]
        self._volumes = self._attached_to(going) if going else {}
        unchanged = _UnchangedTimer()
        done: list[run_node_drain.NodeDrain] = []
        while going:
            now = self.ctx.clock.now()
            self._follow(going, now)
            self._look(going, now)
            for node_drain in list(going):
                state = (len(node_drain.left()), frozenset(self._attached[node_drain.name]))
                seconds = unchanged.seconds(node_drain.name, state, now)
                if node_drain.open and state == (0, frozenset()):
                    done.append(node_drain)
                elif node_drain.open and (seconds > NO_PROGRESS_SECONDS or now > self.deadline):
                    why = f"timed out; {self._words(node_drain)}"
                    node_drain.close(self.ctx, outcomes.DrainOutcome.TIMED_OUT, why)
                if not node_drain.open or node_drain in done:
                    going.remove(node_drain)
            self.live.wait(LOOP_PAUSE_SECONDS)
        return done

    def _set(self, node_drain: run_node_drain.NodeDrain) -> bool:
        """Set the taint, on the condition that the kubelet is still gone; from then on the node's
        record says that the taint is ours to remove.
        """

        def tainted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            if not unreachable.lost(node):
                _refuse(self.ctx, node_drain, unreachable.alive(node))
                return None
            return cordon.hold_with(node, record, node_taints.OUT_OF_SERVICE)[1]

        return self._write(node_drain, tainted, "tainted") and node_drain.open

    def _lift(self, node_drain: run_node_drain.NodeDrain) -> None:
        """The kubelet is back in the middle: remove the taint, so that it ends the pods itself."""

        def lifted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            return cordon.let_go_of(node, record, node_taints.OUT_OF_SERVICE)[1]

        if self._write(node_drain, lifted, "untainted"):
            node_drain.close(
                self.ctx,
                outcomes.DrainOutcome.CAME_BACK,
                "its kubelet came back during the evacuation, although the machine was "
                f"declared fenced; {self._words(node_drain)}. The taint out-of-service was "
                "removed, so the kubelet ends its terminating pods. Make sure that nothing ran "
                "twice, then drain the node as a living one, without "
                f"{reasons.options(fenced=(node_drain.name,))}",
            )

    def _write(
        self, node_drain: run_node_drain.NodeDrain, wanted: run_node_drain.ChangeOfNode, done: str
    ) -> bool:
        """Whether the change was made, or none was needed;
        else the node is closed with the reason.
        """
        why, made = node_drain.write(self.ctx, wanted, self.prove_locks)
        if why:
            node_drain.close(self.ctx, why.outcome, why.message)
        elif made:
            self.ctx.tell(
                phases.What.TAINTED,
                f"{done} {node_taints.OUT_OF_SERVICE['key']}",
                node=node_drain.name,
            )
        return why is None

    def _attached_to(
        self, node_drains: t.Iterable[run_node_drain.NodeDrain]
    ) -> dict[str, set[str]]:
        """The volumes attached to each node for pods that have to go;
        those of pods that stay do not count.
        """
        attachments = run_listing.lists(self.ctx.cluster, ("attachments",))["attachments"]
        view = dataclasses.replace(self.live.snapshot(), attachments=tuple(attachments))
        found: dict[str, set[str]] = {}
        for node_drain in node_drains:
            volumes = found[node_drain.name] = set[str]()
            for move in node_drain.moves.values():
                if move.state != "skipped":
                    volumes.update(unreachable.attached(view, move.pod))
        return found

    def _follow(self, node_drains: t.Iterable[run_node_drain.NodeDrain], now: float) -> None:
        snapshot = self.live.snapshot()
        present = {pod.uid: pod for pod in snapshot.pods}
        for node_drain in node_drains:
            for move in node_drain.left():
                found = present.get(move.pod.uid)
                if found is None:
                    move.end("gone", outcomes.PodOutcome.LET_GO, now)
                    move.note(self.ctx, phases.What.GONE, outcomes.PodOutcome.LET_GO.value)
                elif found.deleting and move.state == "waiting":
                    move.state = "leaving"
                    move.left_at = now

    def _look(self, node_drains: t.Iterable[run_node_drain.NodeDrain], now: float) -> None:
        """Now and then: read what is still attached, and whether a kubelet came back."""
        if now - self._looked < LOOK_EVERY_SECONDS:
            return
        self._looked = now
        attachments: t.Sequence[objects.Raw] = []
        if any(self._volumes.values()):
            attachments = run_listing.lists(self.ctx.cluster, ("attachments",))["attachments"]
        for node_drain in node_drains:
            attached = unreachable.attached_to(attachments, node_drain.name)
            self._attached[node_drain.name] = self._volumes[node_drain.name] & attached
            node_drain.node = _node(self.ctx, node_drain.name)
            if why := ownership.node_lost(node_drain.node, node_drain.taken):
                node_drain.close(self.ctx, why.outcome, why.message)
                continue
            if not unreachable.lost(node_drain.node):
                self._lift(node_drain)
            if node_drain.open:
                self.ctx.tell_changed(
                    phases.What.PROGRESS, self._words(node_drain), node=node_drain.name
                )

    def _words(self, node_drain: run_node_drain.NodeDrain) -> str:
        volumes = sorted(self._attached.get(node_drain.name, ()))
        return (
            f"{len(node_drain.left())} pods left, volumes attached: "
            f"{reasons.listed(volumes) or 'none'}"
        )


def _not_alive(
    ctx: run_context.Context, node_drains: t.Collection[run_node_drain.NodeDrain]
) -> list[run_node_drain.NodeDrain]:
    """Those whose kubelet is gone as far as its node's conditions say; the others are closed."""
    for node_drain in node_drains:
        if why := unreachable.alive(t.cast(objects.Node, node_drain.node)):
            _refuse(ctx, node_drain, why)
    return [node_drain for node_drain in node_drains if node_drain.open]


def _listen(
    ctx: run_context.Context,
    node_drains: list[run_node_drain.NodeDrain],
    leases: t.Mapping[str, objects.Raw],
) -> list[run_node_drain.NodeDrain]:
    """Those whose kubelet does not renew its lease for ``LISTEN_SECONDS``; the others are closed.

    The lease is watched, and its time not compared with ours: the clocks may differ.
    """
    if not node_drains:
        return []
    until = ctx.clock.now() + LISTEN_SECONDS
    names = ", ".join(node_drain.name for node_drain in node_drains)
    ctx.tell(
        phases.What.WAITING,
        f"waiting {LISTEN_SECONDS:.0f} s for a kubelet of {names} to renew its lease",
    )
    while node_drains and ctx.clock.now() < until:
        ctx.clock.sleep(LOOK_EVERY_SECONDS)
        now = _leases(ctx)
        for node_drain in node_drains:
            node = _node(ctx, node_drain.name)
            if node is None:
                node_drain.close(ctx, outcomes.DrainOutcome.GONE, "it was deleted meanwhile")
            elif not unreachable.lost(node):
                _refuse(ctx, node_drain, unreachable.alive(node))
            elif unreachable.beat(now.get(node_drain.name)) != unreachable.beat(
                leases.get(node_drain.name)
            ):
                _refuse(ctx, node_drain, "its kubelet renewed its lease just now")
        node_drains = [node_drain for node_drain in node_drains if node_drain.open]
    return node_drains


def _refuse(ctx: run_context.Context, node_drain: run_node_drain.NodeDrain, why: str) -> None:
    finding = unreachable.not_dead(node_drain.name, why)
    node_drain.outcome = outcomes.DrainOutcome.NOT_DEAD
    node_drain.message = finding.sentence
    node_drain.end_moves(ctx.clock.now())
    ctx.tell(outcomes.DrainOutcome.NOT_DEAD, node_drain.message, node=node_drain.name)


def _node(ctx: run_context.Context, name: str) -> objects.Node | None:
    try:
        return objects.Node.of(ctx.cluster.send(verbs.get(kinds.NODES, name)))
    except errors.NotFound:
        return None


def _leases(ctx: run_context.Context) -> dict[str, objects.Raw]:
    """The kubelets' leases by node; CallAborted if they may not be read:
    then nobody knows whether a kubelet lives.
    """
    try:
        found = ctx.cluster.items(kinds.LEASES, namespace=unreachable.LEASES).items
    except errors.Forbidden as error:
        raise run_context.CallAborted(
            "missing_permission",
            f"Whether a kubelet is alive is not known, because its lease may not be read: {error}",
            f"Grant the verb list on leases.coordination.k8s.io in namespace {unreachable.LEASES}.",
        ) from error
    return {lease["metadata"]["name"]: lease for lease in found}
