# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The route of pods that use storage of their node."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    claim,
    mounts,
    on_hosts,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import (
    only,
    web,
)

LOCAL: Raw = {"metadata": {"name": "pv"}, "spec": {"local": {"path": "/disk"}, "nodeAffinity": on_hosts("n1")}}
HOST: Raw = {"metadata": {"name": "pv"}, "spec": {"hostPath": {"path": "/disk"}}}
BOUND: Raw = {"metadata": {"name": "pv"}, "spec": {"csi": {}, "nodeAffinity": on_hosts("n1")}}
BOTH: Raw = {"metadata": {"name": "pv"}, "spec": {"csi": {}, "nodeAffinity": on_hosts("n1", "n2")}}


@pytest.mark.parametrize(
    ("volume", "choices", "route", "code"),
    [
        pytest.param(LOCAL, DrainPolicy(), "refuse", "local_volume", id="local"),
        pytest.param(HOST, DrainPolicy(), "refuse", "local_volume", id="hostPath"),
        pytest.param(BOUND, DrainPolicy(), "refuse", "local_volume", id="bound to this node"),
        pytest.param(LOCAL, DrainPolicy(force=True), "refuse", "local_volume", id="force is no consent"),
        pytest.param(LOCAL, DrainPolicy(allow_interruption=True), "evict", "local_volume", id="allowed"),
        pytest.param(BOTH, DrainPolicy(), "evict", "guarded", id="bound to two nodes"),
        pytest.param(None, DrainPolicy(), "evict", "guarded", id="not bound yet"),
    ],
)
def test_local_volumes(volume: Raw | None, choices: DrainPolicy, route: str, code: str) -> None:
    found = web(
        3,
        pod_changes={"volumes": mounts("data")},
        claims=[claim("data", "pv")],
        volumes=[volume] if volume else [],
    )
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)


def test_a_claim_that_holds_nothing_hides_none_that_does() -> None:
    volumes = [*mounts("unbound"), *mounts("free"), *mounts("data")]
    found = web(
        3,
        pod_changes={"volumes": volumes},
        claims=[claim("unbound", ""), claim("free", "pv-free"), claim("data", "pv")],
        volumes=[{"metadata": {"name": "pv-free"}, "spec": {"csi": {}}}, LOCAL],
    )
    plan = only(found)
    assert (plan.code, "PersistentVolume pv of claim data is a local volume (/disk)" in plan.reason) == (
        "local_volume",
        True,
    )
