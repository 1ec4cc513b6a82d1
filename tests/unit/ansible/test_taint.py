# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.specs import Call, run_call
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.arguments_taint import SPEC


def desired(taints: object, state: str = "present") -> list[str]:
    """What the engine gets for these arguments of a task, in kubectl's syntax."""
    arguments = {"nodes": "n1", "state": state, "taints": taints}
    validation = ArgumentSpecValidator(SPEC.argument_spec, **SPEC.rules).validate(arguments)
    assert validation.error_messages == []
    params = SPEC.prepare(SPEC.converted(validation.validated_parameters))
    return [node_taints.words(taint) for taint in params["taints"]]


@pytest.mark.parametrize(
    ("taints", "state", "expected"),
    [
        ("dedicated=gpu:NoSchedule", "present", ["dedicated=gpu:NoSchedule"]),
        ("a:NoSchedule,b=c:NoExecute-", "present", ["a:NoSchedule", "b=c:NoExecute-"]),
        (["a:NoSchedule", {"key": "b", "state": "absent"}], "present", ["a:NoSchedule", "b-"]),
        ([{"key": "a", "value": True, "effect": "NoSchedule"}], "present", ["a=true:NoSchedule"]),
        ("dedicated", "absent", ["dedicated-"]),
        ("dedicated gpu", "absent", ["dedicated-", "gpu-"]),
        ("a:NoSchedule b- c:NoExecute", "present", ["a:NoSchedule", "b-", "c:NoExecute"]),
        ("a:NoSchedule\nb=c:NoExecute", "present", ["a:NoSchedule", "b=c:NoExecute"]),
        ("dedicated=gpu:NoSchedule", "absent", ["dedicated=gpu:NoSchedule-"]),
        ([{"key": "dedicated"}], "absent", ["dedicated-"]),
        ("dedicated=gpu:NoSchedule", "exact", ["dedicated=gpu:NoSchedule"]),
        ([], "exact", []),
    ],
)
def test_taints_are_read_in_kubectls_syntax_and_as_mappings(taints: object, state: str, expected: list[str]) -> None:
    assert desired(taints, state) == expected


@pytest.mark.parametrize(
    ("taints", "state", "said"),
    [
        ("dedicated=gpu", "present", "taints[0].effect: '' cannot be used"),
        ("a:NoSchedule-", "exact", "exact removes what is not listed"),
        ([{"key": "a", "effect": "NoSchedule", "timeAdded": "now"}], "present", "only key, value, effect and state"),
        ([{"effect": "NoSchedule"}], "present", "taints[0].key: '' cannot be used"),
        ([{"key": "a", "effect": "NoSchedule", "state": "gone"}], "present", "only key, value, effect and state"),
        ([7], "present", "taints[0].effect"),
        (["bad key=1:NoSchedule"], "present", "taints[0].key: 'bad key'"),
        (["bad key=1:NoSchedule"], "absent", "taints[0].key: 'bad key'"),
        ([""], "exact", "taints: [''] cannot be used"),
        ([" "], "absent", "taints: [' '] cannot be used"),
        (["a:NoSchedule", ","], "exact", "taints: ['a:NoSchedule', ','] cannot be used"),
    ],
)
def test_wrong_taints_are_told_before_a_request(taints: list[t.Any], state: str, said: str) -> None:
    params = {"state": state, "nodes": ["n1"], "taints": taints, "host": "https://127.0.0.1:1"}
    if isinstance(taints, str):
        params["taints"] = [taints]
    assert said in run_call(SPEC, params, Call())["msg"]


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
