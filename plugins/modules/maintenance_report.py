# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_report
short_description: Write the report of a maintenance
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Writes C(report.html), one page that needs no network, and C(report.json) from the results of this collection's
    modules, and returns the summary as text.
  - Results may be partial or failed; a report is most useful after a failure.
extends_documentation_fragment:
  - kubeops.node_maintenance.attributes
options:
  results:
    description: The results of the modules, in the order of the run.
    type: list
    elements: dict
    required: true
  dest:
    description: The directory for the files. It is created if it does not exist.
    type: path
    required: true
  traffic:
    description:
      - Files in which load generators say what became of the requests that they sent to Services meanwhile, see
        R(guide_requests,ansible_collections.kubeops.node_maintenance.docsite.guide_requests).
      - 'Each is a JSON object: V(began) and V(ended) are times by RFC 3339, V(services) is a list of objects with
        V(service) (such as V(shop/web)), V(sent), V(failed), and optionally V(via) and V(kind) (how it was reached, and
        over which connections), V(dark) and V(slowest) (the longest time without an answer and for one, in seconds),
        and V(failures), a list of objects with V(at), V(kind) and V(count).'
      - A file that cannot be read, or was written at another time than that of the run, is named in the report and
        otherwise left out.
    type: list
    elements: path
    default: []
"""

EXAMPLES = r"""
- name: Plan
  kubeops.node_maintenance.maintenance_plan:
    nodes: [worker-1]
  register: planned

- name: Take the node out of service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1]
  register: cordoned

- name: Start second pods of single replicas, and give pods without a budget one
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1]
  register: guarded

- name: Drain it
  kubeops.node_maintenance.node_drain:
    nodes: [worker-1]
  register: drained

- name: Remove these budgets again
  kubeops.node_maintenance.pdb_guard:
    nodes: [worker-1]
    state: absent
  register: unguarded

- name: Return the node to service
  kubeops.node_maintenance.node_cordon:
    nodes: [worker-1]
    state: uncordoned
  register: released

- name: Write the report
  kubeops.node_maintenance.maintenance_report:
    results: "{{ [planned, cordoned, guarded, drained, unguarded, released] }}"
    dest: ./report
"""

RETURN = r"""
html: {description: Path of the page., returned: success, type: str, sample: /home/mira/report/report.html}
json: {description: Path of the data., returned: success, type: str, sample: /home/mira/report/report.json}
summary: {description: "The summary, for a terminal.", returned: success, type: str}
verdict: {description: "The overall result, as a code.", returned: success, type: str, sample: never_dark}
failed_nodes: {description: The nodes that failed., returned: success, type: list, elements: str}
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import arguments

if __name__ == "__main__":
    specs.run_module(arguments.SPEC)
