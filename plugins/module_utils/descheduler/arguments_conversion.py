# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A policy of the sigs descheduler in a template, converted to a configuration
of koord-descheduler.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    arguments_yaml,
    check,
    conversion,
)


def to_koordinator(policy: t.Any, version: str = "1.7.0", interval: str = "") -> dict[str, t.Any]:
    """``config`` and ``left_out[{path, value, reason}]``; the policy is YAML text or a mapping.

    Raises:
        ValueError: the policy has errors, or the version is not supported.
    """
    known = check.VERSIONS["koordinator"]
    if version not in known:
        raise ValueError(f"version {version} is not supported; use one of {', '.join(known)}")
    if isinstance(policy, str):
        policy, faults = arguments_yaml.read(policy, check.schema_of("sigs"))
        if wrong := check.errors(faults):
            raise ValueError(
                f"the policy has errors: {'; '.join(fault.message for fault in wrong)}"
            )
    found = conversion.convert(policy, version, interval)
    return {"config": found.config, "left_out": [left.to_dict() for left in found.left_out]}
