# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file of tasks that Ansible cannot load is found before the first request; nothing is said of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks import test_playbooks as playbooks

UNKNOWN = "- name: One\n  ansible.builtin.debug: {msg: a}\n- name: Two\n  ansible.builtin.aptt:\n    name: x\n"
PART_OF_ROLE = "- ansible.builtin.include_tasks: more.yml\n"
GOOD = {
    "tasks": """
- name: With everything that is decided only when it runs
  ansible.builtin.package: {name: "{{ undefined }}"}
  become: true
  delegate_to: "{{ undefined }}"
  loop: "{{ undefined }}"
  notify: Nobody
- action: "{{ ansible_facts.pkg_mgr }} name=x"
- block:
    - ansible.builtin.import_tasks: parts/good.yml
    - ansible.builtin.import_role: {name: beside}
  rescue:
    - ansible.builtin.include_tasks: none.yml
- ansible.builtin.include_role: {name: beside, tasks_from: more}
- kubeops.node_maintenance.node_cordon: {nodes: a}
- ansible.builtin.meta: flush_handlers
""",
    "of_a_variable": (
        "- ansible.builtin.import_tasks: '{{ kubeops_hook.hook }}.yml'\n"
        "- ansible.builtin.include_role: {name: '{{ a }}'}\n"
    ),
    "under_a_condition": (
        "- ansible.builtin.include_tasks: unknown.yml\n  when: windows\n"
        "- when: windows\n  block:\n    - ansible.builtin.include_role: {name: nowhere}\n"
    ),
    "of_itself": "- ansible.builtin.include_tasks: of_itself.yml\n",
    "encrypted": "$ANSIBLE_VAULT;1.1;AES256\n3038\n",
    "empty": "",
}
BAD = {
    "scan": ("- name: One\n  ansible.builtin.debug:\n    msg: 'a\n- x: [\n", "scan.yml, line 5"),
    "unknown": (UNKNOWN, "unknown.yml, line 3: couldn't resolve module/action 'ansible.builtin.aptt'"),
    "keyword": (
        "- name: One\n  ansible.builtin.debug: {msg: a}\n  whenn: x\n",
        "keyword.yml, line 1: conflicting action",
    ),
    "play": ("- hosts: all\n  tasks:\n    - ansible.builtin.debug: {msg: a}\n", "This is a play"),
    "mapping": ("tasks: []\n", "mapping.yml, line 1: included task files must contain a list of tasks"),
    "words": ("- One\n", "words.yml: "),
    "imports": ("- ansible.builtin.import_tasks: unknown.yml\n", "unknown.yml, line 3: couldn't resolve"),
    "includes": (
        "- block:\n    - ansible.builtin.include_tasks: unknown.yml\n",
        "unknown.yml, line 3: couldn't resolve",
    ),
    "role": ("- ansible.builtin.import_role: {name: nowhere}\n", "role.yml, line 1: the role 'nowhere' was not found"),
    "later_role": ("- ansible.builtin.include_role: {name: nowhere}\n", "later_role.yml, line 1: the role 'nowhere'"),
    "in_role": ("- ansible.builtin.include_role: {name: broken}\n", "roles/broken/tasks/more.yml, line 3"),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The errors of the input for each file, in one play."""
    folder = tmp_path_factory.mktemp("files")
    files = {**GOOD, **{name: text for name, (text, _said) in BAD.items()}}
    files["parts/good"] = "- ansible.builtin.debug: {msg: a}\n"
    files |= {f"roles/beside/tasks/{name}": "- ansible.builtin.debug: {msg: a}\n" for name in ("main", "more")}
    files |= {"roles/broken/tasks/main": PART_OF_ROLE, "roles/broken/tasks/more": UNKNOWN}
    for name, text in files.items():
        (folder / f"{name}.yml").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    read: dict[str, Any] = {
        "name": "Keep the errors",
        "ansible.builtin.set_fact": {"found": "{{ found | default({}) | combine({item: read.errors}) }}"},
        "vars": {
            "given": {"maintain_nodes": "a", "maintain_fence_tasks": "{{ item }}.yml"},
            "read": "{{ given | kubeops.node_maintenance.maintain_input('plan', [], playbook_dir) }}",
        },
        "loop": [*GOOD, *BAD],
    }
    told = {"name": "Tell", "ansible.builtin.copy": {"dest": f"{folder}/said.json", "content": "{{ found | to_json }}"}}
    play = {"name": "Read", "hosts": "localhost", "gather_facts": False, "tasks": [read, told]}
    (folder / "site.yml").write_text(yaml.safe_dump([play]))
    code, text = playbooks.play(folder, "site.yml")
    assert code == 0, text
    found: dict[str, list[str]] = json.loads((folder / "said.json").read_text())
    return found


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_said_of_a_file_that_can_be_loaded(said: dict[str, list[str]], name: str) -> None:
    assert said[name] == []


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line(said: dict[str, list[str]], name: str) -> None:
    (error,) = said[name]
    assert error.lower().startswith("maintain_fence_tasks: /")
    assert BAD[name][1].lower() in error.lower()


def test_the_files_of_all_variables_are_loaded(tmp_path: Path) -> None:
    for name in ("tasks", "fence", "node", "pod"):
        (tmp_path / f"{name}.yml").write_text(UNKNOWN)
    variables: dict[str, object] = {
        "maintain_nodes": "a",
        "maintain_tasks": "tasks.yml",
        "maintain_fence_tasks": "fence.yml",
        "maintain_before_node": [{"nodes": "a", "tasks": "node.yml"}],
        "maintain_after_pod": [{"pods": "a", "tasks": "pod.yml"}],
    }
    code, text = playbooks.play(tmp_path, "maintain", "--check", variables=variables)
    assert code == 2
    for name in ("tasks", "fence", "node", "pod"):
        assert f"{name}.yml, line 3: couldn't resolve module/action" in text
    assert "maintain_after_pod[0].tasks: " in text
    assert playbooks.ASKED not in text
