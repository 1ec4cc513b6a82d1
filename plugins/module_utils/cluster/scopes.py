# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a call about a few nodes of a large cluster reads of the rest.

Of the pods: those on its nodes, and those that decide whether they may leave, which are the pods of
their workloads and of their budgets, found by one label of the selector each. Of what belongs to a
namespace: that of the namespaces of the pods that may have to leave. A workload that is not of
Kubernetes' own plain kinds, or a selector without a label that has to be equal,
makes it all pods of the namespace.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects

FEW, SPARSE = 16, 10
"""Pods of at most ``FEW`` nodes, and of at most one node in ``SPARSE``, are asked for node by node.

Of more nodes all pods of the cluster are read at once: that takes fewer requests,
which is what counts then.
"""
PAGE_OF_NODES = 100
"""Nodes of a cluster of which a drain reads only what its own nodes need;
a smaller one fits in a few pages.
"""
LONGEST = 4000
"""Characters of one label selector at most: some proxies refuse long addresses."""
SPACED = frozenset(
    {
        "budgets",
        "deployments",
        "replica_sets",
        "stateful_sets",
        "rollouts",
        "clone_sets",
        "autoscalers",
        "slices",
        "pod_groups",
        "eviction_requests",
        "virtual_machines",
        "selecting_services",
        "network_policies",
        "replication_controllers",
        "kruise_daemon_sets",
        "selecting_jobs",
    }
)
"""The kinds that are read namespace by namespace."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Objects that one list asks for and one watch follows: one of this name, those of a node or of
    namespaces, or with one of a label's values.

    ``pairs`` are namespaces and values of the label ``key``.
    Without any of these it is all objects of the kind.
    """

    node: str = ""
    namespaces: tuple[str, ...] = ()
    key: str = ""
    pairs: frozenset[tuple[str, str]] = frozenset()
    name: str = ""

    @property
    def fields(self) -> str:
        """The field selector."""
        if self.name:
            return f"metadata.name={self.name}"
        return f"spec.nodeName={self.node}" if self.node else ""

    @property
    def labels(self) -> str:
        """The label selector; it also matches pods of other namespaces,
        which ``takes`` leaves out.
        """
        if not self.key:
            return ""
        values = sorted({value for _space, value in self.pairs})
        return f"{self.key} in ({','.join(values)})"

    @property
    def words(self) -> str:
        """Which objects these are, in words after the kind."""
        spaces = "".join(self.namespaces)
        if len(self.namespaces) > 1:
            spaces = f"{len(self.namespaces)} namespaces"
        return self.name or self.node or spaces or (self.key and f"label {self.key}")

    def covers(self, pod: objects.Pod) -> bool:
        if self.node:
            return pod.node == self.node
        return (
            pod.namespace in self.namespaces
            or (pod.namespace, pod.labels.get(self.key, "")) in self.pairs
        )


ALL = Slice()
RelatedPods = t.Mapping[str, frozenset[tuple[str, str]]]
"""Pods to know of: by label, namespaces and values; under the empty text whole namespaces,
whose values are empty.
"""


@dataclass
class ReadScope:
    """What is asked for so far: ``pods`` in parts, of which the first that covers a pod has it; and
    of what else is read namespace by namespace the ``namespaces``.
    """

    nodes: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    pods: list[Slice] = field(default_factory=list)
    _beside: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pods = [Slice(node=node) for node in self.nodes]

    def parts(self, name: str) -> list[Slice]:
        if name == "pods":
            return list(self.pods)
        if name == "nodes":
            return [Slice(name=node) for node in self.nodes]
        if name in SPACED:
            return [Slice(namespaces=self.namespaces)] if self.namespaces else []
        return [ALL]

    def enter(self, namespaces: t.Iterable[str]) -> tuple[str, ...]:
        """Take in namespaces; returns those that are new."""
        new = tuple(sorted(set(namespaces).difference(self.namespaces)))
        self.namespaces += new
        return new

    def widen(self, related_pods: RelatedPods) -> list[Slice]:
        """Take in pods beside those of the nodes; returns the parts that are new."""
        new: list[Slice] = []
        whole = self._beside.setdefault("", set())
        for key, pairs in sorted(related_pods.items()):
            known = self._beside.setdefault(key, set())
            fresh = sorted(pair for pair in pairs - known if (pair[0], "") not in whole)
            known.update(fresh)
            if key:
                new += [Slice(key=key, pairs=some) for some in _chunks(key, fresh)]
            else:
                new += [Slice(namespaces=(space,)) for space, _value in fresh]
        self.pods += new
        return new

    def takes(self, part: Slice, pod: objects.Pod) -> bool:
        """Whether the pod is known by this part, and not by an earlier one."""
        return next((one for one in self.pods if one.covers(pod)), None) is part


def _chunks(key: str, pairs: t.Iterable[tuple[str, str]]) -> t.Iterator[frozenset[tuple[str, str]]]:
    some: list[tuple[str, str]] = []
    length = len(key)
    for pair in pairs:
        if some and length + len(pair[1]) > LONGEST:
            yield frozenset(some)
            some = []
            length = len(key)
        some.append(pair)
        length += len(pair[1]) + 1
    if some:
        yield frozenset(some)


def apart(nodes: t.Iterable[str], among: int) -> ReadScope | None:
    """The scope of a call about the pods of these nodes, ``among`` so many of the cluster;
    ``None``: read it whole.
    """
    wanted = tuple(dict.fromkeys(nodes))
    return ReadScope(wanted) if 0 < len(wanted) <= min(FEW, among // SPARSE) else None


def narrow(nodes: t.Iterable[str], among: int) -> ReadScope | None:
    """The scope of a call that also asks what decides whether the pods of these nodes may leave."""
    return apart(nodes, among) if among >= PAGE_OF_NODES else None
