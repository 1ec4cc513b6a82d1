# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a descheduler was before we touched it, kept in the cluster before the first write.

A ConfigMap in our own namespace, ``descheduler-<UID of the workload>``: with it a call that was killed anywhere is
finished by the next one, or taken back, byte for byte. It goes when the new configuration is proven to run. While
evictions are paused it stays, and tells what to give back.
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
    """The state before: all that is needed to restore it.

    ``config`` is the text under the key, ``None`` where there was none; ``had_map`` and ``had_data`` say whether
    there was a ConfigMap, and data in it. ``marks`` are our annotations of the pod template as they were,
    ``bare`` that there were no annotations at all. ``replicas`` is the count before a restart by scaling,
    ``suspended`` that of a CronJob. ``paused`` is how evictions were paused: ``dry_run``, ``scale`` or ``suspend``.
    ``ours`` are the digests of the configurations that were being rolled out since, none of them proven.
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
        """What it means that this is there, and what to do."""
        who = f"{self.kind} {self.place.namespace}/{self.place.deployment}"
        if self.paused:
            return f"evictions by {who} are paused; descheduler_config with state resumed gives them back"
        return f"a rollout to {who} that has not ended; the same call again finishes it"

    def to_config_map(self) -> dict[str, t.Any]:
        """The object that keeps it."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name,
                "namespace": names.NAMESPACE,
                "labels": {
                    names.MANAGED_BY_LABEL: names.MANAGED_BY,
                    LABEL: "paused" if self.paused else "rollout",
                },
            },
            "data": {_CONTENT: json.dumps({"v": 1, **asdict(self)}, sort_keys=True)},
        }

    @classmethod
    def of(cls, raw: objects.Raw) -> Journal:
        """From the object that keeps it.

        Raises:
            BadJournalError: it is not what this version writes.
        """
        name = (raw.get("metadata") or {}).get("name")
        try:
            kept = json.loads((raw.get("data") or {})[_CONTENT])
            if kept.pop("v") != 1:
                raise ValueError
            return cls(**{**kept, "place": places.Place(**kept["place"]), "ours": tuple(kept["ours"])})
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadJournalError(
                f"ConfigMap {names.NAMESPACE}/{name} keeps no state of a descheduler that this version can read. "
                "Look at the descheduler, then delete that ConfigMap."
            ) from None
