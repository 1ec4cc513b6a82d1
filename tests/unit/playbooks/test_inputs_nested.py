# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables whose values have parts: taints, rules, conditions, windows, words about the descheduler."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.test_inputs import given

DEDICATED = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule", "state": "present"}
OLD = {"key": "old", "effect": "NoExecute", "state": "absent"}


@pytest.mark.parametrize(
    ("value", "taints"),
    [
        ("dedicated=gpu:NoSchedule,old:NoExecute-", [DEDICATED, OLD]),
        (" dedicated=gpu:NoSchedule\nold:NoExecute- ", [DEDICATED, OLD]),
        (["dedicated=gpu:NoSchedule", "old:NoExecute-"], [DEDICATED, OLD]),
        ([dict(DEDICATED), "old:NoExecute-"], [DEDICATED, OLD]),
        (dict(DEDICATED), [DEDICATED]),
        ({"key": "special", "value": True, "effect": "NoSchedule"},) * 2,
        ("old-", [{"key": "old", "state": "absent"}]),
        ("a:NoSchedule", [{"key": "a", "effect": "NoSchedule", "state": "present"}]),
        ([{"key": "a", "value": None, "effect": "NoSchedule", "state": ""}], [{"key": "a", "effect": "NoSchedule"}]),
    ],
)
def test_taints_are_read_in_kubectls_words_and_as_mappings(value: object, taints: object) -> None:
    values = given(taints=value)
    assert values["errors"] == []
    assert values["taints"] == (taints if isinstance(taints, list) else [taints])
    assert values["fingerprint"]["taints"] == values["taints"]


@pytest.mark.parametrize(
    ("value", "where", "expected"),
    [
        ("dedicated=gpu", "maintain_taints[0].effect", "NoSchedule, PreferNoSchedule, NoExecute"),
        ("a=b:Noschedule", "maintain_taints[0].effect", "one of"),
        ("a:NoSchedule,a:NoSchedule-", "maintain_taints[1]", "see maintain_taints[0]"),
        ([{"key": "a", "effect": "NoSchedule", "timeAdded": "now"}], "maintain_taints[0]", "effect and state"),
        ("maintenance.kubeops.io/in-progress-", "maintain_taints[0].key", "another key"),
        (7, "maintain_taints", "dedicated=gpu:NoSchedule"),
    ],
)
def test_a_wrong_taint_is_named_by_its_place(value: object, where: str, expected: str) -> None:
    (error,) = given(taints=value)["errors"]
    assert error.startswith(f"{where}: ")
    assert expected in error


RULES = [{"owners": ["DaemonSet"], "last": True}, {"pods": "app=web", "skip": "true"}]


@pytest.mark.parametrize("value", [RULES, json.dumps(RULES)])
def test_rules_come_as_a_list_or_as_json(value: object) -> None:
    found = given(rules=value)
    assert (found["rules"], found["errors"]) == (RULES, [])
    assert (given()["rules"], given(rules="")["rules"]) == ([], [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("skip all", "a list of rules, or such a list as JSON"),
        ({"skip": True}, "a list of rules"),
        ([{"skip": True, "pod": "app=web"}], "maintain_rules[0].pod: 'app=web' cannot be used. Expected: one of name"),
        ([{"name": "a", "after": ["a"]}], "after and before without a circle"),
    ],
)
def test_a_wrong_rule_is_named_by_its_place(value: object, expected: str) -> None:
    (error,) = given(rules=value)["errors"]
    assert error.startswith("maintain_rules")
    assert expected in error


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"example.com/NetworkReady": True, "Odd": "false"}, {"example.com/NetworkReady": "True", "Odd": "False"}),
        ("example.com/NetworkReady=True, Odd=false", {"example.com/NetworkReady": "True", "Odd": "False"}),
        ("", {}),
    ],
)
def test_conditions_are_a_mapping_or_pairs(value: object, read: dict[str, str]) -> None:
    values = given(conditions=value)
    assert (values["errors"], values["conditions"]) == ([], read)


@pytest.mark.parametrize("value", ["NetworkReady", {"NetworkReady": "maybe"}, {"": "True"}, True])
def test_wrong_conditions_are_errors(value: object) -> None:
    (error,) = given(conditions=value)["errors"]
    assert "maintain_conditions" in error
    assert "Type=True" in error


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"confg": {}}, "maintain_descheduler.confg: {} cannot be used. Expected: config."),
        ({"flavor": "koord"}, "one of koordinator, ack, sigs"),
        ({"flavor": "ack"}, "{pause: true}"),
        ({"pause": "maybe"}, "true or false"),
        ({"config": {"kind": "DeschedulerPolicy"}}, "flavor: sigs"),
        ({"version": "9", "config": {}}, "1.7.0"),
        ("config: {apiVersion: descheduler/v1alpha2, kind: DeschedulerConfiguration, dryrun: 1}", "Write dryRun"),
    ],
)
def test_wrong_words_about_the_descheduler_are_told_before_the_first_write(value: object, said: str) -> None:
    (error,) = given(descheduler=value)["errors"]
    assert said in error


def test_words_about_the_descheduler_from_a_survey() -> None:
    text = "{flavor: ack, pause: 'yes', config: {apiVersion: descheduler/v1alpha2, kind: DeschedulerConfiguration}}"
    found = given(descheduler=text)
    assert not found["errors"]
    assert found["descheduler"]["pause"] is True
    assert found["descheduler"]["config"]["kind"] == "DeschedulerConfiguration"
    assert given()["descheduler"] == {}


NIGHT = {"days": [5, 6], "start": "22:00", "end": "04:00", "tz": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("value", "windows"),
    [
        ({"days": ["sat", "sun"], "start": "22:00", "end": "04:00", "tz": "Europe/Berlin"}, [NIGHT]),
        ("{days: sat sun, start: 22:00, end: 04:00, tz: Europe/Berlin}", [NIGHT]),
        ([{"start": "0:00", "end": "24:00", "tz": "UTC"}],) * 2,
        (
            {"days": "fri-mon", "start": 1320, "end": "4:00", "tz": "UTC"},
            [{**NIGHT, "days": [0, 4, 5, 6], "tz": "UTC"}],
        ),
        ([{**NIGHT, "days": "Saturday,Sunday"}, {**NIGHT, "days": "wed"}], [NIGHT, {**NIGHT, "days": [2]}]),
    ],
)
def test_windows_are_mappings_or_their_text(value: object, windows: object) -> None:
    found = given(window=value)
    assert found["errors"] == []
    every = {"days": [0, 1, 2, 3, 4, 5, 6], "start": "00:00", "end": "00:00", "tz": "UTC"}
    assert found["window"] == ([every] if value == windows else windows)
    assert found["fingerprint"] == given()["fingerprint"]


@pytest.mark.parametrize(
    ("change", "where", "said"),
    [
        ({"day": "sat"}, "maintain_window.day", "days"),
        ({"start": "25:00"}, "maintain_window.start", "22:00"),
        ({"start": 9999}, "maintain_window.start", "22:00"),
        ({"end": None}, "maintain_window", "end as well"),
        ({"tz": "Europe/Berln"}, "maintain_window.tz", "Europe/Berlin"),
        ({"tz": "CEST"}, "maintain_window.tz", "a time zone such as"),
        ({"days": "someday"}, "maintain_window.days", "sat, or mon-fri"),
        ({"days": "mon-tue-wed"}, "maintain_window.days", "sat, or mon-fri"),
    ],
)
def test_a_wrong_window_is_named_by_its_place(change: dict[str, object], where: str, said: str) -> None:
    (error,) = given(window={**NIGHT, "days": "sat", **change})["errors"]
    assert error.startswith(f"{where}: ")
    assert said in error


@pytest.mark.parametrize("value", ["{days", "sat", 7, ["sat"]])
def test_what_is_no_window_is_answered_with_one(value: object) -> None:
    (error,) = given(window=value)["errors"]
    assert 'such as {days: [sat, sun], start: "22:00"' in error
