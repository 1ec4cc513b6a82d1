# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An eviction from a node that is in service is found, and no other one."""

from __future__ import annotations

from chaos.judge import GRACE, evicted_in_service
from witness.audit import Request
from witness.log import Log

from ansible_collections.kubeops.node_maintenance.tests.unit.witness import handmade as h


def story() -> Log:
    """A node that is out of service from second 10 to second 20."""
    told = h.Story().before(Node=h.node("n1"), Pod=h.pod("web"))
    return told.at(10, Node=h.node("n1", step="cordoned")).at(20, Node=h.node("n1")).end(30)


def eviction(second: float, code: int = 201, query: str = "") -> Request:
    uri = f"/api/v1/namespaces/{h.NS}/pods/web/eviction{query}"
    return Request(5000.0 + second, "kubeops", "", "create", "pods", "eviction", h.NS, "web", code, uri)


def test_an_eviction_from_a_node_that_is_out_is_fine() -> None:
    assert evicted_in_service(story(), [eviction(15)]) == []


def test_an_eviction_before_or_after_is_found() -> None:
    found = evicted_in_service(story(), [eviction(5), eviction(25)])
    assert len(found) == 2
    assert "shop/web was ended on n1" in found[0]


def test_what_was_on_its_way_is_let_pass_for_a_moment() -> None:
    assert evicted_in_service(story(), [eviction(20 + GRACE / 2)]) == []
    assert len(evicted_in_service(story(), [eviction(20 + GRACE * 2)])) == 1


def test_what_was_refused_or_only_tried_ends_nothing() -> None:
    assert evicted_in_service(story(), [eviction(25, code=429), eviction(25, query="?dryRun=All")]) == []
