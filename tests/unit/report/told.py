# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results of modules as small as a report needs them; seconds count from one moment."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import text

Json = dict[str, t.Any]


def at(seconds: float) -> str:
    return str(text.rfc3339(1_000_000.0 + seconds))


def event(when: float, what: str, name: str = "p", node: str = "n1", **more: t.Any) -> Json:
    space = "shop" if name else ""
    return {"at": at(when), "node": node, "namespace": space, "name": name, "what": what, "message": what, **more}


SURGE = {"kind": "Deployment", "namespace": "shop", "name": "web"}


def of_workload(when: float, what: str) -> Json:
    return event(when, what, name="web", node="")


def watched(*samples: tuple[float, int], end: float = 10, name: str = "web", start: float | None = None) -> Json:
    told = [event(when, "note", name="") for when in (start, end) if when is not None]
    listed = [[at(when), ready] for when, ready in samples]
    return {"services": [{"namespace": "shop", "name": name, "samples": listed}], "timeline": told}
