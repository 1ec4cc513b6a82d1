# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab for all tests, an arena in it for each, and the witness beside them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from support import reruns, rights, sampling  # noqa: E402
from support.arena import Arena, arena_name  # noqa: E402
from support.lab import Lab, adopted, lab_playbook, started  # noqa: E402
from support.plays import Player  # noqa: E402
from support.receiver import Chat  # noqa: E402
from support.sharing import Clusters, together  # noqa: E402
from support.watching import Watch, Watching  # noqa: E402

CLUSTERS = Clusters()
collect_ignore = [] if os.environ.get("ZOO") else ["test_zoo.py"]
"""The charts are other people's, so they are no part of this repository."""


def pytest_configure(config: pytest.Config) -> None:
    reruns.register(config)
    config.pluginmanager.register(CLUSTERS, "shared-clusters")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return together(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampling.select(config, items)


@contextlib.contextmanager
def running(request: pytest.FixtureRequest, suffix: str = "", **options: object) -> Iterator[Lab]:
    """The lab LAB_NAME (`e2e`) with these options. It goes when the tests end, unless LAB_KEEP is set.

    Processes that run tests side by side (pytest-xdist) have a lab each, because some tests are about all
    that is left in a cluster.
    """
    folder = request.getfixturevalue("tmp_path_factory").mktemp("lab")
    parts = (os.environ.get("LAB_NAME", "e2e"), suffix, os.environ.get("PYTEST_XDIST_WORKER"))
    name = "-".join(filter(None, parts))
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        made = started(folder, name, **options)
    try:
        yield made
    finally:
        if not os.environ.get("LAB_KEEP"):
            lab_playbook(folder, name, "absent")


KNOWS_NUMBERS = {"feature-gates": "TaintTolerationComparisonOperators=true"}
NUMBERS = {"lab_apiserver_args": KNOWS_NUMBERS, "lab_scheduler_args": KNOWS_NUMBERS}
"""Options of a lab that knows tolerations which compare numbers: in 1.36 these are off by default."""


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The shared cluster: LAB_KUBECONFIG where that is set, else one that is started, with LAB_NUMBERS as NUMBERS."""
    if given := os.environ.get("LAB_KUBECONFIG"):
        yield adopted(request.getfixturevalue("tmp_path_factory").mktemp("lab"), Path(given))
        return
    with running(request, "", **(NUMBERS if os.environ.get("LAB_NUMBERS") else {})) as made:
        yield made


@contextlib.contextmanager
def koordinated(request: pytest.FixtureRequest, suffix: str, version: str, **options: object) -> Iterator[Lab]:
    with running(request, suffix, lab_koordinator=version, **options) as made:
        # Some tests bring a descheduler that lives there.
        rights.bind(made.api, "descheduler", "kube-system")
        yield made


@pytest.fixture(scope="module")
def koord(request: pytest.FixtureRequest) -> Lab:
    """A cluster with Koordinator v1.7.0, its descheduler a Deployment whose pod is a process.

    Who changes the descheduler's configuration puts it back: `support.koordinator.configured`.
    """
    return CLUSTERS.get("koord", lambda: koordinated(request, "koord", "v1.7.0"))


@pytest.fixture(scope="module")
def koord_next(request: pytest.FixtureRequest) -> Lab:
    """The same with Koordinator v1.8.0."""
    return CLUSTERS.get("next", lambda: koordinated(request, "next", "v1.8.0"))


@pytest.fixture(scope="module")
def koord_that_lists(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """With Koordinator v1.7.0, and an API server on which no watch begins with its list, as before 1.34."""
    options = {"lab_apiserver_args": {"feature-gates": "WatchList=false"}}
    with koordinated(request, "lists", "v1.7.0", **options) as made:
        yield made


KUBERNETES_NEXT = {
    "lab_kubernetes": "v1.37.1",
    "lab_apiserver_args": {
        "feature-gates": "EvictionRequestAPI=true,GenericWorkload=true",
        "runtime-config": "lifecycle.k8s.io/v1alpha1=true,scheduling.k8s.io/v1beta1=true",
    },
    "lab_controller_manager_args": {
        "feature-gates": "GenericWorkload=true",
        "horizontal-pod-autoscaler-downscale-stabilization": "5s",
    },
    "lab_scheduler_args": {"feature-gates": "GenericWorkload=true"},
}


@pytest.fixture(scope="module")
def kubernetes_next(request: pytest.FixtureRequest) -> Lab:
    """A cluster with Kubernetes 1.37, its EvictionRequests and PodGroups, whose autoscalers lower a count after 5 s."""
    return CLUSTERS.get("kubernetes_next", lambda: running(request, "k137", **KUBERNETES_NEXT))


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> Lab:
    """A cluster with four real nodes: kubelets, containers, a network."""
    return CLUSTERS.get("real", lambda: running(request, "real", lab_kind="real", lab_nodes=4, lab_metrics=False))


@pytest.fixture(scope="module")
def medik8s(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A cluster with the namespace in which Medik8s' operators lease nodes."""
    with running(request, "medik8s") as made:
        made.api.create("/api/v1/namespaces", {"metadata": {"name": "medik8s-leases"}})
        rights.bind(made.api, "locks", "medik8s-leases")
        yield made


@pytest.fixture
def arena(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Arena]:
    made = Arena(lab.api, arena_name(request.node.name))
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture
def play(lab: Lab, tmp_path: Path) -> Iterator[Player]:
    """Runs the collection as the account that has the documented rights, which are all it asks for."""
    player = Player(lab, tmp_path)
    mark = lab.audit_log.stat().st_size
    try:
        yield player
    finally:
        player.stop_all()
    refused = rights.refusals(lab.audit_log, mark)
    assert player.may_be_refused or not refused, f"asked for without the right: {refused}"


@pytest.fixture
def watching(lab: Lab, arena: Arena, tmp_path: Path) -> Watch:
    """A witness for each `with`, started once everything in the arena has settled."""

    def begin() -> Watching:
        arena.settle()
        return Watching(arena, lab, tmp_path)

    return begin


@pytest.fixture
def chat() -> Iterator[Chat]:
    made = Chat()
    yield made
    made.close()
