# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The journal: a descheduler's previous state, stored in the cluster before the first write.

A ConfigMap in our own namespace, ``descheduler-<UID of the workload>``. With it, a call that was killed at any point
is finished or rolled back by the next one. It is deleted once the new configuration is verified. While evictions are
paused it stays, and holds what to restore.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import places
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, objects

PREFIX = "descheduler-"
LABEL = f"{names.PREFIX}/descheduler"
_CONTENT = "journal"


class BadJournalError(ValueError):
    """The journal cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The previous state: all that is needed to restore it.

    ``config`` is the text under the key, ``None`` if there was none; ``had_map`` and ``had_data``: whether there was a
    ConfigMap, and data in it. ``marks`` are our annotations of the pod template, ``bare``: it had no annotations at
    all. ``replicas`` is the count before a restart by scaling, ``suspended`` the CronJob's own setting. ``paused`` is
    how evictions were paused: ``dry_run``, ``scale`` or ``suspend``. ``ours`` are the digests of the configurations
    that have been rolled out since without being verified.
    """

    flavor: str
    place: places.Place
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
    by: str = ""
    since: str = ""

    @property
    def name(self) -> str:
        return PREFIX + self.uid

    @property
    def said(self) -> str:
        """What the journal means, and what to do."""
        who = f"{self.kind} {self.place.namespace}/{self.place.deployment}"
        if self.paused:
            return f"evictions by {who} are paused; resume them with descheduler_config, state: resumed"
        return f"an unfinished rollout to {who}; make the same call again to finish it"

    def to_config_map(self) -> dict[str, t.Any]:
        """The object that stores it."""
        labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, LABEL: "paused" if self.paused else "rollout"}
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
            kept = json.loads((raw.get("data") or {})[_CONTENT])
            if kept.pop("v") != 1:
                raise ValueError
            return cls(**{**kept, "place": places.Place(**kept["place"]), "ours": tuple(kept["ours"])})
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadJournalError(
                f"This version cannot read the descheduler's state in ConfigMap {names.NAMESPACE}/{name}. "
                "Check the descheduler, then delete that ConfigMap."
            ) from None
