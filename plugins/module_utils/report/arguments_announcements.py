# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintain_announce_*``: who is told. URL and headers of a webhook are in no error."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values

# What it shares with the module is imported late: most playbooks announce nothing.
MOMENTS = ("planned", "started", "blocked", "ended", "failed")


def url(name: str, value: t.Any) -> str:
    """The URL of a webhook."""
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
        arguments_event,
    )

    if not isinstance(value, str) or not arguments.is_url(value.strip()):
        raise option_values.BadOption(name, "it", arguments_event.URL)
    return value.strip()


def headers(name: str, value: t.Any) -> dict[str, str]:
    """Headers, as a mapping or as JSON, which is how surveys send one."""
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments

    given = value
    if isinstance(value, str):
        try:
            given = json.loads(value)
        except ValueError:
            raise option_values.BadOption(name, "it", arguments.HEADERS) from None
    if not arguments.are_headers(given):
        raise option_values.BadOption(name, "it", arguments.HEADERS)
    return {str(key): str(each) for key, each in given.items()}


def deadline(name: str, value: t.Any) -> int:
    """Seconds, at least one."""
    seconds = int(option_values.seconds(name, value) or 0)
    if seconds < 1:
        raise option_values.BadOption(name, value, "at least 1 second")
    return seconds


def cross_checks(values: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """What is said of announcements that nobody gets."""
    if values["announce_headers"] and not values["announce_webhook"]:
        yield ("maintain_announce_headers is for a webhook. Set maintain_announce_webhook as well.")
    if values["announce_plan"] and not _asked(values):
        yield (
            "maintain_announce_plan is set, and nobody is told. "
            "Set maintain_announce_events or maintain_announce_webhook as well."
        )
    if values["announce_plan"] and "planned" not in values["announce_on"]:
        yield ("maintain_announce_plan needs planned in maintain_announce_on.")


def moments(values: t.Mapping[str, t.Any]) -> list[str]:
    """At what moments something is announced: at none if nobody is told."""
    return list(values["announce_on"]) if _asked(values) else []


def alarm(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Who is told that a drain is blocked, as ``node_drain`` takes it; nobody if it is empty."""
    targets = {"events": values["announce_events"], "webhook": webhook(values)}
    if "blocked" in values["announce_on"]:
        return {name: who for name, who in targets.items() if who}
    return {}


def webhook(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The webhook as modules take it; empty without one."""
    hook = {"url": values["announce_webhook"]}
    hook |= {key: values[f"announce_{key}"] for key in ("headers", "format", "deadline")}
    return hook if hook["url"] else {}


def _asked(values: t.Mapping[str, t.Any]) -> bool:
    return bool(values["announce_events"] or values["announce_webhook"])
