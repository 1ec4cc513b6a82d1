# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The events of a timeline: their words are documented, and the engine states the phase that each begins."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Event
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes, phases

GUIDE = Path(__file__).parents[3] / "docs/docsite/rst/guide_report.rst"


def told(what: outcomes.Outcome, *, name: str = "") -> Event:
    ctx = Context(t.cast("t.Any", None))
    ctx.tell(what, "something happened", node="n1", name=name)
    return ctx.timeline[0]


@pytest.mark.parametrize("outcome", list(outcomes.CordonOutcome))
def test_an_outcome_of_a_node_begins_its_phase(outcome: outcomes.CordonOutcome) -> None:
    here = outcome.value.removeprefix("already_")
    others = {"uncordoned": "back", "replaced": "back", "not_in_maintenance": ""}
    expected = others.get(here, "" if outcome.failed else here)
    assert told(outcome).phase == expected


def test_a_pod_that_is_gone_does_not_make_its_node_gone() -> None:
    assert told(phases.What.GONE, name="web-1").phase == "draining"
    assert told(outcomes.DrainOutcome.GONE).phase == "gone"
    assert told(outcomes.JobOutcome.GONE, name="web-1").phase == ""


@pytest.mark.parametrize("what", list(phases.What))
def test_an_event_is_plain_text(what: phases.What) -> None:
    event = told(what, name="web")
    assert (type(event.what), type(event.phase)) == (str, str)
    assert event.phase == (what.phase or "")


def test_no_two_words_are_one_member() -> None:
    assert len(phases.What.__members__) == len(list(phases.What))


def test_the_guide_lists_the_words_and_the_phases() -> None:
    guide = GUIDE.read_text()
    rows = re.findall(r"^   \* - ``(\w+)``\n     - (.+)\n     - ?(.*)$", guide, re.MULTILINE)
    assert rows[1:] == [(one.value, one.meaning, f"``{one.phase}``" if one.phase else "") for one in phases.What]
    section = guide[guide.index("A node goes through these phases") :].partition("\n\n")[0]
    assert re.findall(r"``(\w+)``", section) == [phase.value for phase in phases.Phase]
