# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks for ``k8s_drain`` and ``k8s_taint``, with our module's name: they run, or are told what to write instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import kubernetes_core
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_cordon, arguments_taint
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments as guard
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.test_playbooks import ASKED, REPOSITORY, play

OURS = "kubeops.node_maintenance."
SPECS = {spec.name: spec for spec in (arguments_cordon.SPEC, drain.SPEC, guard.SPEC, arguments_taint.SPEC)}
GUIDE = REPOSITORY / "docs/docsite/rst/guide_kubernetes_core.rst"
Arguments = dict[str, Any]

OUT = [
    {"node_cordon": {"nodes": ["worker-1"], "state": "cordoned"}},
    {"pdb_guard": {"nodes": ["worker-1"], "state": "present"}},
]
BACK = [
    {"pdb_guard": {"nodes": ["worker-1"], "state": "absent"}},
    {"node_cordon": {"nodes": ["worker-1"], "state": "uncordoned"}},
]


def drained(**more: Any) -> list[Arguments]:
    return [*OUT, {"node_drain": {"nodes": ["worker-1"], **more}}]


CONNECTION: Arguments = {
    "kubeconfig": "/home/mira/.kube/blue",
    "context": "blue",
    "host": "https://blue.example.com:6443",
    "api_key": "a-token",
    "username": "mira",
    "password": "a-password",
    "validate_certs": True,
    "verify_ssl": False,
    "ca_cert": "/etc/blue/ca.pem",
    "ssl_ca_cert": "/etc/blue/ca.pem",
    "client_cert": "/etc/blue/mira.pem",
    "cert_file": "/etc/blue/mira.pem",
    "client_key": "/etc/blue/mira.key",
    "key_file": "/etc/blue/mira.key",
    "proxy": "http://proxy.example.com:3128",
    "no_proxy": "localhost,.example.com",
    "proxy_headers": {"proxy_basic_auth": "mira:secret", "basic_auth": "mira:secret", "user_agent": "plays"},
    "persist_config": True,
    "impersonate_user": "otto",
    "impersonate_groups": ["admins", "viewers"],
}
"""Each option by which their modules connect, under all its names."""

DRAIN: list[tuple[str, Arguments, list[Arguments]]] = [
    ("name", {}, []),
    ("state", {"state": "drain"}, drained()),
    ("state", {"state": "cordon"}, OUT[:1]),
    ("state", {"state": "uncordon"}, BACK),
    ("pod_selectors", {"pod_selectors": ["app!=a", "tier in (x, y)"]}, drained(pod_selector="app!=a,tier in (x, y)")),
    ("pod_selectors", {"pod_selectors": "app!=a"}, drained(pod_selector="app!=a")),
    ("label_selectors", {"label_selectors": ["app=a"]}, drained(pod_selector="app=a")),
    ("delete_options", {"delete_options": {}}, drained()),
    ("delete_options.terminate_grace_period", {}, drained(grace_period=30)),
    ("delete_options.force", {}, drained(force=True)),
    ("delete_options.ignore_daemonsets", {}, drained(ignore_daemonsets=True)),
    ("delete_options.delete_emptydir_data", {}, drained(delete_emptydir_data=True)),
    ("delete_options.disable_eviction", {}, drained(disable_eviction=True)),
    ("delete_options.wait_timeout", {}, drained(timeout=300)),
    ("delete_options.wait_timeout", {"delete_options": {"wait_timeout": 0}}, drained()),
    ("delete_options.wait_sleep", {}, drained()),
]
"""Each option of their ``k8s_drain``: arguments beside the name, and the tasks to write, none if it runs."""
VALUES = {"terminate_grace_period": 30, "wait_timeout": 300, "wait_sleep": 10}

TAINTS = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
TAINT: list[tuple[str, Arguments, str]] = [
    ("name", {}, ""),
    ("state", {"state": "present"}, ""),
    ("state", {"state": "absent"}, ""),
    ("taints", {}, ""),
    ("taints.key", {"taints": [{"key": "dedicated"}], "state": "absent"}, ""),
    ("taints.value", {"taints": TAINTS, "state": "absent"}, ""),
    ("taints.effect", {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}, ""),
    ("replace", {"replace": True}, "state: exact"),
    ("replace", {"replace": "yes", "state": "present"}, "state: exact"),
    ("replace", {"replace": False}, "Leave it out."),
    ("replace", {"replace": True, "state": "absent"}, "Leave it out."),
]
"""Each option of their ``k8s_taint``, and what its message says; nothing if it runs."""


def understood(module: str, arguments: Arguments) -> None:
    """The module takes the arguments, up to its first request."""
    spec = SPECS[module]
    validation = ArgumentSpecValidator(spec.argument_spec, **spec.rules).validate(arguments)
    assert validation.error_messages == []
    params = spec.converted(validation.validated_parameters)
    assert params["nodes"] == ("worker-1",)
    spec.prepare(params)


def tasks(message: str) -> list[Arguments]:
    """The tasks that the message says to write, by the module's short name; all of them are ones that run."""
    assert message.startswith("Written for kubernetes.core.k8s_drain: ")
    written = yaml.safe_load(message.partition("\n")[2])
    found = [{name.removeprefix(OURS): arguments for name, arguments in task.items()} for task in written]
    for task in found:
        ((module, arguments),) = task.items()
        understood(module, dict(arguments))
    return found


def arguments_of(option: str, given: Arguments) -> Arguments:
    inner = option.partition("delete_options.")[2]
    if inner and not given:
        given = {"delete_options": {inner: VALUES.get(inner, True)}}
    return {"name": "worker-1", **given}


@pytest.mark.parametrize("module", ["node_drain", "node_cordon"])
@pytest.mark.parametrize(("option", "given", "instead"), DRAIN)
def test_an_option_of_k8s_drain(option: str, given: Arguments, instead: list[Arguments], module: str) -> None:
    arguments = arguments_of(option, given)
    message = SPECS[module].foreign(arguments)
    if instead:
        assert tasks(message) == instead
        assert option in message.partition("\n")[0]
    else:
        assert message == ""
        understood(module, arguments)


@pytest.mark.parametrize(("option", "given", "instead"), TAINT)
def test_an_option_of_k8s_taint(option: str, given: Arguments, instead: str) -> None:
    arguments = {"name": "worker-1", "taints": TAINTS, **given}
    message = arguments_taint.SPEC.foreign(arguments)
    assert message.endswith(instead)
    assert bool(message) is bool(instead)
    if message:
        assert f"kubernetes.core.k8s_taint: {option}" in message
    else:
        understood("node_taint", arguments)


@pytest.mark.parametrize("module", sorted(SPECS))
@pytest.mark.parametrize("option", CONNECTION)
def test_an_option_of_the_connection_is_the_same(option: str, module: str) -> None:
    arguments = {"nodes": ["worker-1"], option: CONNECTION[option]}
    if module == "node_taint":
        arguments["taints"] = TAINTS
    assert SPECS[module].foreign(arguments) == ""
    understood(module, arguments)


def test_all_options_of_a_task_are_told_at_once_without_a_secret() -> None:
    inner = {"force": True, "wait_sleep": 1, "wait_timeout": 60}
    given = {"name": "worker-1", "state": "drain", "delete_options": inner, "api_key": "canary", "host": "https://a"}
    message = drain.SPEC.foreign(given)
    told = "state: drain, delete_options.force, delete_options.wait_sleep, delete_options.wait_timeout"
    assert f"k8s_drain: {told}. Instead of this task write, with the same connection options:\n" in message
    assert tasks(message) == drained(force=True, timeout=60)
    assert "canary" not in message


@pytest.mark.parametrize("state", [*arguments_cordon.SPEC.options["state"]["choices"], "gone", ["drain"]])
def test_another_state_is_not_theirs(state: object) -> None:
    assert arguments_cordon.SPEC.foreign({"nodes": ["worker-1"], "state": state}) == ""
    assert drain.SPEC.foreign({"nodes": ["worker-1"], "state": state}) == ""


PLAYBOOK = """
- name: Empty it, bare pods as well
  kubernetes.core.k8s_drain:
    name: worker-1
    state: drain
    delete_options:
      force: true
- name: Empty it, and let its pods take a quarter of an hour
  kubernetes.core.k8s_drain:
    name: worker-1
    state: drain
    delete_options:
      terminate_grace_period: 900
- name: Empty it of all but two drivers
  kubernetes.core.k8s_drain:
    name: worker-1
    state: drain
    pod_selectors:
      - app!=csi-attacher
      - app!=csi-provisioner
- name: Let it take no new pods
  kubernetes.core.k8s_drain:
    name: worker-1
    state: cordon
- name: Let it take pods again
  kubernetes.core.k8s_drain:
    name: worker-1
    state: uncordon
- name: Set a taint without a value
  kubernetes.core.k8s_taint:
    name: worker-1
    state: present
    taints:
      - effect: NoExecute
        key: example.com/broken
- name: Set two taints of one key
  kubernetes.core.k8s_taint:
    name: worker-1
    state: present
    taints:
      - effect: NoExecute
        key: dedicated
        value: gpu
      - effect: NoSchedule
        key: dedicated
        value: gpu
- name: Remove one of them
  kubernetes.core.k8s_taint:
    name: worker-1
    state: absent
    taints:
      - effect: NoExecute
        key: dedicated
        value: gpu
"""
"""What the examples of both modules show."""
WRITTEN: dict[str, list[Arguments]] = {
    "Empty it, bare pods as well": drained(force=True),
    "Empty it, and let its pods take a quarter of an hour": drained(grace_period=900),
    "Empty it of all but two drivers": drained(pod_selector="app!=csi-attacher,app!=csi-provisioner"),
    "Let it take no new pods": OUT[:1],
    "Let it take pods again": BACK,
}
"""What to write instead of those that do not run as they are."""


@pytest.mark.parametrize("task", yaml.safe_load(PLAYBOOK), ids=lambda task: str(task["name"]))
def test_a_task_as_in_their_examples(task: Arguments) -> None:
    (name,) = (key for key in task if "." in key)
    module = {"k8s_drain": "node_drain", "k8s_taint": "node_taint"}[name.rpartition(".")[2]]
    message = SPECS[module].foreign(task[name])
    if task["name"] in WRITTEN:
        assert tasks(message) == WRITTEN[task["name"]]
    else:
        assert message == ""
        understood(module, task[name])


def test_a_playbook_with_the_new_names_ends_before_its_first_request(tmp_path: Path) -> None:
    renamed = PLAYBOOK.replace("kubernetes.core.k8s_drain", f"{OURS}node_drain")
    renamed = renamed.replace("kubernetes.core.k8s_taint", f"{OURS}node_taint")
    site = tmp_path / "site.yml"
    ran = [{**task, "ignore_errors": True} for task in yaml.safe_load(renamed)]
    site.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": ran}], sort_keys=False))
    code, text = play(tmp_path, str(site))
    assert code == 0
    for name, instead in WRITTEN.items():
        _before, _name, after = text.partition(f"TASK [{name}]")
        assert _name
        told = after.partition("TASK [")[0].partition("PLAY RECAP")[0]
        assert ASKED not in told
        for task in instead:
            ((module, arguments),) = task.items()
            flow = yaml.safe_dump(arguments, default_flow_style=True, sort_keys=False, width=1000).strip()
            assert f"- {OURS}{module}: {flow}" in told
    assert text.count(ASKED) >= len(ran) - len(WRITTEN), "the others run, and reach for the cluster"


ROW = re.compile(r"   \* - ``([\w.]+)``\n     - ?(.*)\n     - ?.*(?:\n       .+)*\n")


def test_the_guide_and_these_tests_have_all_options() -> None:
    found = ROW.findall(GUIDE.read_text("utf-8"))
    ours = {name: f"``{name}``" if name else "" for name in kubernetes_core.OURS.values()}
    drain_rows = [("name", "``nodes``"), *((name, ours[one]) for name, one in kubernetes_core.OURS.items())]
    assert found[: len(drain_rows)] == drain_rows
    assert {option for option, _given, _instead in DRAIN} - {"delete_options"} == {name for name, _ours in drain_rows}
    assert [name for name, _ours in found[len(drain_rows) :]] == list(dict.fromkeys(one for one, *_more in TAINT))


def test_the_guide_has_the_tasks_of_each_state() -> None:
    text = GUIDE.read_text("utf-8")
    for state in kubernetes_core.STATES:
        message = drain.SPEC.foreign({"name": "worker-1", "state": state})
        block = "".join(f"   {line}\n" for line in message.splitlines()[1:])
        assert f"``state: {state}``" in text
        assert f".. code-block:: yaml\n\n{block}\n" in text
