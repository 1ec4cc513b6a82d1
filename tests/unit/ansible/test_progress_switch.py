# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of progress stay out of the stdout of callbacks that programs read, and can be switched off."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _progress

EVENT = specs.Event("2026-11-21T10:30:48.123Z", "n1", "cordoned", "cordoned", phase="cordoned")


def test_a_line_is_text_that_brings_its_event_with_it() -> None:
    line = pickle.loads(pickle.dumps(_progress.Line.of(EVENT)))
    assert line == "10:30:48  n1  cordoned"
    assert (line.event["node"], line.event["phase"]) == ("n1", "cordoned")


@pytest.mark.parametrize(
    ("asked", "environ", "callback", "shown"),
    [
        (None, {}, "default", True),
        (None, {}, "kubeops.node_maintenance.maintenance", True),
        (None, {}, "community.general.yaml", True),
        (None, {}, "awx_display", True),
        (None, {}, "json", False),
        (None, {}, "ansible.posix.json", False),
        (None, {}, "ansible.posix.jsonl", False),
        (None, {}, "community.general.null", False),
        (None, {"KUBEOPS_PROGRESS": "0"}, "default", False),
        (None, {"KUBEOPS_PROGRESS": "1"}, "ansible.posix.json", True),
        (None, {"KUBEOPS_PROGRESS": ""}, "default", True),
        ("false", {}, "default", False),
        (False, {"KUBEOPS_PROGRESS": "1"}, "default", False),
        ("", {"KUBEOPS_PROGRESS": "no"}, "default", False),
        (True, {"KUBEOPS_PROGRESS": "0"}, "json", True),
    ],
)
def test_who_gets_progress(asked: Any, environ: dict[str, str], callback: str, shown: bool) -> None:
    assert _progress.wanted(asked, environ, callback) is shown
