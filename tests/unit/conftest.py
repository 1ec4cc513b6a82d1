# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for all generated examples, and for all that is collected."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

# An example that had to wait for the processor is no failure: these tests run beside others, on any machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Ten thousand tests stay until the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
