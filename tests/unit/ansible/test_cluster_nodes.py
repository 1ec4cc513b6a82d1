# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory plugin, run by ``ansible-inventory`` with an API server that counts its requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

import ansible_collections.kubeops.node_maintenance as collection
from ansible_collections.kubeops.node_maintenance.plugins.inventory import cluster_nodes as plugin
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_inventory, inventory_hosts
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import Api, Call
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import node

TREE = next(iter(collection.__path__)).removesuffix("/ansible_collections/kubeops/node_maintenance")
NODES = "/api/v1/nodes"
TOKEN = "canary-token"


@pytest.fixture
def api() -> t.Iterator[Api]:
    made = Api()
    yield made
    made.close()


def listed(folder: Path, options: dict[str, t.Any], **environ: str) -> tuple[dict[str, t.Any], str]:
    """What ``ansible-inventory --list`` prints, and its messages as one line."""
    printed, messages = ran(folder, options, "inventory", "--list", **environ)
    return json.loads(printed, object_hook=_plain), messages


def ran(folder: Path, options: dict[str, t.Any], *words: str, **environ: str) -> tuple[str, str]:
    """What a command of Ansible prints with this configuration, and its messages as one line."""
    return ran_with(folder, {"prod": options}, *words, **environ)


def ran_with(folder: Path, files: dict[str, dict[str, t.Any]], *words: str, **environ: str) -> tuple[str, str]:
    """The same with several configurations, each in a file of its name."""
    for name, options in files.items():
        words = (*words, "-i", f"{name}.cluster_nodes.yml")
        content = {"plugin": "kubeops.node_maintenance.cluster_nodes", **options}
        (folder / words[-1]).write_text(yaml.safe_dump(content))
    (folder / "ansible.cfg").touch()
    known = {key: value for key, value in os.environ.items() if not key.startswith(("K8S_AUTH_", "KUBECONFIG"))}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", *words],
        cwd=folder,
        env={
            **known,
            "ANSIBLE_COLLECTIONS_PATH": TREE,
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(folder),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    messages = " ".join(done.stderr.split())
    assert TOKEN not in messages
    return done.stdout, messages


def _plain(found: dict[str, t.Any]) -> t.Any:
    """Since core 2.19 a text that is no template is printed as a mapping that says so."""
    return found["__ansible_unsafe"] if found.keys() == {"__ansible_unsafe"} else found


def serve(api: Api, nodes: list[t.Any], **query: str) -> None:
    """The list of nodes by pages, as often as it is asked for."""
    size = verbs.PAGES[kinds.NODES]
    pages = [nodes[start : start + size] for start in range(0, len(nodes), size)] or [[]]
    for number, page in enumerate(pages):
        token = str(number + 1) if number + 1 < len(pages) else ""
        body = {"kind": "NodeList", "metadata": {"resourceVersion": "9", "continue": token}, "items": page}

        def fits(call: Call, number: int = number) -> bool:
            return call.query.get("continue", "") == (str(number) if number else "")

        api.expect("GET", NODES, json.dumps(body), query=query, matches=fits, stays=True)


def test_five_thousand_nodes_take_one_request_a_page(api: Api) -> None:
    serve(api, [node(f"node-{number:04}") for number in range(5000)])
    found = arguments_inventory.read({"host": api.url, "api_key": TOKEN}, {})
    assert [(call.method, call.query.get("limit")) for call in api.calls] == [("GET", "250")] * 20
    assert [host.name for host in arguments_inventory.hosts(found, inventory_hosts.InventoryOptions())][::4999] == [
        "node-0000",
        "node-4999",
    ]


def test_the_cache_has_no_secrets_and_needs_no_request(api: Api, tmp_path: Path) -> None:
    serve(api, [node(f"n{number}", labels={"pool": f"p{number % 2}"}) for number in range(3)])
    options = {
        "host": api.url,
        "api_key": "{{ lookup('env', 'TOKEN') }}",
        "cache": True,
        "cache_plugin": "ansible.builtin.jsonfile",
        "cache_connection": "cached",
    }
    first, _unused = listed(tmp_path, options, TOKEN=TOKEN)
    again, _unused = listed(tmp_path, {**options, "label_groups": ["pool"]}, TOKEN=TOKEN)
    assert [call.header("authorization") for call in api.calls] == [f"Bearer {TOKEN}"]
    assert again["_meta"]["hostvars"] == first["_meta"]["hostvars"]
    assert again["label_pool_p0"]["hosts"] == ["n0", "n2"]
    assert [path.name for path in (tmp_path / "cached").iterdir() if TOKEN in path.read_text()] == []
    assert list((tmp_path / "cached").iterdir()) != []
    (tmp_path / "all.yml").write_text("- hosts: all")
    ran(tmp_path, options, "playbook", "all.yml", "--list-hosts", "--flush-cache", TOKEN=TOKEN)
    assert len(api.calls) == 2


def test_the_cache_is_of_one_cluster_and_one_selector(api: Api, tmp_path: Path) -> None:
    other = Api()
    serve(api, [node("here")], labelSelector="pool=a")
    serve(api, [node("every")])
    serve(other, [node("there")])
    options = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": "cached"}
    credentials = {"K8S_AUTH_API_KEY": TOKEN, "K8S_AUTH_HOST": api.url}
    chosen = {**options, "node_selector": "pool=a"}
    assert list(listed(tmp_path, chosen, **credentials)[0]["_meta"]["hostvars"]) == ["here"]
    assert list(listed(tmp_path, options, **credentials)[0]["_meta"]["hostvars"]) == ["every"]
    credentials["K8S_AUTH_HOST"] = other.url
    assert list(listed(tmp_path, options, **credentials)[0]["_meta"]["hostvars"]) == ["there"]
    assert (len(api.calls), len(other.calls)) == (2, 1)
    other.close()


def test_groups_and_variables_of_the_users_own(api: Api, tmp_path: Path) -> None:
    kept = '{"nonce":"a-nonce","v":1}'
    serve(api, [node("n1", labels={"pool": "a-b"}, annotations={names.RECORD: kept}), node("n2")])
    options = {
        "host": api.url,
        "api_key": TOKEN,
        "compose": {"ansible_user": "'ops'", "wrong": "nothing.there"},
        "groups": {"has_pool": "'pool' in node_labels"},
        "keyed_groups": [{"prefix": "pool", "key": "node_labels.pool | default('none')"}],
    }
    found, messages = listed(tmp_path, options)
    assert found["_meta"]["hostvars"]["n1"]["ansible_user"] == "ops"
    assert "wrong" not in found["_meta"]["hostvars"]["n1"]
    assert found["has_pool"]["hosts"] == ["n1"]
    assert (found["pool_a_b"]["hosts"], found["pool_none"]["hosts"]) == (["n1"], ["n2"])
    assert found["maintenance_unreadable"]["hosts"] == ["n1"]
    assert names.RECORD in messages
    assert "a-nonce" not in json.dumps(found) + messages
    _none, messages = listed(tmp_path, {**options, "strict": True})
    assert "Could not set wrong for host n1" in messages


UNUSABLE: list[tuple[dict[str, t.Any], str]] = [
    ({"node_selctor": "pool=a"}, "cluster_nodes: 'node_selctor' cannot be used. Expected: node_selector."),
    ({"zzz": 1}, "cluster_nodes: 'zzz' cannot be used. Expected: one of address_types, api_key, "),
    ({"maintained_annotation": "x", "maintain_every": "a month"}, "maintain_every: 'a month' cannot be used."),
    ({"maintain_every": "30d"}, "maintain_every: '30d' cannot be used. Expected: maintained_annotation with it"),
    ({"node_selector": "pool in a"}, "node_selector: 'pool in a' cannot be used."),
    ({"group_by": ["zones"]}, "zones"),
    ({}, "no credentials: "),
    ({"host": "http://127.0.0.1:1", "api_key": TOKEN}, "cannot be reached"),
]


def test_input_that_cannot_be_used(tmp_path: Path) -> None:
    files = {f"file{number}": options for number, (options, _message) in enumerate(UNUSABLE)}
    printed, messages = ran_with(tmp_path, files, "inventory", "--list")
    assert not json.loads(printed)["_meta"].get("hostvars")
    for _options, message in UNUSABLE:
        _before, found, messages = messages.partition(message)
        assert found, f"not told, or not in the order of the files: {message}"


@pytest.mark.parametrize(
    ("name", "takes"),
    [("cluster_nodes.yml", True), ("a.cluster_nodes.yaml", True), ("cluster_nodes.json", False), ("nodes.yml", False)],
)
def test_files_are_known_by_their_names(name: str, takes: bool, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert plugin.InventoryModule().verify_file(str(tmp_path / name)) is takes


def test_the_documentation_has_the_choices_and_defaults_of_the_code() -> None:
    documented = yaml.safe_load(plugin.DOCUMENTATION)["options"]
    default = inventory_hosts.InventoryOptions()
    assert tuple(documented["address_types"]["choices"]) == inventory_hosts.ADDRESS_TYPES
    assert tuple(documented["address_types"]["default"]) == default.address_types
    assert tuple(documented["group_by"]["choices"]) == inventory_hosts.GROUPINGS
    assert tuple(documented["group_by"]["default"]) == default.group_by
    assert arguments_inventory.SPEC.options.keys() <= documented.keys()


def test_the_example_is_a_configuration_file() -> None:
    (example,) = yaml.safe_load_all(plugin.EXAMPLES)
    documented = yaml.safe_load(plugin.DOCUMENTATION)["options"]
    own = {name: example.pop(name) for name in documented if name in example}
    assert own.pop("plugin") == plugin.InventoryModule.NAME
    chosen = arguments_inventory.wanted({**{name: one.get("default") for name, one in documented.items()}, **own})
    assert chosen.maintain_every == 30 * 86400
    with pytest.raises(option_values.BadOption, match=r"'keyed_group' cannot be used. Expected: keyed_groups."):
        arguments_inventory.refuse_unknown(["keyed_group"], {"keyed_groups"})
