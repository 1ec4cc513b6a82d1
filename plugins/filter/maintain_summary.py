# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import (
    summary_hosts,
    summary_lines,
    summary_run,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    arguments_summary,
)
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _command_line

DOCUMENTATION = r"""
name: maintain_summary
short_description: Summarizes the results of a maintenance playbook
version_added: 1.0.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Turns the results of a playbook's calls into the input of its next calls, mostly lists of nodes, and into the texts
    of its last message and of the report.
  - For the playbooks of this collection only; it may change at any time.
positional: of, known
options:
  _input:
    description:
      - The results of the calls, by the names that the summary uses for them. An empty dictionary is a call that was
        not made.
    type: dict
    required: true
  of:
    description: What to summarize.
    type: str
    choices: [cut, plan, traces, reach, reboot, choice, start, run, recovery, hooks, failed_task, announced,
      rehearsal_input, rehearsal_run, rehearsal, comparison]
    required: true
  known:
    description: What else the playbook knows, by the names that the summary uses for it.
    type: dict
"""

EXAMPLES = r"""
- name: Show the blockers of a plan
  ansible.builtin.debug:
    msg: "{{ ({'plan': preflight_result} | kubeops.node_maintenance.maintain_summary('plan')).blockers }}"
"""

RETURN = r"""
_value:
  description: Lists of nodes, and messages, by their purpose.
  type: dict
"""

SUMMARIES: dict[str, t.Callable[..., dict[str, t.Any]]] = {
    "cut": _command_line.cut,
    "plan": summary_lines.plan,
    "traces": summary_lines.traces,
    "reach": summary_hosts.reach,
    "reboot": summary_hosts.reboot,
    "choice": summary_hosts.choice,
    "start": summary_run.start,
    "run": summary_run.run,
    "recovery": summary_lines.recovery,
    "hooks": summary_hosts.hooked,
    "failed_task": summary_hosts.failed_task,
    "announced": summary_lines.announced,
    "rehearsal_input": arguments_summary.rehearsal_input,
    "rehearsal_run": arguments_summary.rehearsal_run,
    "rehearsal": arguments_summary.rehearsal,
    "comparison": arguments_summary.comparison,
}


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"maintain_summary": _maintain_summary}


def _maintain_summary(
    answers: t.Mapping[str, t.Any], of: str, known: t.Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    # Ansible's lazy containers resolve their values only in methods such as items().
    return SUMMARIES[of](answers, **dict((known or {}).items()))
