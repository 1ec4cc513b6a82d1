# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods the taint manager ends, and when."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, no_execute
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, owned, pod

A: Raw = {"key": "a", "value": "1", "effect": "NoExecute"}
B: Raw = {"key": "b", "effect": "NoExecute"}
LOST: Raw = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def tolerates(key: str = "", seconds: int | None = None, **more: str) -> Raw:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {**({"key": key} if key else {}), "operator": "Exists", "effect": "NoExecute", **more, **limit}


DEFAULTS = [tolerates(f"node.kubernetes.io/{key}", 300) for key in ("not-ready", "unreachable")]
"""What the admission plugin DefaultTolerationSeconds adds to every pod that says nothing of these keys."""


@pytest.mark.parametrize(
    ("tolerations", "taints", "seconds"),
    [
        pytest.param([], [A], 0, id="none"),
        pytest.param(DEFAULTS, [A], 0, id="defaults-do-not-cover-it"),
        pytest.param(DEFAULTS, [LOST], 300, id="defaults"),
        pytest.param(DEFAULTS, [LOST, A], 0, id="one-of-two-not-tolerated"),
        pytest.param([], [], None, id="no-taint"),
        pytest.param([], [{**A, "effect": "NoSchedule"}, {**B, "effect": "PreferNoSchedule"}], None, id="no-effect"),
        pytest.param([tolerates("a")], [A], None, id="for-ever"),
        pytest.param([tolerates("a", 30)], [A], 30, id="for-a-while"),
        pytest.param([tolerates("a", 0)], [A], 0, id="zero"),
        pytest.param([tolerates("a", -5)], [A], 0, id="negative"),
        pytest.param([tolerates("a", 3600, operator="Equal", value="1")], [A], 3600, id="equal"),
        pytest.param([tolerates("a", 3600, operator="Equal", value="2")], [A], 0, id="another-value"),
        pytest.param([tolerates("", 20)], [A, B], 20, id="every-key"),
        pytest.param([tolerates("", effect="")], [A, B], None, id="everything"),
        pytest.param([tolerates("a", effect="NoSchedule")], [A], 0, id="another-effect"),
        pytest.param([tolerates("a", 30), tolerates("b", 10)], [A, B], 10, id="shortest"),
        pytest.param([tolerates("a", 30), tolerates("b")], [A, B], 30, id="one-limited"),
        pytest.param([tolerates("a"), tolerates("b")], [A, B], None, id="both-for-ever"),
        pytest.param([tolerates("a", 30), tolerates("a", 5)], [A], 30, id="first-counts"),
        pytest.param([tolerates("a"), tolerates("", 5)], [A], None, id="first-counts-for-ever"),
        pytest.param([tolerates("", 5), tolerates("a")], [A], 5, id="first-counts-limited"),
    ],
)
def test_how_long_a_pod_may_stay(tolerations: list[Raw], taints: list[Raw], seconds: int | None) -> None:
    assert no_execute.stay(tolerations, taints).seconds == seconds


@pytest.mark.parametrize(
    ("tolerations", "before", "after", "seconds"),
    [
        pytest.param([], [], [A], [0], id="new"),
        pytest.param([], [A], [A, B], [], id="goes-anyway"),
        pytest.param([tolerates("a", 60)], [A], [A, B], [0], id="at-once-instead-of-later"),
        pytest.param([tolerates("a", 1)], [A], [A, B], [0], id="at-once-instead-of-a-second-later"),
        pytest.param([tolerates("a", 0)], [A], [A, B], [], id="goes-at-once-anyway"),
        pytest.param([tolerates("a", 60), tolerates("b", 5)], [A], [A, B], [], id="its-time-is-running"),
        pytest.param([tolerates("a"), tolerates("b", 5)], [A], [A, B], [5], id="stayed-until-now"),
        pytest.param([tolerates("a", 60)], [], [A], [60], id="later"),
        pytest.param([tolerates("a", operator="Equal", value="1")], [A], [{**A, "value": "2"}], [0], id="value"),
        pytest.param([], [A, B], [B], [], id="removed"),
    ],
)
def test_what_a_change_of_taints_ends(
    tolerations: list[Raw], before: list[Raw], after: list[Raw], seconds: list[int]
) -> None:
    found = no_execute.forecast([Pod.of(pod("p", tolerations=tolerations))], before, after)
    assert [kill.seconds for kill in found] == seconds


def test_the_book_example_may_stay_but_not_come() -> None:
    # Section 3.9.5: two of three taints are tolerated, the third is NoSchedule.
    three = [{**A, "effect": "NoSchedule"}, A, {"key": "key2", "effect": "NoSchedule"}]
    tolerations = [{"key": "a", "operator": "Equal", "value": "1", "effect": x} for x in ("NoSchedule", "NoExecute")]
    assert no_execute.stay(tolerations, three).seconds is None


def test_pods_are_told_in_the_order_in_which_they_go() -> None:
    pods = [
        pod("late", tolerations=[tolerates("a", 60)]),
        pod("now"),
        pod("going", deleting="2026-01-01T00:00:00Z"),
        pod("stays", tolerations=[tolerates("a")]),
        pod("soon", tolerations=[tolerates("a", 5)]),
    ]
    found = no_execute.forecast([Pod.of(raw) for raw in pods], [], [A])
    assert [(kill.pod.name, kill.seconds) for kill in found] == [("now", 0), ("soon", 5), ("late", 60)]
    named = [pod("b"), pod("c", namespace="bank"), pod("a")]
    found = no_execute.forecast([Pod.of(raw) for raw in named], [], [A])
    assert [kill.pod.name for kill in found] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (pod("p"), "It does not tolerate a=1:NoExecute."),
        (pod("p", tolerations=[tolerates("a", 60)]), "It tolerates a=1:NoExecute for 60 s."),
        (pod("p", owner=owned("DaemonSet", "d")), "is not recreated while the taint stays"),
        (pod("p", owner=owned("DaemonSet", "d"), tolerations=[tolerates("a", 9)]), "is recreated each time"),
        (pod("p", annotations={names.MIRROR: "x"}), "its kubelet recreates it"),
        (pod("p", phase="Succeeded"), "It has finished already"),
        (pod("p", tolerations=[tolerates("a", 1)]), "for 1 s."),
    ],
)
def test_the_reason_says_what_comes_of_it(raw: Raw, words: str) -> None:
    (kill,) = no_execute.forecast([Pod.of(raw)], [], [A])
    assert words in kill.reason
    assert kill.to_dict()["taint"] == "a=1:NoExecute"


@pytest.mark.parametrize(("owner", "named"), [(owned("ReplicaSet", "web"), "ReplicaSet shop/web"), (None, "")])
def test_a_pod_to_be_deleted_is_returned_with_its_owner(owner: list[Raw] | None, named: str) -> None:
    (kill,) = no_execute.forecast([Pod.of(pod("p", owner=owner))], [], [A])
    assert (kill.to_dict()["owner"], kill.to_dict()["seconds"], kill.to_dict()["node"]) == (named, 0, "n1")
