# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of ``ansible-playbook`` that leave out calls which other calls need."""

from __future__ import annotations

import typing as t

from ansible import context


def cut(answers: t.Mapping[str, t.Any], *, limit: bool = False) -> dict[str, str]:
    """The ``text`` that refuses an option which leaves out hosts or the first
    tasks; empty without one.

    ``answers`` has the ``hosts`` of the inventory; ``limit``: they are what the playbook works on.
    Tags show by the tasks that they leave out, and ``tags`` refuses them.
    """
    subset = context.CLIARGS.get("subset")
    # ansible-rulebook limits each playbook to the hosts of its ruleset. "all" leaves out the host
    # that makes the calls only where no inventory has localhost.
    if limit or (subset in ("all", "*") and "localhost" in answers["hosts"]):
        subset = None
    given = {"--limit": subset, "--start-at-task": context.CLIARGS.get("start_at_task")}
    options = " and ".join(option for option, value in given.items() if value)
    why = (
        "because its calls need each other. Its variables say what it works on, such as "
        "maintain_nodes or recover_run."
    )
    run, skip = (",".join(context.CLIARGS.get(name) or ()) for name in ("tags", "skip_tags"))
    tags = (
        f"Tags (--tags {run} --skip-tags {skip or 'none'}) cannot be used with this playbook, "
        "because they would leave out its calls. Omit them; --tags all is the same. Tags of your "
        "own tasks can be left out with --skip-tags."
    )
    return {
        "text": f"{options} cannot be used with this playbook, {why}" if options else "",
        "tags": tags,
    }
