# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster_nodes
short_description: Nodes of a Kubernetes cluster as hosts
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Each node is a host, named as the node, with its address, labels, taints, conditions, versions and state of
    maintenance as variables, in groups by these.
  - The nodes are read by pages of 1,000. Nothing is written.
  - The name of the file has to end with V(cluster_nodes.yml) or V(cluster_nodes.yaml).
notes:
  - "Variables of each host: C(node_name), C(node_roles), C(node_zone), C(node_region), C(node_labels), C(node_taints),
    C(node_schedulable), C(node_ready), C(node_conditions) (status by type), C(node_addresses) (a list for each type),
    C(node_versions), C(node_maintenance) (its state), C(node_record) (who maintains it, since when and why; empty if
    nobody does). With O(maintained_annotation) also C(node_maintained) and C(node_maintained_ago) (seconds; null if it
    never was), with O(maintain_every) C(node_maintenance_due)."
  - Credentials are neither cached nor set as variables. The cache is kept apart for each API server, context, user
    that is impersonated, and selector.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description: Name of this plugin.
    type: str
    required: true
    choices: [kubeops.node_maintenance.cluster_nodes]
  node_selector:
    description: A label selector of the nodes, such as V(node-role.kubernetes.io/worker). Without it, all nodes.
    type: str
  address_types:
    description:
      - Types of addresses. The first of these that a node has becomes C(ansible_host), if it is an IP address or a DNS
        name.
      - With an empty list, C(ansible_host) is not set, and Ansible connects to the node's name.
    type: list
    elements: str
    choices: [InternalIP, ExternalIP, Hostname, InternalDNS, ExternalDNS]
    default: [InternalIP, Hostname]
  group_by:
    description:
      - What nodes are grouped by, besides the group C(cluster_nodes) of all of them. O(compose), O(groups) and
        O(keyed_groups) make others.
      - "V(role): C(role_control_plane), and so on by the labels C(node-role.kubernetes.io/*); C(role_worker) without
        such a label. V(region) and V(zone): C(region_*), C(zone_*). V(taint): C(taint_<key>_<effect>)."
      - "V(ready): C(ready) or C(not_ready), and C(unschedulable)."
      - "V(maintenance): C(maintenance_cordoned), C(maintenance_drained), C(maintenance_out) (tasks are running),
        C(maintenance_returning), C(maintenance_parked) (out of service, and nobody works on it), C(maintenance_waiting)
        (for its wave), C(maintenance_none), or C(maintenance_unreadable) if the node's record is broken."
      - "V(due): with O(maintain_every) C(maintenance_due) or C(maintenance_not_due)."
    type: list
    elements: str
    choices: [role, region, zone, taint, ready, maintenance, due]
    default: [role, region, zone, taint, ready, maintenance, due]
  label_groups:
    description: Keys of labels. Nodes that have them are in the groups C(label_<key>_<value>).
    type: list
    elements: str
    default: []
  maintained_annotation:
    description:
      - An annotation of yours with the time of the node's last maintenance, such as V(2026-11-21T05:30:00Z) (RFC 3339).
      - Hosts, also those of a group, are then ordered by it, the oldest first, nodes without it before all others.
      - This collection leaves nothing on a node after a maintenance; set the annotation as the last of your tasks.
    type: str
  maintain_every:
    description:
      - How long after its last maintenance a node is due again, such as V(30d). A node without a time is due.
      - Requires O(maintained_annotation).
    type: str
"""

EXAMPLES = r"""
---
# prod.cluster_nodes.yml; see the result with: ansible-inventory -i prod.cluster_nodes.yml --graph
plugin: kubeops.node_maintenance.cluster_nodes
# Without connection options, K8S_AUTH_* of the environment, KUBECONFIG or ~/.kube/config is used.
kubeconfig: ~/.kube/prod
context: prod-admin
node_selector: "!node-role.kubernetes.io/control-plane"
address_types: [ExternalIP, InternalIP]
label_groups:
  - node.kubernetes.io/instance-type
maintained_annotation: example.com/maintained-at
maintain_every: 30d
compose:
  ansible_user: "'core' if 'Flatcar' in node_versions.os_image else 'ops'"
groups:
  old_kernels: node_versions.kernel is version('6.8', '<')
keyed_groups:
  - prefix: pool
    key: node_labels['example.com/pool'] | default('none')
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/cluster_nodes
cache_timeout: 600
"""

import os
import typing as t

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    connection_options,
    option_values,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_inventory,
)

try:
    # Since ansible-core 2.19 only what is marked as trusted is a template.
    from ansible.template import trust_as_template as _trusted  # noqa: F401
except ImportError:
    from ansible.utils.unsafe_proxy import wrap_var as no_template
else:

    def no_template(value: t.Any) -> t.Any:
        """The value, which is no template as it is."""
        return value


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    NAME = "kubeops.node_maintenance.cluster_nodes"

    def verify_file(self, path: str) -> bool:
        """Whether the file may be of this plugin, by its name."""
        return bool(super().verify_file(path)) and path.endswith(arguments_inventory.SUFFIXES)

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Ansible's entry point."""
        super().parse(inventory, loader, path, cache)
        given = self._read_config_data(path)
        try:
            arguments_inventory.refuse_unknown(given, self._known())
            found = self._found()
            wanted = arguments_inventory.wanted(found)
            nodes = self._nodes(found, path, cache)
        except (option_values.BadOption, arguments_inventory.NotReadError) as error:
            raise AnsibleParserError(str(error)) from None
        for host in arguments_inventory.hosts(nodes, wanted):
            self._add(host, found)

    def _known(self) -> set[str]:
        """The options by all their names."""
        aliases = [
            alias
            for option in self.option_definitions.values()
            for alias in option.get("aliases") or ()
        ]
        return {*self.option_definitions, *aliases}

    def _found(self) -> dict[str, t.Any]:
        """The options' values; those of the connection may be templates,
        such as a look-up of a token.
        """
        found = {name: self.get_option(name) for name in self.option_definitions}
        self.templar.available_variables = self._vars
        return {
            **found,
            **{name: self.templar.template(found[name]) for name in connection_options.CONNECTION},
        }

    def _nodes(
        self, found: t.Mapping[str, t.Any], path: str, cache: bool
    ) -> list[dict[str, t.Any]]:
        """The nodes, from the cache if the user wants one;
        ``cache`` is false if Ansible is to refresh it.
        """
        if not found["cache"]:
            return arguments_inventory.read(found, os.environ)
        key = self.get_cache_key(f"{path} {arguments_inventory.source(found, os.environ)}")
        if not cache or key not in self._cache:
            self._cache[key] = arguments_inventory.read(found, os.environ)
        return t.cast("list[dict[str, t.Any]]", self._cache[key])

    def _add(self, host: arguments_inventory.Host, found: t.Mapping[str, t.Any]) -> None:
        if host.fault:
            self.display.warning(host.fault)
        self.inventory.add_host(host.name)
        for group in host.groups:
            name = self.inventory.add_group(self._sanitize_group_name(group))
            self.inventory.add_child(name, host.name)
        variables = no_template(dict(host.variables))
        for name, value in variables.items():
            self.inventory.set_variable(host.name, name, value)
        strict = found["strict"]
        self._set_composite_vars(found["compose"], variables, host.name, strict)
        self._add_host_to_composed_groups(found["groups"], variables, host.name, strict)
        self._add_host_to_keyed_groups(found["keyed_groups"], variables, host.name, strict)
