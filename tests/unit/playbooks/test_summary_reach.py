# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of a host on which the tasks of the user cannot run."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.summed import SUMMED

TIMED_OUT = {"failed": True, "msg": "timed out waiting for ping module test: 'ping'"}
SKIPPED = {"skipped": True, "skip_reason": "Conditional result was False"}


@pytest.mark.parametrize(
    ("connection", "modules", "told", "advice"),
    [
        ({"unreachable": True, "msg": "x"}, SKIPPED, "unreachable for your tasks (timed out", "address, user or key"),
        ({"rc": 0}, {"failed": False, "rc": 127, "msg": "No python."}, "(No python)", "ansible_python_interpreter"),
        ({"rc": 1}, {"failed": False, "rc": 127}, "answers, but no module of Ansible runs on it (timed out", "Python"),
        ({"rc": 0}, {"unreachable": True}, "answers, but no module of Ansible runs on it (timed out", "Python"),
        ({"rc": 0}, {"ping": "pong"}, "answers, but nobody becomes root there (timed out", "ansible_become_password"),
    ],
)
def test_each_cause_is_told_with_its_own_remedy(
    connection: dict[str, Any], modules: dict[str, Any], told: str, advice: str
) -> None:
    answers = {"failed": TIMED_OUT, "connection": connection, "modules": modules}
    text = SUMMED(answers, "reach", {"host": "n1"})["text"]
    assert text.startswith("Host n1 ")
    assert told in text
    assert advice in text
