# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    arguments_yaml,
)

DOCUMENTATION = r"""
name: to_koordinator
short_description: Converts a policy of the sigs descheduler to a configuration of koord-descheduler
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Turns a C(DeschedulerPolicy) of sigs.k8s.io/descheduler 0.36 into a C(DeschedulerConfiguration) of Koordinator, and
    lists what has no counterpart there. Read that list before you roll the configuration out.
  - MigrationController replaces DefaultEvictor, with C(defaultJobMode=EvictDirectly), because the sigs descheduler
    reserves no capacity.
  - A plugin is taken over with all of its arguments or left out. Without one of them it would evict other pods.
  - Fails if the policy has errors.
positional: version, interval
options:
  _input:
    description: The policy, as YAML text or as a dictionary.
    type: raw
    required: true
  version:
    description: The version of Koordinator.
    type: str
    choices: ['1.7.0', '1.8.0']
    default: '1.7.0'
  interval:
    description: What the flag C(--descheduling-interval) of the sigs descheduler is set to, such as C(5m). Without it
      the plugins run once after each start.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: Convert the policy
  ansible.builtin.set_fact:
    converted: "{{ policy | kubeops.node_maintenance.to_koordinator(interval='5m') }}"
  vars:
    policy: "{{ lookup('ansible.builtin.file', 'policy.yaml') }}"

- name: Show what has no counterpart
  ansible.builtin.debug:
    var: converted.left_out

- name: Roll it out
  kubeops.node_maintenance.descheduler_config:
    flavor: koordinator
    config: "{{ converted.config }}"
"""

RETURN = r"""
_value:
  description: The configuration, and what it lacks.
  type: dict
  contains:
    config:
      description: The C(DeschedulerConfiguration).
      type: dict
    left_out:
      description: What has no counterpart; C(path) in the policy, C(value), and C(reason) with what there is instead.
      type: list
      elements: dict
"""


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"to_koordinator": arguments_yaml.to_koordinator}
