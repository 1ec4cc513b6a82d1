# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import functools
import typing as t

from ansible.parsing.dataloader import DataLoader
from ansible.utils import vars as ansible_vars

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _task_files

DOCUMENTATION = r"""
name: maintain_input
short_description: Reads the input of the maintenance playbooks
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Converts the C(maintain_*) variables from a survey, C(-e) or an inventory into their final types, and reports all
    errors at once.
  - For the playbooks of this collection only; it may change at any time.
positional: playbook, others, folder
options:
  _input:
    description: The variables by their full names.
    type: dict
    required: true
  playbook:
    description: Name of the playbook.
    type: str
    required: true
  others:
    description: Names of other variables that may be typing errors.
    type: list
    elements: str
  folder:
    description: The directory of the playbook, in which the roles of your tasks are searched.
    type: str
    default: '.'
"""

EXAMPLES = r"""
- name: Show the input of a playbook
  ansible.builtin.debug:
    msg: "{{ {'maintain_nodes': 'worker-1 worker-2'} | kubeops.node_maintenance.maintain_input('maintain') }}"
"""

RETURN = r"""
_value:
  description: The input, with a list of its C(errors).
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"maintain_input": _maintain_input}


def _maintain_input(
    variables: t.Mapping[str, t.Any], playbook: str, others: t.Iterable[str] = (), folder: str = "."
) -> dict[str, t.Any]:
    extra = ansible_vars.load_extra_vars(DataLoader())
    fault = functools.partial(_task_files.fault, folder=folder)
    unparsed = {name: extra[name] for name in (inputs.UNPARSED,) if name in extra}
    return inputs.read({**variables, **dict.fromkeys(others), **unparsed}, playbook, extra, fault)
