# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users say about announcements: bad input is refused, and nothing secret is shown."""

from __future__ import annotations

import json
import typing as t
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks.summary_lines import announced
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    announcement,
    arguments_announcements,
    arguments_event,
)

HOOK = "https://chat.example/hooks/s3cret"
MONDAY_NOON = 1_700_481_600.0
"""2023-11-20T12:00:00Z."""


def given(**variables: Any) -> dict[str, Any]:
    named = {f"maintain_announce_{name}": value for name, value in variables.items()}
    return inputs.read({"maintain_nodes": "worker-1", **named}, "maintain")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"webhook": "ftp://chat.example/s3cret"},
            "maintain_announce_webhook: 'it' cannot be used. Expected: a URL such",
        ),
        ({"webhook": "chat.example/s3cret"}, "maintain_announce_webhook: 'it' cannot be used"),
        ({"webhook": ["s3cret"]}, "maintain_announce_webhook: 'it' cannot be used"),
        ({"webhook": HOOK, "headers": "s3cret"}, "maintain_announce_headers: 'it' cannot be used"),
        ({"webhook": HOOK, "headers": {"X y": "s3cret"}}, "maintain_announce_headers: 'it' cannot be used"),
        ({"webhook": HOOK, "headers": {"X-A": "s3cret\nX-B: c"}}, "maintain_announce_headers: 'it' cannot be used"),
        (
            {"webhook": HOOK, "format": "teams"},
            "maintain_announce_format: 'teams' cannot be used. Expected: one of json",
        ),
        ({"webhook": HOOK, "deadline": "0"}, "maintain_announce_deadline: '0' cannot be used. Expected: at least 1"),
        ({"webhook": HOOK, "on": "begin,ended"}, "Expected: some of planned, started, blocked, ended, failed"),
        (
            {"webhook": HOOK, "on": "ended", "plan": True},
            "maintain_announce_plan needs planned in maintain_announce_on",
        ),
        ({"headers": {"A": "s3cret"}}, "Set maintain_announce_webhook as well"),
        ({"plan": True}, "and nobody is told"),
    ],
)
def test_bad_input_is_refused_and_shows_nothing_secret(variables: dict[str, Any], said: str) -> None:
    errors = " ".join(given(**variables)["errors"])
    assert said in errors
    assert "s3cret" not in errors


def test_the_input_has_the_moments_at_which_somebody_is_told() -> None:
    assert given()["announce_on"] == []
    assert given(events=True)["announce_on"] == list(arguments_announcements.MOMENTS)
    assert given(webhook=HOOK, on="ended failed")["announce_on"] == ["ended", "failed"]
    assert t.get_args(announcement.Moment) == arguments_announcements.MOMENTS


def test_a_survey_sends_headers_as_json() -> None:
    read = given(webhook=f" {HOOK} ", headers='{"Authorization": "Bearer x"}', deadline="2m")
    assert read["errors"] == []
    hook = announced({}, moment="planned", wanted=read, now=MONDAY_NOON)["webhook"]
    assert hook == {"url": HOOK, "headers": {"Authorization": "Bearer x"}, "format": "json", "deadline": 120}


def times(seconds: list[float], plan: dict[str, Any], **variables: Any) -> tuple[str, str]:
    wanted = inputs.read({"maintain_nodes": "a", **variables}, "maintain")
    assert wanted["errors"] == []
    found = announced({"plan": plan}, moment="planned", wanted=wanted, now=str(MONDAY_NOON), seconds=seconds)
    return found["start"][11:19], found["end"][11:19]


def test_the_duration_is_that_of_the_work_and_not_of_the_window() -> None:
    window = [{"days": ["mon"], "start": "11:00", "end": "23:00", "tz": "UTC"}]
    wanted = inputs.read({"maintain_nodes": "a", "maintain_reboot": True, "maintain_window": window}, "maintain")
    plan = {"wave_seconds": [30.4, 30]}
    assert announced({"plan": plan}, moment="planned", wanted=wanted, now=MONDAY_NOON)["duration"] == "1860s"
    assert announced({}, moment="planned", wanted=wanted, now=MONDAY_NOON)["duration"] == ""


def test_the_time_is_the_forecast_of_all_waves_with_the_work_on_the_hosts() -> None:
    assert times([60, 60], {"wave_seconds": [1]}) == ("12:00:00", "12:02:00")
    assert times([], {"wave_seconds": [30, 30]}) == ("12:00:00", "12:01:00")
    assert times([], {"wave_seconds": [30]}, maintain_reboot=True) == ("12:00:00", "12:15:30")
    assert times([], {}) == ("12:00:00", "12:00:00")


def test_the_time_is_the_next_window_in_which_the_first_wave_fits() -> None:
    window = [{"days": ["mon"], "start": "11:00", "end": "12:10"}, {"days": ["mon"], "start": "22:00", "end": "23:30"}]
    utc = [{**each, "tz": "UTC"} for each in window]
    assert times([60, 6000], {}, maintain_window=utc) == ("12:00:00", "12:10:00")
    assert times([700], {}, maintain_window=utc) == ("22:00:00", "23:30:00")
    assert times([99999], {}, maintain_window=utc) == ("12:00:00", "15:46:39")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"webhook": {"url": "s3cret"}}, "webhook.url: 'it' cannot be used"),
        ({"webhook": {"url": HOOK, "headers": {"a b": "s3cret"}}}, "webhook.headers: 'it' cannot be used"),
        ({"webhook": {"url": HOOK, "deadline": "0s"}}, "webhook.deadline: '0s' cannot be used"),
        ({"start": "today"}, "start: 'today' cannot be used. Expected: a timestamp"),
    ],
)
def test_the_module_refuses_bad_options_and_shows_nothing_secret(option: dict[str, Any], said: str) -> None:
    result = specs.run_call(arguments_event.SPEC, {"moment": "planned", **option}, specs.Call())
    assert result["failed"]
    assert said in result["msg"]
    assert "s3cret" not in json.dumps(result)


def test_whoever_is_told_of_the_moments_is_told_that_a_drain_is_blocked() -> None:
    assert given()["alarm"] == {}
    assert given(events=True)["alarm"] == {"events": True}
    assert given(webhook=HOOK)["alarm"]["webhook"]["url"] == HOOK
    assert given(events=True, webhook=HOOK, on="ended")["alarm"] == {}


@pytest.mark.parametrize(("after", "seconds"), [("10m", 600.0), ("0", float("inf"))])
def test_a_drain_knows_when_and_whom_to_tell(after: str, seconds: float) -> None:
    options = {"alarm_after": after, "announce": {"events": True, "webhook": {"url": HOOK}}}
    params = arguments.SPEC.prepare(arguments.SPEC.converted({"nodes": ["n1"], **options}))
    assert params["alarm_after"] == seconds
    told = params["announce"].args[0]
    assert (told.moment, told.events, told.webhook.http.url) == ("blocked", True, HOOK)


@pytest.mark.parametrize("webhook", [{"url": "s3cret"}, {"url": HOOK, "headers": {"X": "a\nb s3cret"}}])
def test_a_drain_refuses_a_webhook_without_showing_it(webhook: dict[str, Any]) -> None:
    with pytest.raises(option_values.BadOption) as refused:
        arguments.SPEC.prepare(arguments.SPEC.converted({"nodes": ["n1"], "announce": {"webhook": webhook}}))
    assert "s3cret" not in str(refused.value)
