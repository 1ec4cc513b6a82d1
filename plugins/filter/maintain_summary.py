# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import (
    back,
    lines,
    run,
    start,
    wave,
)

DOCUMENTATION = r"""
name: maintain_summary
short_description: Says what came of the calls of a maintenance playbook
version_added: 0.1.0
author:
  - Contributors to the kubeops.node_maintenance collection (@kubeops)
description:
  - Turns what the calls of a playbook returned into what the next ones need, which are lists of names of nodes above
    all, and into what the last message and the report say.
  - For the playbooks of this collection; it may change at any time.
positional: of, known
options:
  _input:
    description:
      - What the calls returned, by the words that the summary knows them by. An empty dictionary stands for a call that
        was not made.
    type: dict
    required: true
  of:
    description: What to sum up.
    type: str
    choices: [plan, traces, start, wave, run, release, recovery]
    required: true
  known:
    description: What the playbook knows besides, by the words that the summary knows it by.
    type: dict
"""

EXAMPLES = r"""
- name: Show what stands in the way by a plan
  ansible.builtin.debug:
    msg: "{{ ({'plan': preflight_result} | kubeops.node_maintenance.maintain_summary('plan')).blockers }}"
"""

RETURN = r"""
_value:
  description: Lists of names, and messages, by words that say what they are for.
  type: dict
"""

SUMMARIES: dict[str, t.Callable[..., dict[str, t.Any]]] = {
    "plan": lines.plan,
    "traces": lines.traces,
    "start": start.start,
    "wave": wave.wave,
    "run": run.run,
    "release": back.release,
    "recovery": back.recovery,
}


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"maintain_summary": _maintain_summary}


def _maintain_summary(
    answers: t.Mapping[str, t.Any], of: str, known: t.Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    # Read by a method: what Ansible hands over fills its values in only there.
    return SUMMARIES[of](answers, **dict((known or {}).items()))
