# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The journal: a descheduler's previous state, stored in the cluster before the first write.

A ConfigMap in our own namespace, ``descheduler-<UID of the workload>``. With it, a call that was
killed at any point is finished or rolled back by the next one. It is deleted once the new
configuration is verified. While evictions are paused it stays, and holds what to resume with, also
while other configurations are rolled out.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from dataclasses import asdict, dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
)

LABEL = f"{names.PREFIX}/descheduler"
_CONTENT = "journal"


class BadJournalError(ValueError):
    """The journal cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The previous state: all that is needed to restore it.

    ``config`` is the text under the key, ``None`` if there was none; ``had_map`` and ``had_data``:
    whether there was a ConfigMap, and data in it. ``marks`` are our annotations of the pod
    template, ``bare``: it had no annotations at all. ``replicas`` is the count before a restart or
    a pause by scaling, ``suspended`` the CronJob's own setting. ``ours`` are the digests of the
    configurations that have been rolled out since without being verified; ``settled`` says that the
    last one was, so that there is nothing to roll back.

    ``paused`` is how evictions were paused: ``dry_run``, ``scale`` or ``suspend``. ``resumes`` is
    the text to resume with, ``None`` as long as the pause by ``dry_run`` itself is rolled out;
    then it is ``config``.
    """

    flavor: str
    place: installation.Location
    kind: str
    uid: str
    config: str | None
    had_map: bool
    had_data: bool
    marks: t.Mapping[str, str | None]
    bare: bool
    replicas: int | None = None
    suspended: bool | None = None
    paused: str = ""
    ours: tuple[str, ...] = ()
    settled: bool = False
    resumes: str | None = None
    by: str = ""
    since: str = ""

    @property
    def name(self) -> str:
        return names.DESCHEDULER_PREFIX + self.uid

    @property
    def stays_paused(self) -> bool:
        """Whether a rollback leaves the pause in place: it was there before the rollout."""
        return bool(self.paused) and (self.paused != "dry_run" or self.resumes is not None)

    @property
    def without_pause(self) -> str | None:
        """The text to resume with."""
        return self.config if self.resumes is None else self.resumes

    def after(self, kept: Journal | None, *, foreign: bool) -> Journal:
        """This state as the one before a rollout, if ``kept`` was stored at its start.

        An unfinished rollout's previous state is kept, unless the configuration is ``foreign`` by
        now. A pause is kept in any case.
        """
        if kept is None:
            return self
        if not kept.settled and not foreign:
            return replace(kept, ours=tuple(dict.fromkeys((*kept.ours, *self.ours))))
        replicas = kept.replicas if kept.paused == "scale" or not kept.settled else None
        return replace(
            self,
            replicas=replicas,
            paused=kept.paused,
            suspended=kept.suspended,
            resumes=kept.resumes,
        )

    def ended(self, resumes: str | None) -> Journal | None:
        """What is left of it once the rollout has ended: the pause."""
        return replace(self, settled=True, ours=(), resumes=resumes) if self.paused else None

    @property
    def sentence(self) -> str:
        """What the journal means, and what to do."""
        who = f"{self.kind} {self.place.namespace}/{self.place.deployment}"
        if self.stays_paused:
            return (
                f"evictions by {who} are paused; resume them with "
                "descheduler_config, state: resumed"
            )
        return f"an unfinished rollout to {who}; make the same call again to finish it"

    def to_config_map(self) -> dict[str, t.Any]:
        """The object that stores it."""
        labels = {
            names.MANAGED_BY_LABEL: names.MANAGED_BY,
            LABEL: "paused" if self.paused else "rollout",
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": names.NAMESPACE, "labels": labels},
            "data": {_CONTENT: json.dumps({"v": 1, **asdict(self)}, sort_keys=True)},
        }

    @classmethod
    def of(cls, raw: objects.Raw) -> Journal:
        """From the object that stores it.

        Raises:
            BadJournalError: this version cannot read it.
        """
        name = (raw.get("metadata") or {}).get("name")
        try:
            kept = decoding.json_of((raw.get("data") or {})[_CONTENT])
            if kept.pop("v") != 1:
                raise ValueError
            return decoding.shaped(cls, kept)
        except decoding.MISREAD:
            raise BadJournalError(
                "This version cannot read the descheduler's state in ConfigMap "
                f"{names.NAMESPACE}/{name}. Check the descheduler, then delete that ConfigMap."
            ) from None


def unsettled(journal: Journal | None) -> Journal | None:
    """The journal of an earlier call that was not finished."""
    return None if journal is None or journal.settled else journal


def readable(raws: t.Iterable[objects.Raw]) -> t.Iterator[Journal]:
    """The journals among our ConfigMaps; ``descheduler_config`` reports unreadable ones."""
    for raw in raws:
        if LABEL in (raw["metadata"].get("labels") or {}):
            with contextlib.suppress(BadJournalError):
                yield Journal.of(raw)
