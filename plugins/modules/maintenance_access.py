# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_access
short_description: Set up a cluster once for maintenance
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Installs a fence in the API server. It refuses evictions that a run still has in flight after it lost its lock,
    because it was frozen or cut off and another run took the node over.
  - The fence is a ValidatingAdmissionPolicy, its binding, and an object of the kind C(NodeFence) in the namespace
    C(kubeops-node-maintenance), in which runs record who holds which lock. Its CustomResourceDefinition is installed
    too.
  - It affects only evictions of this collection. All others pass as if it did not exist.
  - Everything works without it, except that this gap stays open.
requirements:
  - Kubernetes 1.30 or newer.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
options:
  state:
    description:
      - V(present) installs, V(absent) removes. The namespace stays.
    type: str
    choices: [present, absent]
    default: present
seealso:
  - module: kubeops.node_maintenance.maintenance_plan
  - module: kubeops.node_maintenance.node_drain
"""

EXAMPLES = r"""
- name: Make the API server refuse evictions from a run that lost its lock
  kubeops.node_maintenance.maintenance_access:

- name: Remove it again
  kubeops.node_maintenance.maintenance_access:
    state: absent
"""

RETURN = r"""
objects:
  description: What was installed or removed, in that order.
  returned: when the API server could be reached
  type: list
  elements: dict
  contains:
    kind: {description: Its kind., type: str, sample: ValidatingAdmissionPolicy}
    namespace: {description: Its namespace; empty if it has none., type: str}
    name: {description: Its name., type: str, sample: node-fence.maintenance.kubeops.io}
    outcome:
      description:
        - V(created) - the object was created.
        - V(changed) - the object was changed to what it should be.
        - V(deleted) - the object was deleted.
        - V(already_present) - the object was as it should be.
        - V(already_absent) - the object was not there.
      type: str
findings: {description: Why a call failed as a whole., returned: always, type: list, elements: dict}
actions: {description: "What was done, or in check mode would be done.", returned: always, type: list, elements: str}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import access, module


def main() -> None:
    module.run_module(access.SPEC)


if __name__ == "__main__":
    main()
