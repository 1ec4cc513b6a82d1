# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ConfigMap that `descheduler_config` creates for a release of Helm is one that Helm's upgrade takes for its own."""

from __future__ import annotations

import pytest
from support.charts import Helm
from support.lab import Lab
from support.plays import Player

NAMESPACE = "kube-system"
CONFIG = f"/api/v1/namespaces/{NAMESPACE}/configmaps/descheduler"
POLICY = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "default",
            "pluginConfig": [{"name": "DefaultEvictor"}, {"name": "RemoveDuplicates"}],
            "plugins": {"balance": {"enabled": ["RemoveDuplicates"]}},
        }
    ],
}


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.mark.whole
def test_an_upgrade_takes_over_a_config_map_that_the_module_created(lab: Lab, play: Player) -> None:
    helm = Helm(lab)
    chart = str(helm.chart_of_sigs())
    release = ("descheduler", chart, f"--namespace={NAMESPACE}")
    values = {"kind": "Deployment"}
    try:
        done = helm.run("install", *release, values={**values, "deschedulerPolicy": None})
        assert done.returncode == 0, done.stderr
        assert lab.api.find(CONFIG) is None

        by_hand = {"metadata": {"name": "descheduler"}, "data": {"policy.yaml": "{}"}}
        lab.api.create(CONFIG.rpartition("/")[0], by_hand)
        refused = helm.run("upgrade", *release, values=values)
        assert refused.returncode != 0
        assert "invalid ownership metadata" in refused.stderr
        lab.api.delete(CONFIG)

        run = play.module(
            "descheduler_config", flavor="sigs", config_map="descheduler", config=POLICY, restart="none", verify=False
        )
        assert run.changed, run.text
        notes = lab.api.get(CONFIG)["metadata"]["annotations"]
        assert notes.pop("maintenance.kubeops.io/restart-pending").startswith("sha256-")
        assert notes == {
            "meta.helm.sh/release-name": "descheduler",
            "meta.helm.sh/release-namespace": NAMESPACE,
        }
        taken = helm.run("upgrade", *release, values=values)
        assert taken.returncode == 0, taken.stderr
        assert "RemoveDuplicates" in lab.api.get(CONFIG)["data"]["policy.yaml"]
    finally:
        helm.run("uninstall", "descheduler", f"--namespace={NAMESPACE}")
        lab.api.delete(CONFIG)
