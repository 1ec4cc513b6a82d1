# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every rule that a configuration can break, as the documentation explains it."""

from __future__ import annotations

import typing as t

RULES: t.Mapping[str, str] = {
    "not_yaml": "The text is not YAML that the descheduler and Ansible read the same way.",
    "duplicate_key": "A key occurs twice.",
    "wrong_document": "apiVersion or kind does not match the flavor.",
    "wrong_type": "A value has the wrong type: a quoted 'true' is not a boolean, 120 is not a duration.",
    "unknown_key": "The key does not exist. This is an error even where the descheduler silently drops the key.",
    "look_alike": "A key, plugin or value is misspelled.",
    "too_new": "The key or plugin was added in a later version.",
    "required": "A value is missing or empty.",
    "not_in_list": "A value is not one of those allowed.",
    "out_of_range": "A number or duration is too small or too large.",
    "malformed": "A string has the wrong format.",
    "forbidden": "The value is not allowed here.",
    "exclusive": "Only one of several values may be set.",
    "duplicate": "A name occurs twice.",
    "order": "One of two values must be larger than the other.",
    "different_keys": "Two maps must list the same resources.",
    "unknown_plugin": "The plugin does not exist.",
    "wrong_point": "The plugin does not implement this extension point.",
    "no_config": "The plugin is enabled without an entry in pluginConfig.",
    "one_evictor": "Exactly one plugin must evict, and the same plugin must filter.",
    "known_crash": "This version exits or panics with such a configuration.",
    "never_read": "The value is accepted but has no effect.",
    "misleading": "The value is accepted but means something else than it says.",
    "never_acts": "The plugin starts but never does anything.",
    "never_matches": "An entry of a list can match nothing.",
    "refused_workloads": "The limits exclude every pod of workloads of a certain size.",
    "left_out": "Pods of this cluster are never moved, with their number by cause.",
    "managed_by": "Somebody else applies a field on the server's side, and the call takes it over.",
    "several_controllers": "Several profiles have a MigrationController, and each works on every job.",
    "several_deschedulers": "Another descheduler is at work beside this one.",
    "not_enabled": "A plugin is configured but not enabled.",
    "runs_once": "The plugins run once instead of periodically.",
    "unfiltered": "Nothing keeps the descheduler from evicting protected pods.",
    "deprecated": "The setting works, but has a successor.",
    "version_mismatch": "The option version is not the version of the descheduler's image.",
    "unknown_version": "There are no rules of the image's version; the closest ones are applied.",
    "too_old": "Kubernetes or the descheduler is older than the first version with PodMigrationJobs.",
}
