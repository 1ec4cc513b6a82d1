# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What options mean that are left out, in a module's argument spec and in its engine."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values, specs


def defaults(
    spec: specs.ClusterModuleSpec, options: type[t.Any], **documented: t.Any
) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Those of the engine, and those of the spec; `documented` are those that only the documentation's text has."""
    found, wanted = {}, {}
    for field in dataclasses.fields(options):
        told = spec.options.get(field.name)
        if told is None or field.default is dataclasses.MISSING:
            continue
        default = told.get("default", documented.get(field.name))
        if field.name in spec.durations and isinstance(default, str):
            default = option_values.seconds(field.name, default)
        found[field.name] = field.default
        wanted[field.name] = tuple(default) if isinstance(default, list) else default
    return found, wanted
