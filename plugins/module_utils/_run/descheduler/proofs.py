# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What proves that a descheduler runs the configuration that is wanted, and what says why it does not."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    check,
    places,
    rollout,
    running,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import sites

Means = t.Callable[[str], t.Any]
"""Reads a configuration's text; ``None`` where it is none."""

LAST_LINES = 30

Kind = t.Literal["configz", "log", "lease", "ready", ""]

STRENGTH: tuple[Kind, ...] = ("", "ready", "lease", "log", "configz")


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found out about the pods.

    ``kind`` is the proof of the pod that has the weakest one. ``comparison`` is ``None`` where no running
    configuration could be read; ``waiting`` says what is still missing (a leader); ``why`` why no stronger
    proof could be had.
    """

    kind: Kind
    comparison: running.Comparison | None
    waiting: str = ""
    why: str = ""

    @property
    def conflicts(self) -> tuple[str, ...] | None:
        """How what runs differs, ``None`` where it could not be read."""
        return self.comparison.conflicts if self.comparison else None


@dataclass(frozen=True, slots=True)
class Prover:
    """Proves for one configuration that is wanted."""

    site: sites.Site
    flavor: check.Flavor
    schema: schemas.Schema
    wanted: t.Mapping[str, t.Any]
    means: Means

    def prove(self, pods: t.Sequence[objects.Raw]) -> Proof:
        """Ask the pods themselves, then their logs, then the Lease."""
        waiting, kind = self._leader(pods)
        if self.flavor == "sigs" or not pods:
            return Proof(kind, None, waiting, "this descheduler tells its configuration nowhere")
        found = [self._one(pod) for pod in pods]
        told = [comparison for _word, comparison, _why in found if comparison is not None]
        why = next((why for _word, _comparison, why in found if why), "")
        conflicts = tuple(word for comparison in told for word in comparison.conflicts)
        extras = tuple(word for comparison in told for word in comparison.extras)
        overridden = tuple(dict.fromkeys(word for comparison in told for word in comparison.overridden))
        both = running.Comparison(tuple(dict.fromkeys(conflicts)), tuple(dict.fromkeys(extras)), overridden)
        if conflicts or len(told) == len(pods):
            weakest = min((word for word, comparison, _why in found if comparison is not None), key=STRENGTH.index)
            return Proof(weakest, both, waiting, why)
        return Proof(kind, None, waiting, why)

    def _one(self, pod: objects.Raw) -> tuple[Kind, running.Comparison | None, str]:
        meta, cluster = pod["metadata"], self.site.ctx.cluster
        request = verbs.port_forward(meta["namespace"], meta["name"], places.port_of(self.wanted))
        try:
            page = cluster.page(request, "/configz")
            if isinstance(page, dict) and isinstance(page.get("componentconfig"), dict):
                return "configz", running.compare(self.wanted, page["componentconfig"], self.schema), ""
            why = "/configz holds no componentconfig"
        except errors.ClusterError as error:
            why = f"/configz of {meta['name']} cannot be read: {error}"
        for container in _containers(pod):
            try:
                log = cluster.text(verbs.pod_log(meta["namespace"], meta["name"], container))
            except errors.ClusterError as error:
                why += f" Its log cannot be read either: {error}"
                continue
            config = self.means(running.logged(log))
            if isinstance(config, dict):
                return "log", running.compare(self.wanted, config, self.schema), why
        return "", None, why

    def _leader(self, pods: t.Sequence[objects.Raw]) -> tuple[str, Kind]:
        """What is missing for one of the pods to lead, and the proof that readiness and leader give."""
        election = places.election(self.wanted, self.site.workload, self.flavor)
        if not election.name:
            return "", "ready"
        try:
            lease = self.site.lease(election)
        except errors.Forbidden:
            # The result's ``proof`` tells that nobody asked for more than readiness.
            return "", "ready"
        if lease is None:
            return f"there is no lease {election.namespace}/{election.name} yet", ""
        waiting = rollout.leadership(lease, self.site.place.deployment, pods)
        return waiting, "" if waiting else "lease"


def _containers(pod: objects.Raw) -> list[str]:
    return [container["name"] for container in (pod.get("spec") or {}).get("containers") or ()]


def last_words(site: sites.Site, dead: t.Sequence[rollout.Dead]) -> str:
    """Why a new pod's container ended, in its own words: its termination message, else the end of its log."""
    for found in dead:
        if words := rollout.last_words(found.words):
            return words
    for found in dead:
        for previous in dict.fromkeys((found.previous, not found.previous)):
            request = verbs.pod_log(
                site.place.namespace, found.pod, found.container, previous=previous, tail_lines=LAST_LINES
            )
            try:
                words = rollout.last_words(site.ctx.cluster.text(request))
            except errors.ClusterError:
                # Only a better message is lost; that the container ended is told in any case.
                continue
            if words:
                return words
    return ""
