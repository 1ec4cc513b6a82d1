# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A descheduler's configuration inside the manifest of its ConfigMap, as the documents of its vendors print it."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.option_values import BadOption
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.specs import Call, run_call
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.arguments import SPEC
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs

CONFIG = """\
# A comment that stays.
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
leaderElection:
  resourceName: koord-descheduler
  resourceNamespace: kube-system
deschedulingInterval: 120s # every two minutes
profiles:
- name: koord-descheduler
  plugins:
    deschedule:
      enabled:
        - name: RemovePodsViolatingNodeTaints
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args:
      excludedTaints:
      - deschedule=not-allow
"""
KEY = "koord-descheduler-config"


def manifest(data: t.Any) -> dict[str, t.Any]:
    meta = {"name": "mine", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def written(data: dict[str, str]) -> str:
    return str(yaml.safe_dump(manifest(data)))


DEFAULTS = {name: option.get("default") for name, option in SPEC.options.items()}


def prepared(config: t.Any, **more: t.Any) -> t.Any:
    return SPEC.prepare({**DEFAULTS, "state": "present", "config": config, "timeout": 60.0, **more})["engine"]


@pytest.mark.parametrize("config", [manifest({KEY: CONFIG}), written({KEY: CONFIG}), written({"other": CONFIG})])
def test_its_one_key_is_the_configuration_and_its_names_are_the_defaults(config: t.Any) -> None:
    engine = prepared(config)
    assert engine.desired.text == CONFIG
    assert not engine.faults
    place = engine.place
    assert (place.namespace, place.config_map, place.deployment) == ("kube-system", "mine", "koord-descheduler")
    assert place.key in (KEY, "other")
    assert prepared(config, namespace="else").place.namespace == "else"


def test_of_several_keys_the_usual_one_counts_or_the_named_one() -> None:
    config = manifest({KEY: CONFIG, "notes": "x: 1"})
    assert prepared(config).desired.text == CONFIG
    assert prepared(manifest({"a": CONFIG, "b": ""}), key="a").place.key == "a"


@pytest.mark.parametrize(
    "config",
    [
        manifest({"a": CONFIG, "b": CONFIG}),
        manifest({}),
        manifest(None),
        manifest({KEY: {"kind": "DeschedulerConfiguration"}}),
        f"{written({KEY: CONFIG})}---\n{CONFIG}",
    ],
)
def test_a_config_map_that_does_not_say_which_is_an_error(config: t.Any) -> None:
    with pytest.raises(BadOption, match="ConfigMap"):
        prepared(config)


@pytest.mark.parametrize("config", [CONFIG, yaml.safe_load(CONFIG), written({KEY: CONFIG}), manifest({KEY: CONFIG})])
def test_what_differs_between_clusters_is_merged_into_it(config: t.Any) -> None:
    other = {"deschedulingInterval": "77s", "leaderElection": {"resourceName": "mine"}}
    engine = prepared(config, overrides=other)
    wanted = yaml.safe_load(CONFIG)
    wanted |= {"deschedulingInterval": "77s", "leaderElection": {**wanted["leaderElection"], "resourceName": "mine"}}
    assert yaml.safe_load(engine.desired.text) == wanted
    assert not engine.faults
    assert {one.path for one in prepared(config, overrides={"dryrun": True}).faults} == {"dryrun"}
    for key in ("deschedulingInterval", "dryrun"):
        given = {"config": config, "overrides": {key: "77s"}}
        errors = inputs.read({"maintain_nodes": "n1", "maintain_descheduler": given}, "plan")["errors"]
        assert len(errors) == (key == "dryrun")


def test_plugins_that_nobody_knows_may_be_warned_of_only() -> None:
    own = CONFIG.replace("RemovePodsViolatingNodeTaints", "MyCompanyPlugin").replace("excludedTaints", "mine")
    strict, lenient = prepared(own), prepared(own, validate="warn")
    assert {fault.severity for fault in strict.faults} >= {"error"}
    assert {fault.severity for fault in lenient.faults} == {"warning"}
    assert (lenient.invalid, lenient.always_invalid) == (None, False)
    assert {one.code for one in lenient.faults} == {one.code for one in strict.faults}
    for text in ("a: [", CONFIG.replace("kind: DeschedulerConfiguration", "kind: DeschedulerPolicy"), "no mapping"):
        assert prepared(text, validate="warn").invalid
    given = {"maintain_nodes": "n1", "maintain_descheduler": {"config": own, "validate": "warn"}}
    assert inputs.read(given, "plan")["errors"] == []


def test_a_manifest_with_keys_of_the_configuration_beside_it_is_an_error() -> None:
    with pytest.raises(BadOption, match="dryRun"):
        prepared({**manifest({KEY: CONFIG}), "dryRun": True})


def test_a_path_is_told_how_to_be_read() -> None:
    result = run_call(SPEC, {**DEFAULTS, "state": "validated", "config": "/etc/koord-descheduler.yaml"}, Call())
    assert "lookup('ansible.builtin.file', …)" in result["msg"]


def test_faults_are_those_of_the_configuration_inside() -> None:
    broken = CONFIG.replace("120s", "120")
    result = run_call(SPEC, {**DEFAULTS, "state": "validated", "config": written({KEY: broken})}, Call())
    assert result["failed"]
    assert "deschedulingInterval" in result["msg"]
    (error,) = inputs.read(
        {"maintain_nodes": "n1", "maintain_descheduler": {"config": manifest({KEY: broken})}}, "plan"
    )["errors"]
    assert "deschedulingInterval" in error
    fine = {"maintain_nodes": "n1", "maintain_descheduler": {"config": written({KEY: CONFIG})}}
    assert inputs.read(fine, "plan")["errors"] == []
