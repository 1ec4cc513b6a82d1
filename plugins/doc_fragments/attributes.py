# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What every module documents about check mode, diff mode and idempotence."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and predict the changes without making them.
    support: full
    details:
      - Nothing is written and no lock is acquired. RV(ignore:actions) lists exactly what a real run would change.
  diff_mode:
    description: Shows what has changed, or would change, in diff mode.
    support: full
  idempotent:
    description: When run twice in a row with the same arguments, the second time changes nothing.
    support: full
  action_group:
    description: Use C(group/kubeops.node_maintenance.node_maintenance) in C(module_defaults).
    support: full
    membership:
      - kubeops.node_maintenance.node_maintenance
"""

    READ_ONLY = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and predict the changes without making them.
    support: full
    details:
      - This module never changes anything.
  diff_mode:
    description: Shows what has changed, or would change, in diff mode.
    support: N/A
    details:
      - This module never changes anything.
  idempotent:
    description: When run twice in a row with the same arguments, the second time changes nothing.
    support: full
    details:
      - This module never changes anything.
  action_group:
    description: Use C(group/kubeops.node_maintenance.node_maintenance) in C(module_defaults).
    support: full
    membership:
      - kubeops.node_maintenance.node_maintenance
"""
