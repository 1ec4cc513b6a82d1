# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ConfigMap for a Deployment that Helm installed belongs to the same release."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    CONFIG,
    HOME,
    NAME,
    OLD,
    Cluster,
)

LABELS = {"app.kubernetes.io/managed-by": "Helm"}
RELEASE = {"meta.helm.sh/release-name": "koordinator", "meta.helm.sh/release-namespace": "default"}


@pytest.fixture
def on() -> t.Iterator[Cluster]:
    cluster = Cluster(None, replicas=0)
    yield cluster
    cluster.world.close()


def installed(on: Cluster, labels: t.Mapping[str, str], annotations: t.Mapping[str, str]) -> None:
    meta = {"labels": {"koord-app": NAME, **labels}, "annotations": {"note": "x", **annotations}}
    on.world.patch(kinds.DEPLOYMENTS, NAME, {"metadata": meta}, HOME)


def test_a_config_map_that_is_created_belongs_to_the_release(on: Cluster) -> None:
    installed(on, LABELS, RELEASE)
    on.roll(OLD)
    meta = on.world.get(kinds.CONFIGMAPS, CONFIG, HOME)["metadata"]
    assert (meta["labels"], meta["annotations"]) == (LABELS, RELEASE)


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({}, RELEASE),
        ({"app.kubernetes.io/managed-by": "kustomize"}, RELEASE),
        (LABELS, {"meta.helm.sh/release-name": "koordinator"}),
    ],
)
def test_a_deployment_of_no_release_gives_none(
    on: Cluster, labels: t.Mapping[str, str], annotations: t.Mapping[str, str]
) -> None:
    installed(on, labels, annotations)
    on.roll(OLD)
    meta = on.world.get(kinds.CONFIGMAPS, CONFIG, HOME)["metadata"]
    assert ("labels" in meta, "annotations" in meta) == (False, False)
