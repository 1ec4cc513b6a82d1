# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reason as a sentence and as data, the same for everything that is one."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.budgets import Verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, stopped
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import Fault
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding, Reason

SAID = ("It is full.", "Make room.")


@pytest.mark.parametrize(
    "reason",
    [
        Reason("full", *SAID),
        Finding("full", *SAID),
        Fault("required", *SAID),
        Verdict("spent", *SAID),
    ],
)
def test_every_reason_is_told_and_shown_alike(reason: Reason) -> None:
    assert reason.sentence == "It is full. Make room."
    shown = reason.to_dict()
    assert (shown["message"], shown["remedy"]) == SAID


@pytest.mark.parametrize(("message", "remedy"), [("It is full.", ""), ("", "It is full.")])
def test_a_sentence_has_no_space_for_what_is_missing(message: str, remedy: str) -> None:
    assert Reason("full", message, remedy).sentence == "It is full."


def test_each_kind_shows_its_own_keys() -> None:
    assert Reason("full", "a", "b").to_dict() == {"code": "full", "message": "a", "remedy": "b"}
    finding = Finding("full", "a", "b", "warning", "Node n1", ("n1",))
    assert finding.to_dict() == {
        "code": "full",
        "message": "a",
        "remedy": "b",
        "severity": "warning",
        "object": "Node n1",
    }
    fault = Fault("required", "a", "b", "profiles", "crashes")
    assert fault.to_dict() == {
        "path": "profiles",
        "rule": "required",
        "severity": "error",
        "message": "a",
        "remedy": "b",
        "real": "crashes",
    }


def test_a_call_that_stops_says_why_as_a_finding_and_as_its_message() -> None:
    stop = CallAborted("full", *SAID, "Node n1")
    result = stopped(stop)
    assert result.failed
    assert result.message == "It is full. Make room."
    assert result.data == {"findings": [Finding("full", *SAID, "blocker", "Node n1").to_dict()]}
