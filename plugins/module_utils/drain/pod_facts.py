# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a routing rule sees: the caller's choices, one pod, and the questions about it."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    gangs,
    node_taints,
    objects,
    operators,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    object_limiter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    pod_rules,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    node_records,
    surge_records,
)


@dataclass(frozen=True)
class RoutingContext:
    """What all pods share; ``known`` and ``unreplaced`` as in ``dispositions.routes``."""

    snapshot: snapshots.Snapshot
    choices: drain_policy.DrainPolicy
    leaving: frozenset[str]
    now: str
    selector: objects.Raw
    surges: t.Mapping[str, surge_records.Surge]
    unreadable: t.Mapping[str, surge_records.BadSurgeError] = field(default_factory=dict)
    known: frozenset[str] | None = None
    unreplaced: t.Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def unguarded(self) -> snapshots.Snapshot:
        """The snapshot without our own guards, which are removed before they hold a pod."""
        budgets = tuple(
            b for b in self.snapshot.budgets if not guard_budgets.is_one(self.snapshot, b)
        )
        return self.snapshot.with_fields({"budgets": budgets})

    @functools.cached_property
    def with_operators(self) -> tuple[objects.Raw, ...]:
        """The caller's selectors of pods with operators."""
        return operators.selectors_of(self.choices.reactive_budgets)

    def place_in_line(self, scope: str, key: str, pod: objects.Pod) -> int:
        """How many leaving pods of the same controller (``workload``) or ``namespace``
        come before this one.
        """
        return self._lines[(scope, key)].index(pod.uid)

    @functools.cached_property
    def gang_by_pod(self) -> t.Mapping[str, gangs.Gang]:
        """The pods that only work together, by the UID of each of them."""
        return gangs.found(self.snapshot.pods, self.snapshot.pod_groups)

    @functools.cached_property
    def evictions(self) -> object_limiter.Taken:
        """When evictions by PodMigrationJobs took tokens of the object limiters,
        as far as pods tell of them.
        """
        return object_limiter.by_key(object_limiter.evictions((), self.snapshot.pods))

    @functools.cached_property
    def _lines(self) -> t.Mapping[tuple[str, str], t.Sequence[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for pod in self.snapshot.pods_on(self.leaving):
            found.setdefault(("workload", pod.owner.uid if pod.owner else ""), []).append(pod.uid)
            found.setdefault(("namespace", pod.namespace), []).append(pod.uid)
        return found

    def keeps_out(self, node: str) -> tuple[tuple[objects.Raw, ...], bool]:
        """The taints that keep pods off the node in its maintenance,
        and whether it has been emptied already.
        """
        record = self._record_of(node)
        if record is None:
            return (node_taints.CORDON, node_taints.OURS), False
        return (node_taints.CORDON, *record.added), record.step != "cordoned"

    def run_of(self, node: str) -> str | None:
        """The id of the run that has the node, ``None`` if none has, or if that cannot be read."""
        record = self._record_of(node)
        return record.run if record else None

    def _record_of(self, node: str) -> node_records.Record | None:
        found = self.snapshot.nodes.get(node)
        try:
            return node_records.record_of(found) if found else None
        except node_records.BadRecordError:
            return None


@dataclass(frozen=True)
class PodFacts:
    """One pod, and the questions that the rules ask about it."""

    context: RoutingContext
    pod: objects.Pod

    @property
    def choices(self) -> drain_policy.DrainPolicy:
        return self.context.choices

    @functools.cached_property
    def workload(self) -> objects.Workload | None:
        return self.context.snapshot.workload_of(self.pod)

    @functools.cached_property
    def surge(self) -> surge_records.Surge | None:
        """The surge prepared for this pod, or that this run could not prepare because
        somebody reset the replicas.
        """
        found = self.context.surges.get(self.workload.uid) if self.workload else None
        if found is None or self.pod.uid != found.pod_uid:
            return None
        if found.stage != "reverted" or found.run == self.context.run_of(self.pod.node):
            return found
        return None

    @property
    def bad_surge(self) -> surge_records.BadSurgeError | None:
        return self.context.unreadable.get(self.workload.uid) if self.workload else None

    @property
    def replicas(self) -> int:
        """The workload's replicas without any surge; 0 if the workload is unknown."""
        if self.workload is None:
            return 0
        surge = self.context.surges.get(self.workload.uid)
        return surge.prior_replicas if surge else self.workload.replicas

    @functools.cached_property
    def budgets(self) -> tuple[objects.Budget, ...]:
        """The foreign budgets over the pod."""
        return self.context.unguarded.budgets_of(self.pod)

    @functools.cached_property
    def policy(self) -> pod_rules.PodPolicy:
        """How a rule, or an annotation of the workload, wants the pod to be moved."""
        annotations = self.workload.annotations if self.workload else self.pod.annotations
        return pod_rules.policy_of(self.choices.rules, self.pod, self.owner, annotations)

    @property
    def method(self) -> str:
        """One of ``pod_rules.METHODS``: as its owner wants, or the caller."""
        return self.policy.method or self.choices.method

    @property
    def load_balancer_wait(self) -> float:
        """Seconds for which it is out of its Services before it ends, if it is replaced first."""
        return self.policy.balanced(self.choices.load_balancer_wait)

    @functools.cached_property
    def operator(self) -> operators.Operator | None:
        """Whose operator decides by its budget when the pod may go."""
        if len(self.budgets) != 1 or self.choices.disable_eviction:
            return None
        return operators.operator_of(
            self.context.snapshot, self.pod, self.budgets[0], self.context.with_operators
        )

    @property
    def asked(self) -> tuple[objects.Ref, ...]:
        """The budgets that the API server checks: not for finished,
        pending and terminating pods.
        """
        free = self.pod.finished or self.pod.deleting or self.pod.phase == "Pending"
        if free or self.choices.disable_eviction:
            return ()
        return tuple(b.ref for b in self.budgets or self.context.snapshot.budgets_of(self.pod))

    @property
    def consent(self) -> bool:
        """Whether this run or an annotation of the workload (or of a pod without one)
        allows an interruption.
        """
        return self.choices.allow_interruption or (self.workload or self.pod).interruptible

    @functools.cached_property
    def owner(self) -> objects.Ref | None:
        """The workload, or the pod's own controller if the workload is unknown."""
        return self.workload.ref if self.workload else self.pod.owner

    def plan(
        self, route: drain_policy.Route, code: str, reason: str, remedy: str = ""
    ) -> drain_policy.PodPlan:
        """The pod's plan, with its budgets where they are checked."""
        asked = self.asked if route in ("evict", "refuse") else ()
        return drain_policy.PodPlan(
            self.pod, route, code, reason, self.owner, asked, remedy, policy=self.policy
        )
