# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables, indexes and snapshots that follow from others are what they would be if they were made anew."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import indexes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import SCALED, Snapshot
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import budget, deployment, node, owned, pod
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import snapshot as made
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import WEB

MANY = 20_000


class Word:
    """An object with some keys."""

    def __init__(self, text: str) -> None:
        self.text = text


WORDS = st.sampled_from(["", "a", "b", "ab", "abc"]).map(Word)
DEEDS = st.lists(st.dictionaries(st.integers(0, 99), st.none() | WORDS, max_size=9), max_size=9)


@hypothesis.given(DEEDS)
def test_a_table_has_its_objects_at_their_places_whatever_becomes_of_others(
    deeds: list[dict[int, Word | None]],
) -> None:
    shelf, known, tables = indexes.Store[int, Word](), dict[int, Word](), list[tuple[indexes.Items[Word], list[Word]]]()
    for deed in deeds:
        changes = shelf.take(deed)
        expected = [(known.get(key), word) for key, word in deed.items() if (known.get(key), word) != (None, None)]
        assert changes == expected
        for key, word in deed.items():
            if word is None:
                known.pop(key, None)
            else:
                known[key] = word
        tables.append((shelf.table(), list(known.values())))
    assert all(list(table) == words and len(table) == len(words) for table, words in tables)


def test_the_gaps_of_what_is_gone_are_closed() -> None:
    shelf = indexes.Store[int, Word]()
    shelf.take({number: Word("") for number in range(MANY)})
    before = shelf.table()
    shelf.take(dict.fromkeys(range(MANY - 100)))
    after = shelf.table()
    assert (len(before), len(after)) == (MANY, 100)
    assert len(after._pieces) == 2
    shelf.take({MANY - 1: None})
    assert list(shelf.table()) == list(after[:-1])


@pytest.mark.parametrize("piece", [1, indexes.PIECE])
@hypothesis.given(deeds=DEEDS)
def test_an_index_that_follows_changes_is_the_one_made_anew(piece: int, deeds: list[dict[int, Word | None]]) -> None:
    """Also one that grows beyond its first piece on the way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "PIECE", piece)
        follow(deeds)


def follow(deeds: list[dict[int, Word | None]]) -> None:
    shelf = indexes.Store[int, Word]()
    index: indexes.Index[str, Word] = indexes.Index.of(lambda word: dict.fromkeys(word.text), ())
    for deed in deeds:
        before, index = index, index.after(shelf.take(deed))
        anew = indexes.Index.of(lambda word: dict.fromkeys(word.text), shelf.table())
        assert {key: set(index.get(key)) for key in index} == {key: set(anew.get(key)) for key in anew}
        assert all(len(set(index.get(key))) == len(index.get(key)) for key in index)
        differing = {key for key in "abc" if index.get(key) != before.get(key)}
        assert set(index.differing(before)) == differing
    assert set(index.differing(None)) == set(index)
    assert index.last("") is None


def test_what_replaces_an_object_is_at_its_place() -> None:
    first, second, third = Word("a"), Word("ab"), Word("a")
    index: indexes.Index[str, Word] = indexes.Index.of(lambda word: dict.fromkeys(word.text), (first, second))
    after = index.after([(None, third), (first, new := Word("a"))])
    assert (index.get("a"), after.get("a")) == ((first, second), (new, second, third))
    assert (after.last("a"), after.get("b")) == (third, (second,))
    assert index.after(()) is index


def cluster(count: int) -> Snapshot:
    """So many pods on a tenth as many nodes; each hundred are of one workload of its own."""
    pods = [
        pod(f"p{n}", f"n{n // 10}", labels={"app": f"a{n // 100}"}, owner=owned("ReplicaSet", f"r{n // 100}"))
        for n in range(count)
    ]
    budgets = [budget(f"b{n}", 1, selector={"matchLabels": {"app": f"a{n}"}}) for n in range(count // 100)]
    return made(pods=pods, budgets=budgets, nodes=[node(f"n{n}") for n in range(count // 10)])


class Counted(dict[str, str]):
    """Labels of a pod that tell when they are looked at."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        Counted.looks += 1
        return super().__contains__(key)


def asked(found: Snapshot, uid: str) -> list[t.Any]:
    """Every question about a pod and what it belongs to."""
    one = t.cast("Pod", found.pod(uid))
    owner = one.owner.uid if one.owner else ""
    budgets = found.budgets_of(one)
    counts = [(found.ready_of(b), len(list(found.selected(b.namespace, b.selector)))) for b in budgets]
    return [len(found.owned_pods(owner)), len(found.pods_on([one.node])), len(budgets), counts]


def test_after_a_change_of_one_pod_no_other_one_is_looked_at_however_many_there_are() -> None:
    found = cluster(2000)
    pods = [replace(one, labels=Counted(one.labels)) for one in found.pods]
    shelf = indexes.Store[str, Pod]()
    shelf.take({one.uid: one for one in pods})
    first = found.after({"pods": shelf.table()}, {})
    assert asked(first, "uid-p7") == [100, 10, 1, [(100, 100)]]
    Counted.looks = 0
    changes = shelf.take({"uid-p7": replace(pods[7], ready=False)})
    second = first.after({"pods": shelf.table()}, {"pods": changes})
    assert Counted.looks == 2, "the pod before and after"
    assert asked(second, "uid-p7") == [100, 10, 1, [(99, 100)]]
    assert asked(first, "uid-p7") == [100, 10, 1, [(100, 100)]], "who has the one before sees no change"
    assert Counted.looks == 2


def test_kinds_of_which_all_may_be_others_are_looked_at_anew() -> None:
    first = made(deployment("web", 2), pods=[pod("a", owner=WEB)], nodes=[node("n1"), node("n2")])
    above = first.workload_of(first.pods[0])
    assert above is not None
    scaled: dict[str, list[t.Any]] = {name: [] for name in SCALED[1:]}
    second = first.after({"scales": [above], **scaled}, {name: [] for name in scaled})
    assert [second.workload(above.uid), second.workloads] == [above, (above,)]
    assert second.workload_of(second.pods[0]) is None, "its ReplicaSet is not there"
    new = replace(first.nodes["n1"], unschedulable=True)
    third = second.after({"nodes": ()}, {"nodes": [(first.nodes["n1"], new), (first.nodes["n2"], None)]})
    assert third.nodes == {"n1": new}
    assert list(third.after({"nodes": [new, first.nodes["n2"]]}, {}).nodes) == ["n1", "n2"]
