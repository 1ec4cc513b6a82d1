# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the collector of garbage stands still, and that it works again afterwards."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import collector, errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import Api


@pytest.fixture(autouse=True)
def working() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_it_stands_still_within_pauses_until_the_outermost_ends() -> None:
    with collector.paused():
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_an_error() -> None:
    with contextlib.suppress(ZeroDivisionError), collector.paused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    with collector.paused(), collector.paused():
        pass
    assert not gc.isenabled()


def test_pauses_of_two_threads_overlap() -> None:
    begun, ended = threading.Event(), threading.Event()

    def other() -> None:
        with collector.paused():
            begun.set()
            ended.wait(10)

    thread = threading.Thread(target=other)
    with collector.paused():
        thread.start()
        assert begun.wait(10)
    assert not gc.isenabled(), "the other thread's pause goes on"
    ended.set()
    thread.join()
    assert gc.isenabled()


def test_nothing_is_collected_while_a_list_is_read(api: Api, cluster: Cluster) -> None:
    item = {"metadata": {"name": "n1"}}
    api.expect("GET", "/api/v1/nodes", {"items": [item], "metadata": {"resourceVersion": "1"}})
    assert cluster.items(kinds.NODES, keep=lambda _item: gc.isenabled()).items == [False]
    assert gc.isenabled()


def test_a_list_that_fails_ends_its_pause(api: Api, cluster: Cluster) -> None:
    api.expect("GET", "/api/v1/nodes", {}, status=422)
    with pytest.raises(errors.Invalid):
        cluster.items(kinds.NODES, patience=0.0)
    assert gc.isenabled()
