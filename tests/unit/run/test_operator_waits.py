# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long an operator is waited for, in words that change seldom."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import operator_waits


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "10 s"),
        (10, "10 s"),
        (10.1, "20 s"),
        (60, "60 s"),
        (60.5, "2 min"),
        (120, "2 min"),
        (121, "3 min"),
        (600, "10 min"),
    ],
)
def test_a_wait_is_told_in_tens_of_seconds_and_then_in_minutes(seconds: float, words: str) -> None:
    assert operator_waits._minutes(seconds) == words
