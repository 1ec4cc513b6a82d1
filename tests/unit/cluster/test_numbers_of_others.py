# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers that others have fixed, as their sources write them; and up to where our own limits go."""

from __future__ import annotations

import datetime
import math

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import budgets
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import schemas
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import causes, migration_jobs, typed
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import forecast
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import hashing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import announcement, read

MAX_INT32 = int("7fffffff", 16)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(causes.NEVER_EVICT, MAX_INT32, id="Koordinator apis/extension: an eviction cost of math.MaxInt32"),
        pytest.param(causes.SYSTEM_CRITICAL, 2 * 10**9, id="Kubernetes scheduling: SystemCriticalPriority"),
        pytest.param(schemas.HIGHEST_PRIORITY, 2 * 10**9, id="descheduler: SystemCriticalPriority"),
        pytest.param(forecast.EACH, MAX_INT32 + 1, id="kube-scheduler pickOneNodeForPreemption: MaxInt32 + 1"),
        pytest.param(budgets.MAX_DISRUPTED, 2000, id="Kubernetes eviction.go: MaxDisruptedPodSize"),
        pytest.param(migration_jobs.KEPT_WITHOUT_TTL, 30 * 60.0, id="Koordinator: 30 minutes without a ttl"),
        pytest.param((announcement.NOTE, announcement.INSTANCE), (1024, 128), id="Kubernetes events validation"),
        pytest.param(hashing.LONGEST, 63, id="Kubernetes: the longest value of a label"),
        pytest.param(typed.SHORTEST_TTL, 1.0, id="Koordinator counts whole seconds"),
    ],
)
def test_a_number_is_the_one_of_its_source(ours: object, theirs: object) -> None:
    assert ours == theirs


def test_a_call_is_repeated_where_the_answer_says_not_yet() -> None:
    """Accepted, Request Timeout, Conflict, Too Early, Too Many Requests, and what a server or gateway answers then."""
    assert sorted(hook_definitions.REPEATED) == [202, 408, 409, 425, 429, *(500, 502, 503, 504)]


@pytest.mark.parametrize("field", [schemas.INT32, schemas.INT64])
def test_a_signed_number_has_one_more_below_zero_than_above(field: tuple[int, int]) -> None:
    assert -field[0] == field[1] + 1
    assert math.log2(-field[0]) in (31, 63)


def test_an_instant_of_a_run_is_in_this_century() -> None:
    assert datetime.datetime.fromtimestamp(read.LATEST_SECONDS, datetime.UTC) == datetime.datetime(
        2100, 1, 1, tzinfo=datetime.UTC
    )
