# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the collection says of a descheduler's configuration is what the descheduler itself says.

It also knows the configuration again that koord-descheduler completes: the proof of a rollout.

Hundreds of configurations, right ones and ones with a single thing wrong, are given to the real binaries. The
generators, one led by our schema and one by the Go types that the descheduler decodes, make thousands:
`VERDICTS=all` asks about every one of them, in about an hour.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml
from support import sampling
from support.lab import Lab
from support.verdicts import types
from support.verdicts.cases import Case, Flavor, cases, chosen, ends, judged, short, text_of, whole
from support.verdicts.decoded import decoded
from support.verdicts.real import Judge, Verdict

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.arguments_yaml import read
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import errors, schema_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.conversion import convert
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.running import compare
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import Schema
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler import differences

AT_ONCE = 2
RIGHT = 0.25
"""This part of the configurations at least has to be right: saying no to all of them is no art."""

DECODED = 60 if sampling.ALL else 10
"""So many more are made from the Go types."""


def asked(flavor: Flavor, version: str, count: int) -> tuple[Case, ...]:
    ours = cases(flavor, version)
    theirs = tuple(decoded(schema_of(flavor, version), types.real(flavor, version)))
    if os.environ.get("VERDICTS") == "all":
        return (*ours, *theirs)
    return (*chosen(ours, count), *chosen(theirs, DECODED))


def compared(lab: Lab, program: str, flavor: Flavor, version: str, count: int) -> None:
    schema = schema_of(flavor, version)
    judge = Judge(lab.programs / program, lab.kubeconfig)

    def verdict(case: Case) -> Verdict:
        found = judge.verdict(case.text)
        late = not found.ended and any(fault.real == "crashes" for fault in judged(case.text, schema))
        return judge.verdict(case.text, start=True) if late else found

    wrong, right, differing = list[str](), 0, set[str]()
    some = asked(flavor, version, count)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for case, found in zip(some, pool.map(verdict, some), strict=True):
            faults = judged(case.text, schema)
            said = [f"{fault.path} {fault.code} {fault.real}" for fault in errors(faults)]
            right += not found.ended and not said
            if ends(faults) != found.ended:
                wrong.append(f"{case.name}: here {said or 'nothing'}, there {found.ended} {found.words}")
            config, _said = read(case.text, schema)
            if found.written and not said:
                wrong += [f"{case.name}: {difference}" for difference in unlike(config, found.written, schema)]
            if said and not found.ended:
                for fault in errors(faults):
                    known = differences.explaining(fault, config, schema)
                    differing.add(known.said if known else f"{case.name}: {fault}")
    assert wrong == [], "\n".join(wrong)
    assert differing <= {difference.said for difference in differences.of(schema)}
    assert len(some) >= count
    assert right >= RIGHT * len(some)


def unlike(config: Any, completed: str, schema: Schema) -> list[str]:
    """What the proof of a rollout would hold against a descheduler that runs with this very configuration."""
    found = compare(config, yaml.safe_load(completed), schema)
    return [*found.conflicts, *found.extras]


def converted(lab: Lab, version: str) -> None:
    """What becomes of right policies of the sigs descheduler is right for koord-descheduler."""
    source = schema_of("sigs")
    right = [case for case in whole(source) if not errors(judged(case.text, source))]
    judge = Judge(lab.programs / "koord-descheduler", lab.kubeconfig)
    ours = short(schema_of("koordinator"))
    for case in right if sampling.ALL else right[::4]:
        made = convert(yaml.safe_load(case.text), version).config
        found = judge.verdict(text_of({**ours, **made}))
        assert not found.ended, f"{case.name}: {found.words}"
    assert len(right) >= 30


def test_koord_descheduler(koord: Lab) -> None:
    compared(koord, "koord-descheduler", "koordinator", "1.7.0", 600 if sampling.ALL else 100)
    converted(koord, "1.7.0")


@pytest.mark.whole
def test_the_next_koord_descheduler(koord_next: Lab) -> None:
    compared(koord_next, "koord-descheduler", "koordinator", "1.8.0", 400)
    converted(koord_next, "1.8.0")


def test_the_sigs_descheduler(koord: Lab) -> None:
    compared(koord, "descheduler", "sigs", "0.36.0", 300 if sampling.ALL else 60)


@pytest.mark.parametrize(("flavor", "version"), sampling.first(1, list(types.MODULES)))
def test_the_schema_is_what_the_descheduler_decodes(flavor: Flavor, version: str) -> None:
    found = types.real(flavor, version)
    assert sum(len(paths) for paths in found.values()) > 200
    assert types.differences(schema_of(flavor, version), found) == []


@pytest.mark.whole
def test_what_a_job_may_hold_is_what_either_koordinator_decodes() -> None:
    ours = {path: kind for path, kind in types.job_fields().items() if not path.endswith(".*") or kind != "-"}
    assert ours == types.real_job_fields()
