# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The module face: Ansible's arguments in, one JSON result out, no progress (Ansible has no way for it)."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import faces


def run_module(face: faces.Face) -> None:
    """The whole of a module's ``main``."""
    module = AnsibleModule(face.argument_spec, supports_check_mode=True, **face.rules)
    call = faces.Call(check=module.check_mode, diff=module._diff, environ=dict(os.environ))
    module.exit_json(**faces.run_face(face, module.params, call))
