# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Nodes without a kubelet in a drain: what is told to end there stays, so nobody waits for it.

Without a proof that the machine is off the drain gives such a node up and says what it has come to. With one
(``fenced``), and if the cluster, too, hears nothing of the kubelet, the taint ``out-of-service`` lets the pods and
volumes go; it is part of the node's record, so giving the node back takes it away.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    node_records,
    objects,
    option,
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import cordon as node_steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import standing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import dead
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    context,
    node_locks,
    observe,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import node_sites, proof

LISTEN = 12.0
"""Seconds for which a lease has to stay as it is, by our own clock: a kubelet renews it every 10 s."""
LOOK_EVERY = 2.0
"""Seconds between two looks at a node or at the attachments."""
TICK = 0.5
OVERDUE = 5.0
"""Seconds behind its grace after which a pod that does not end makes us look at its node."""
SETTLED = 2.0
STALLED = 15.0
"""Seconds without any progress on a lost node after which it is given up; the first where all was told to end."""
HOPELESS = 300.0
"""Seconds without any progress on a fenced node; the pod garbage collector comes by every 20 s."""


class Silence:
    """Notices nodes whose kubelet is gone, before the drain or in the middle of it."""

    def __init__(self, ctx: context.Context) -> None:
        self.ctx = ctx
        self._looked: dict[str, float] = {}
        self._nodes: dict[str, objects.Node] = {}
        self._progress: dict[str, tuple[t.Any, float]] = {}

    def given_up(self, site: node_sites.Site) -> str:
        """Why nothing more will happen on the node, in words; empty while something may."""
        now, left = self.ctx.clock.now(), site.left()
        if not left or any(move.state == "asked" for move in left):
            return ""
        overdue = any(
            move.left_at is not None and now - move.left_at > move.pod.grace_seconds + OVERDUE for move in left
        )
        if not overdue and site.node is not None and site.node.ready:
            return ""
        node = self._look(site, now)
        if not dead.lost(node):
            self._progress.pop(site.name, None)
            return ""
        state = tuple((move.pod.uid, move.state) for move in site.moves.values())
        before, since = self._progress.get(site.name, (None, now))
        if before != state:
            since = now
        self._progress[site.name] = state, since
        told = [move for move in left if move.state == "leaving"]
        if now - since < (SETTLED if len(told) == len(left) else STALLED):
            return ""
        names = ", ".join(str(move.pod.ref) for move in told[:5]) + (
            f" and {len(told) - 5} more" if len(told) > 5 else ""
        )
        words = [
            f"its kubelet does not answer{dead.since(t.cast(objects.Node, node))}; what is told to end there stays"
        ]
        if told:
            words.append(f"{names} {'was' if len(told) == 1 else 'were'} told to")
        words += [
            f"{move.pod.ref} was not ({(move.blocked_by or {}).get('message') or move.plan.reason})"
            for move in left
            if move.state != "leaving"
        ][:5]
        return (
            f"{'. '.join(words)}. They go when the kubelet is back. If the machine is surely off, say so: "
            f"{option.options(fenced=(site.name,))}."
        )

    def _look(self, site: node_sites.Site, now: float) -> objects.Node | None:
        if now - self._looked.get(site.name, float("-inf")) >= LOOK_EVERY:
            self._looked[site.name] = now
            found = _node(self.ctx, site.name)
            if found is not None:
                self._nodes[site.name] = found
        return self._nodes.get(site.name)


class Evacuation:
    """Lets the pods and volumes of fenced nodes go. The nodes are locked; ``fence`` is asked before each write.

    ``deadline`` is when the call ends at the latest, on the context's monotonic clock.
    """

    def __init__(
        self, ctx: context.Context, live: observe.Live, fence: t.Callable[[str], None], deadline: float
    ) -> None:
        self.ctx, self.live, self.fence, self.deadline = ctx, live, fence, deadline
        self._looked = float("-inf")
        self._attached: dict[str, set[str]] = {}
        self._said: dict[str, str] = {}

    def predict(self, sites: t.Collection[node_sites.Site]) -> None:
        """What the real run would write; a node that lives is closed as it would be."""
        for site in self._unproven(sites):
            change = _tainted(t.cast(objects.Node, site.node), site.record) if site.record else None
            if change:
                act.apply(self.ctx, change)

    def work(self, sites: t.Collection[node_sites.Site]) -> list[node_sites.Site]:
        """Evacuate the nodes; returns those that are empty. The others are closed with the reason."""
        leases = _leases(self.ctx)
        proven = self._listen(self._unproven(sites), leases)
        going = [site for site in proven if self._set(site)]
        volumes = self._volumes(going)
        progress: dict[str, tuple[t.Any, float]] = {}
        done: list[node_sites.Site] = []
        while going:
            now = self.ctx.clock.now()
            self._follow(going, now)
            self._look(going, volumes, now)
            for site in list(going):
                state = (len(site.left()), frozenset(self._attached[site.name]))
                before, since = progress.get(site.name, (None, now))
                progress[site.name] = state, (since if before == state else now)
                late = now - progress[site.name][1] > HOPELESS
                late |= now > self.deadline
                if site.open and state == (0, frozenset()):
                    done.append(site)
                elif site.open and late:
                    self._close(site, outcomes.DrainOutcome.TIMED_OUT, f"time is up; {self._words(site)}")
                if not site.open or site in done:
                    going.remove(site)
            self.live.wait(TICK)
        return done

    # -- proof --------------------------------------------------------------------------------------

    def _unproven(self, sites: t.Iterable[node_sites.Site]) -> list[node_sites.Site]:
        """Closes what lives; the others are left."""
        left = []
        for site in sites:
            why = dead.alive(t.cast(objects.Node, site.node))
            if why:
                self._refuse(site, why)
            else:
                left.append(site)
        return left

    def _listen(self, sites: list[node_sites.Site], leases: t.Mapping[str, objects.Raw]) -> list[node_sites.Site]:
        """A kubelet that lives renews its lease while we listen; its clock and ours are not compared."""
        if not sites:
            return []
        until = self.ctx.clock.now() + LISTEN
        names = ", ".join(site.name for site in sites)
        self.ctx.tell(
            phases.What.WAITING, f"listening for {LISTEN:.0f} s whether a kubelet of {names} renews its lease"
        )
        while sites and self.ctx.clock.now() < until:
            self.ctx.clock.sleep(LOOK_EVERY)
            now = _leases(self.ctx)
            for site in list(sites):
                node = _node(self.ctx, site.name)
                if node is None:
                    site.outcome, site.message = outcomes.DrainOutcome.GONE, f"Node {site.name} was deleted meanwhile."
                elif not dead.lost(node):
                    self._refuse(site, dead.alive(node))
                elif dead.beat(now.get(site.name)) != dead.beat(leases.get(site.name)):
                    self._refuse(site, "its kubelet renewed its lease just now")
                if not site.open:
                    sites.remove(site)
        return sites

    def _refuse(self, site: node_sites.Site, why: str) -> None:
        finding = dead.not_dead(site.name, why)
        site.close(outcomes.DrainOutcome.NOT_DEAD, finding.sentence, self.ctx.clock.now())
        self.ctx.tell(outcomes.DrainOutcome.NOT_DEAD, site.message, node=site.name)

    # -- the taint ----------------------------------------------------------------------------------

    def _set(self, site: node_sites.Site) -> bool:
        """Set the taint on the condition that the node is still lost; the record holds it from then on."""

        def tainted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            if not dead.lost(node):
                self._refuse(site, dead.alive(node))
                return None
            return _tainted(node, record)

        return self._write(site, tainted) and site.open

    def _lift(self, site: node_sites.Site) -> None:
        """The node is back in the middle: the taint goes, and the kubelet ends what was told to end."""

        def lifted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            return node_steps.let_go_of(node, record, dead.OUT_OF_SERVICE)[1]

        if self._write(site, lifted):
            self._close(
                site,
                outcomes.DrainOutcome.CAME_BACK,
                "its kubelet is back in the middle of the evacuation, although it was said to be fenced; "
                f"{self._words(site)}. The taint out-of-service is off again, and the kubelet ends what was told to "
                "end. Make sure that nothing ran twice, then drain it as a living node, without "
                f"{option.options(fenced=(site.name,))}",
            )

    def _write(self, site: node_sites.Site, wanted: proof.Wanted) -> bool:
        """Whether the change was made, or none was needed; else the site is closed with the reason."""
        made: api_changes.Change | None = None

        def noted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            nonlocal made
            made = wanted(node, record)
            return made

        try:
            why = proof.write_node(self.ctx, site, noted, lambda: self.fence(site.name))
        except node_locks.LostLockError as lost:
            self._close(
                site,
                outcomes.DrainOutcome.ADOPTED_BY,
                f"it was taken over ({lost.why}), and nothing more is sent for it",
            )
            return False
        except errors.ClusterError as error:
            self._close(site, outcomes.DrainOutcome.FAILED, f"{error} Run again")
            return False
        if why:
            self._close(site, why.outcome, why.message)
            return False
        if made:
            self.ctx.tell(phases.What.TAINTED, made.sentence, node=site.name)
        return True

    # -- waiting ------------------------------------------------------------------------------------

    def _volumes(self, sites: t.Iterable[node_sites.Site]) -> dict[str, set[str]]:
        """What is attached to each node for pods that go; volumes of pods that stay do not count."""
        if not (sites := list(sites)):
            return {}
        attachments = observe.lists(self.ctx.cluster, ("attachments",))["attachments"]
        snapshot = self.live.snapshot()
        found = {}
        for site in sites:
            names = {
                (move.pod.namespace, claim)
                for move in site.moves.values()
                if move.state != "skipped"
                for claim in move.pod.claims
            }
            wanted = {
                str((claim.get("spec") or {}).get("volumeName"))
                for claim in snapshot.claims
                if (claim["metadata"].get("namespace"), claim["metadata"]["name"]) in names
            }
            found[site.name] = wanted & dead.attached_to(attachments, site.name)
        return found

    def _follow(self, sites: t.Iterable[node_sites.Site], now: float) -> None:
        snapshot = self.live.snapshot()
        present = {pod.uid: pod for pod in snapshot.pods}
        for site in sites:
            for move in site.left():
                found = present.get(move.pod.uid)
                if found is None:
                    let_go, where = outcomes.PodOutcome.LET_GO, {"namespace": move.pod.namespace, "name": move.pod.name}
                    move.end("gone", let_go, now)
                    self.ctx.note(phases.What.GONE, let_go.value, node=site.name, **where)
                elif found.deleting and move.state == "waiting":
                    move.state, move.left_at = "leaving", now

    def _look(self, sites: t.Iterable[node_sites.Site], volumes: t.Mapping[str, set[str]], now: float) -> None:
        """Who came back, and what is still attached."""
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        attachments = observe.lists(self.ctx.cluster, ("attachments",))["attachments"] if any(volumes.values()) else []
        for site in sites:
            self._attached[site.name] = volumes[site.name] & dead.attached_to(attachments, site.name)
            node = _node(self.ctx, site.name)
            if node is None:
                site.outcome, site.message = outcomes.DrainOutcome.GONE, f"Node {site.name} was deleted meanwhile."
                continue
            site.node = node
            if why := standing.fallen(node, t.cast(node_records.Record, site.record)):
                self._close(site, why.outcome, why.message)
                continue
            if not dead.lost(node):
                self._lift(site)
            text = self._words(site)
            if site.open and self._said.get(site.name) != text:
                self._said[site.name] = text
                self.ctx.tell(phases.What.PROGRESS, text, node=site.name)

    def _words(self, site: node_sites.Site) -> str:
        pods = len(site.left())
        volumes = sorted(self._attached.get(site.name, ()))
        more = f" and {len(volumes) - 5} more" if len(volumes) > 5 else ""
        return f"{pods} pods left, volumes attached: {', '.join(volumes[:5]) or 'none'}{more}"

    def _close(self, site: node_sites.Site, outcome: outcomes.DrainOutcome, message: str) -> None:
        site.close(outcome, f"Node {site.name}: {message}", self.ctx.clock.now())
        self.ctx.tell(outcome, site.message, node=site.name)


def _tainted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
    return node_steps.hold_with(node, record, dead.OUT_OF_SERVICE)[1]


def _node(ctx: context.Context, name: str) -> objects.Node | None:
    try:
        return objects.Node.of(ctx.cluster.send(verbs.get(kinds.NODES, name), patience=act.PATIENCE))
    except errors.NotFound:
        return None


def vital_signs(ctx: context.Context, nodes: t.Iterable[str]) -> tuple[list[objects.Raw], list[objects.Raw]]:
    """The leases of these nodes' kubelets, and all VolumeAttachments, as far as they may be read."""
    leases: list[objects.Raw] = []
    try:
        for name in nodes:
            with contextlib.suppress(errors.NotFound):
                leases.append(ctx.cluster.send(verbs.get(kinds.LEASES, name, dead.LEASES), patience=act.PATIENCE))
        return leases, observe.lists(ctx.cluster, ("attachments",))["attachments"]
    except errors.Forbidden:
        return leases, []


def _leases(ctx: context.Context) -> dict[str, objects.Raw]:
    """The kubelets' leases by node.

    Raises:
        StopRun: they may not be read, and without them nobody knows whether a kubelet lives.
    """
    try:
        found = ctx.cluster.items(kinds.LEASES, namespace=dead.LEASES, patience=act.PATIENCE).items
    except errors.Forbidden as error:
        raise context.StopRun(
            "missing_permission",
            f"Whether a kubelet is alive is not known, because its lease may not be read: {error}",
            f"Grant the verb list on leases.coordination.k8s.io in namespace {dead.LEASES}.",
        ) from error
    return {lease["metadata"]["name"]: lease for lease in found}
