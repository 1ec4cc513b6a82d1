# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_event``."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    details,
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
    hook_definitions as model,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    announcement,
    read,
    run_announcements,
)

URL = "a URL such as https://chat.example.com/hooks/maintenance"


def _prepared(params: specs.Params) -> specs.Params:
    for name in ("start", "end"):
        if params[name] and read.instant(params[name]) is None:
            raise option_values.BadOption(
                name, params[name], "a timestamp such as 2026-11-21T05:30:00Z"
            )
        params[name] = read.instant(params[name])
    return {
        **params,
        "results": tuple(map(details.whole, params["results"] or ())),
        "errors": tuple(params["errors"] or ()),
        "webhook": _webhook(params["webhook"]) if params["webhook"] else None,
        "send": arguments.send,
    }


def alarm(given: t.Mapping[str, t.Any]) -> t.Callable[..., t.Sequence[str]]:
    """Tells those who are named why a drain does not move on; raises BadOption."""
    webhook = _webhook(given["webhook"]) if given.get("webhook") else None
    options = run_announcements.EventOptions(
        "blocked", arguments.send, events=bool(given.get("events")), webhook=webhook
    )
    return functools.partial(run_announcements.alarm, options)


def _webhook(given: t.Mapping[str, t.Any]) -> run_announcements.Webhook:
    """Raises BadOption, with neither the URL nor a header in the message."""
    headers = given.get("headers") or {}
    if not arguments.is_url(given["url"]):
        raise option_values.BadOption("webhook.url", "it", URL)
    if not arguments.are_headers(headers):
        raise option_values.BadOption("webhook.headers", "it", arguments.HEADERS)
    deadline = option_values.seconds("webhook.deadline", given.get("deadline"))
    if deadline == 0:
        raise option_values.BadOption("webhook.deadline", given["deadline"], "more than 0 seconds")
    pairs = tuple((str(key), str(value)) for key, value in headers.items())
    http = model.Http(given["url"], "POST", pairs, run_announcements.STATUS, secret_path=True)
    return run_announcements.Webhook(
        http, given.get("format") or "json", 30.0 if deadline is None else deadline
    )


SPEC = specs.ClusterModuleSpec(
    name="maintenance_event",
    options={
        "moment": {"type": "str", "choices": list(announcement.OF_CALLS), "required": True},
        "results": {"type": "list", "elements": "dict"},
        "run": {"type": "str"},
        "resumed": {"type": "bool", "default": False},
        "reason": {"type": "str"},
        "errors": {"type": "list", "elements": "str"},
        "start": {"type": "str"},
        "end": {"type": "str"},
        "duration": {"type": "str"},
        "events": {"type": "bool", "default": False},
        "webhook": {"type": "dict", "options": specs.WEBHOOK},
    },
    durations=("duration",),
    prepare=_prepared,
    # The URL and the headers are secrets.
    unshown=("results", "webhook"),
    documents=("announcement",),
    engine=specs.engine(run_announcements.announce, run_announcements.EventOptions),
)
