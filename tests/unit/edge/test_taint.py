# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.specs import Call, run_call
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.taint import SPEC


def test_all_that_is_wrong_is_told_at_once_and_nobody_is_asked() -> None:
    params = {
        "state": "present",
        "nodes": ["n1"],
        "taints": [{"key": "a b", "effect": "NoSchedule"}, {"key": "gpu", "value": "x y", "effect": None}],
        "host": "https://127.0.0.1:1",
    }
    result = run_call(SPEC, params, Call())
    assert result["failed"]
    assert not result["changed"]
    assert "nodes" not in result
    for part in ("taints[0].key: 'a b'", "taints[1].value: 'x y'", "taints[1].effect: ''"):
        assert part in result["msg"]
