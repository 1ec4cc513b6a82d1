# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import arguments
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _in_process


class ActionModule(_in_process.InProcess):
    spec = arguments.SPEC
