# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is wrong with a descheduler's configuration, and every rule by which it can be."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import schemas
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import reasons

Severity = t.Literal["error", "warning"]

RULES: t.Mapping[str, str] = {
    "not_yaml": "The text is no YAML that both descheduler and Ansible read alike.",
    "duplicate_key": "A key is there twice.",
    "wrong_document": "apiVersion or kind is not that of the flavor.",
    "wrong_type": "A value is of another type; 'true' in quotes is no boolean, 120 is no duration.",
    "unknown_key": "No such key. Where the descheduler would drop it silently it is an error all the same.",
    "look_alike": "A key, plugin or word that only looks right.",
    "too_new": "The key or plugin came with a later version.",
    "required": "A value is missing or empty.",
    "not_in_list": "A word is none of those that are known.",
    "out_of_range": "A number or duration is too small or too large.",
    "malformed": "A text cannot be read as what it stands for.",
    "forbidden": "The value may not be given here.",
    "exclusive": "Only one of several values may be given.",
    "duplicate": "A name is there twice.",
    "order": "Of two values one has to be the larger one.",
    "different_keys": "Two maps have to name the same resources.",
    "unknown_plugin": "No such plugin.",
    "wrong_point": "The plugin has no work at this extension point.",
    "no_config": "The plugin is enabled without an entry in pluginConfig.",
    "one_evictor": "Exactly one plugin evicts, and the same one filters.",
    "known_crash": "This version ends with such a configuration.",
    "never_read": "The value is taken and has no effect.",
    "never_acts": "The plugin starts and never does anything.",
    "refused_workloads": "Limits refuse every pod of workloads of a certain size.",
    "not_enabled": "A plugin is configured and not enabled.",
    "runs_once": "The plugins run once, not periodically.",
    "unfiltered": "Nothing keeps the descheduler from evicting any pod.",
    "deprecated": "It works, and something else has taken its place.",
}


@dataclass(frozen=True, slots=True)
class Fault(reasons.Reason):
    """One thing that is wrong (``error``), or worth knowing (``warning``).

    ``code`` is a word of ``RULES``, ``path`` where it is, as in ``profiles[0].plugins.evict``, ``real`` what the
    descheduler itself does with it. ``decoding``: it shows while the text is decoded, before values are checked.
    """

    path: str = ""
    real: schemas.Real = "refuses"
    severity: Severity = "error"
    decoding: bool = False

    def to_dict(self) -> dict[str, str]:
        """As the module returns it."""
        return {
            "path": self.path,
            "rule": self.code,
            "severity": self.severity,
            "message": self.message,
            "remedy": self.remedy,
            "real": self.real,
        }


def warning(code: str, message: str, remedy: str = "", path: str = "", real: schemas.Real = "starts") -> Fault:
    """Something worth knowing that stops nobody."""
    return Fault(code, message, remedy, path, real, "warning")
