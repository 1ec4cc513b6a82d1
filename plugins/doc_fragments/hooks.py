# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

_RULE = r"""
      name:
        description: What the rule is called in messages. By default its place in the list.
        type: str
      tasks:
        description: Path of a task file. The playbook runs it; the module only checks that it has run.
        type: str
      http:
        description:
          - An HTTP call. It is repeated until it has an expected status, for the statuses 202, 408, 409, 425, 429, 500,
            502, 503, 504 and without an answer. Any other status is a failure. Redirects are not followed.
          - POST, PUT and PATCH have the variables of the hook as a JSON body. The header C(X-Maintenance-Again) is
            C(true) if the call may have been made before.
        type: dict
        suboptions:
          url:
            description:
              - The URL. C({namespace}), C({name}), C({uid}), C({owner}), C({node}) and C({again}) stand for the pod's,
                before it is moved also C({ip}), after it C({moved}).
            type: str
            required: true
          method:
            description: The method of the call.
            type: str
            choices: [GET, HEAD, POST, PUT, PATCH, DELETE]
            default: POST
          headers:
            description: Headers, in which the same names stand for the pod's. They are in no result and no message.
            type: dict
          status:
            description: The expected statuses.
            type: list
            elements: int
            default: [200, 201, 204]
          validate_certs:
            description: Whether the server's certificate is verified.
            type: bool
            default: true
      deadline:
        description: How long it may take, in seconds or as C(90s), C(5m). A hook that is not done by then has failed.
        type: str
        default: 5m
"""
_OF_PODS = (
    _RULE
    + r"""
      pods:
        description: A selector of the labels of pods, such as C(app=web,tier!=cache).
        type: str
      namespaces:
        description: Their namespaces, by name or with the wildcards C(*) and C(?). By default all.
        type: list
        elements: str
      owners:
        description: What owns them directly or at the top, such as C(StatefulSet), C(Deployment/web) or C(Job/*).
        type: list
        elements: str
      annotation:
        description:
          - Whether the application agrees by annotations. We set C(maintenance.kubeops.io/maintenance-planned) on the
            pod, and its application copies the value into C(maintenance.kubeops.io/ready-to-move). Not once the pod has
            gone.
        type: bool
"""
)


class ModuleDocFragment:
    """The rules of hooks.

    Their types are written, because ansible-test takes what a plain assignment has for a literal.
    """

    DOCUMENTATION: str = (
        r"""
options:
  before_pod:
    description:
      - What is done before a pod is evicted, surged or moved by a job. Each rule selects pods by all that it names,
        and has exactly one of C(tasks), C(http) and C(annotation). A pod is not moved before all of its hooks are done;
        if one fails, the node is left as it is.
      - Pods that do not run, and those of fenced nodes, have no hooks.
    type: list
    elements: dict
    suboptions:
"""
        + _OF_PODS
    )
    AFTER: str = (
        r"""
options:
  after_pod:
    description:
      - What is done once a pod has gone, or stays although a hook before had been called for it. As O(before_pod), with
        C(tasks) or C(http). A node is not drained before all of them are done.
    type: list
    elements: dict
    suboptions:
"""
        + _OF_PODS
    )
    NODE_RULES: str = (
        r"""
options:
  rules:
    description:
      - The rules for O(state=listed) and O(state=called). Each rule selects nodes by their labels, and has exactly one
        of C(tasks) and C(http), whose URL may name C({node}) and C({again}).
    type: list
    elements: dict
    suboptions:
      nodes:
        description: A selector of the labels of nodes; C(kubernetes.io/hostname) selects all.
        type: str
"""
        + _RULE
    )
