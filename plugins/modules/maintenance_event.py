# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_event
short_description: Announce a maintenance by Events and a webhook
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Tells others that a maintenance is planned, has started, has ended or has failed, from the results of this
    collection's modules.
  - What could not be told is a warning.
extends_documentation_fragment:
  - kubeops.node_maintenance.auth
  - kubeops.node_maintenance.attributes
  - kubeops.node_maintenance.nodes.audit
options:
  moment:
    description:
      - What is announced. Events are created once per run and moment, or per day and nodes for what is only planned;
        V(failed), which may happen again to a run that is resumed, is announced each time.
      - The webhook is called before the Events are created, and not at all if all of them exist. Without O(events) it
        is called each time, with an C(id) by which the receiver recognizes a repetition.
    type: str
    choices: [planned, started, ended, failed]
    required: true
  results:
    description:
      - The results of the modules so far, in the order of the run. They say which nodes and workloads it is about.
    type: list
    elements: dict
  resumed:
    description: Whether the run is a resumed one.
    type: bool
    default: false
  reason:
    description: Why the nodes are maintained. Without it, the reason in the nodes' records.
    type: str
  errors:
    description: What went wrong, as sentences.
    type: list
    elements: str
  start:
    description:
      - When the maintenance begins, in RFC 3339. By default now; when it has ended or failed, as O(results) say.
    type: str
  end:
    description: When it ends, in RFC 3339. By default after O(duration), and when it has ended or failed, now.
    type: str
  duration:
    description:
      - How long it will take. By default what the plan in O(results) foresees for the drains, without your own work.
    type: str
  events:
    description:
      - Whether to create Events about the nodes, in the namespace C(default), and about the workloads whose pods have
        to move, in theirs.
    type: bool
    default: false
  webhook:
    description:
      - Where to send the announcement, by POST. Redirects are not followed, and proxies are those of the environment.
      - The answers 200, 201, 202 and 204 mean that it was received. After 408, 409, 425, 429, 500, 502, 503, 504, or no
        answer at all, it is sent again until the deadline; any other answer is a failure.
    type: dict
    suboptions:
      url:
        description: The URL. It may be secret; results and messages show its scheme and host only.
        type: str
        required: true
      headers:
        description: Headers, which may be secret. They are in no result, message or diff.
        type: dict
      format:
        description: The shape of the body. V(slack) is that of incoming webhooks of Slack, which other chats read, too.
        type: str
        choices: [json, slack]
        default: json
      deadline:
        description: How long to try.
        type: str
        default: 30s
attributes:
  idempotent:
    description: When run twice in a row with the same arguments, the second time changes nothing.
    support: partial
    details:
      - Without O(events) the webhook is called each time.
seealso:
  - module: kubeops.node_maintenance.maintenance_plan
  - module: kubeops.node_maintenance.maintenance_report
"""

EXAMPLES = r"""
- name: Announce what is planned
  kubeops.node_maintenance.maintenance_event:
    moment: planned
    results: "{{ [preflight_result] }}"
    reason: kernel update
    events: true
    webhook:
      url: "{{ chat_webhook }}"
      format: slack
"""

RETURN = r"""
announcement:
  description: What is announced, in the shape that the webhook gets with O(webhook.format=json).
  returned: when the work could begin
  type: dict
events:
  description: The Events, about nodes first.
  returned: when the work could begin
  type: list
  elements: dict
  contains:
    kind: {description: "The kind of the object that the Event is about.", type: str, sample: Deployment}
    namespace: {description: "Its namespace, empty for nodes.", type: str}
    name: {description: Its name., type: str}
    outcome:
      description:
        - V(created) - the Event was created.
        - V(already_created) - another start of the run, or of the same plan, has created the Event.
        - V(failed), a failure - the Event could not be created.
      type: str
      sample: created
    failed: {description: Whether it failed., type: bool}
    message: {description: Why it failed., type: str}
warnings: {description: Who could not be told., returned: always, type: list, elements: str}
actions: {description: "What was done, or in check mode would be done.", returned: always, type: list, elements: str}
cluster:
  description:
    - The cluster of the call, as its C(context) in the kubeconfig (V(in-cluster) with a pod's service account) and the
      address of its C(server).
  returned: when the credentials could be read
  type: dict
  sample: {context: prod, server: "https://prod.example.com:6443"}
timeline: {description: All progress messages., returned: always, type: list, elements: dict}
findings: {description: Why the call failed as a whole., returned: after such a failure, type: list, elements: dict}
"""

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import arguments_event

if __name__ == "__main__":
    specs.run_module(arguments_event.SPEC)
