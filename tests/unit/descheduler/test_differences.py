# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configurations that the end-to-end tests give to the real deschedulers, judged by the collection alone."""

from __future__ import annotations

import pytest
from support.verdicts.cases import Flavor, cases, handmade, judged, whole

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.arguments_yaml import read
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import errors, schema_of
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler import differences
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.rules import RULES

VERSIONS: list[tuple[Flavor, str]] = [("koordinator", "1.7.0"), ("koordinator", "1.8.0"), ("sigs", "0.36.0")]


@pytest.mark.parametrize(("flavor", "version"), VERSIONS)
def test_every_leniency_is_known_and_has_a_reason(flavor: Flavor, version: str) -> None:
    schema = schema_of(flavor, version)
    unknown: list[str] = []
    for case in (*handmade(flavor), *whole(schema)):
        config, _said = read(case.text, schema)
        for fault in errors(judged(case.text, schema)):
            if fault.real in ("drops", "starts") and not differences.explaining(fault, config, schema):
                unknown.append(f"{case.name}: {fault.path} {fault.code}")
    assert unknown == []


@pytest.mark.parametrize(("flavor", "version"), VERSIONS)
def test_what_is_whole_is_right(flavor: Flavor, version: str) -> None:
    schema = schema_of(flavor, version)
    right = [case for case in whole(schema) if ": whole" in case.name and "LowNodeUtil" not in case.name]
    assert len(right) > 20
    # A percentage of a namespace's pods is the one mistake that a value of the right type can be.
    faults = [
        (case.name, fault.path)
        for case in right
        for fault in errors(judged(case.text, schema))
        if not fault.path.endswith("objectLimiters.namespace.maxMigrating")
    ]
    assert faults == []


def test_many_configurations_each_once() -> None:
    everything = cases("sigs")
    assert len(everything) > 3000
    assert len({case.text for case in everything}) == len({case.name for case in everything}) == len(everything)


def test_every_difference_says_why() -> None:
    for one in (*differences.KOORDINATOR, *differences.SIGS):
        assert one.reason.endswith(".")
        assert one.real in ("drops", "starts")
        assert set(one.rules) <= RULES.keys()
