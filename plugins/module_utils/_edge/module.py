# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Running as a module: one JSON result and no progress, which modules cannot show."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import specs


class Module(AnsibleModule):
    """Ansible's module, but for what it logs to syslog."""

    def _log_invocation(self) -> None:
        """A kubeconfig that is given as a dictionary would be logged with its secrets."""
        if isinstance(self.params.get("kubeconfig"), dict):
            self.log("Invoked with a kubeconfig given as a dictionary")
        else:
            super()._log_invocation()


def run_module(spec: specs.ModuleSpec) -> None:
    """Run a module; this is all that its ``main`` does."""
    module = Module(spec.argument_spec, supports_check_mode=True, **spec.rules)
    call = specs.Call(check=module.check_mode, diff=module._diff, environ=dict(os.environ))
    module.exit_json(**specs.run_call(spec, module.params, call))
