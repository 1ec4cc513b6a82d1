# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.job import Wish, manifest
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import job_leftovers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context

EVICTING = [{"type": "Eviction", "status": "False"}]


def job(name: str, node: str = "n1", run: str = "r1", **status: t.Any) -> dict[str, t.Any]:
    made = manifest(name, Ref("Pod", name, "shop", f"uid-{name}", "v1"), Wish(run=run))
    made["metadata"] |= {"uid": f"job-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    if node:
        made["metadata"]["annotations"][names.SERVES_NODES] = node
    return {**made, "status": status}


@dataclass
class Listing:
    items: list[dict[str, t.Any]]


@dataclass
class Server:
    jobs: list[dict[str, t.Any]]
    error: Exception | None = None
    asked: list[Request] = field(default_factory=list)

    def items(self, kind: t.Any, **_selectors: t.Any) -> Listing:
        del kind
        if self.error:
            raise self.error
        return Listing(self.jobs)

    def send(self, request: Request, *, fence: t.Callable[[], None] | None = None, **_times: float) -> dict[str, t.Any]:
        if fence is not None:
            fence()
        self.asked.append(request)
        found = next(raw for raw in self.jobs if raw["metadata"]["name"] in request.path)
        if request.method == "PATCH":
            found["status"] = {"phase": "Failed"}
        return found


def context(server: Server) -> Context:
    return Context(t.cast("t.Any", server))


def test_jobs_of_drains_are_traces_and_those_of_people_are_not() -> None:
    server = Server([job("a", phase="Succeeded"), job("b", node="")])
    [trace] = job_leftovers.traces(context(server))
    assert (trace.run, trace.object, trace.nodes) == ("r1", "PodMigrationJob a", ("n1",))
    assert trace.what == "a PodMigrationJob of a drain, which has succeeded"


@pytest.mark.parametrize("error", [errors.NotFound, errors.Forbidden])
def test_where_there_is_no_koordinator_nothing_is_left(error: t.Any) -> None:
    assert job_leftovers.traces(context(Server([], error("no")))) == ()


def test_only_what_serves_nobody_any_more_is_given_up() -> None:
    server = Server(
        [
            job("ended", phase="Succeeded"),
            job("waits"),
            job("leaves", phase="Running", conditions=EVICTING),
            job("other", run="r2"),
            job("out", node="n2"),
        ]
    )
    job_leftovers.give_up(context(server), "r1", {"n2"})
    sent = [(r.method, r.path.split("podmigrationjobs/")[-1]) for r in server.asked if r.method != "GET"]
    assert sent == [("DELETE", "ended"), ("PATCH", "waits/status"), ("DELETE", "waits")]
