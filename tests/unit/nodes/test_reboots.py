# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host has to be rebooted: releases as distributions name them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import reboots


@pytest.mark.parametrize(
    ("running", "installed", "newest"),
    [
        pytest.param(
            "5.15.0-91-generic", ["5.15.0-91-generic", "5.15.0-101-generic"], "5.15.0-101-generic", id="Ubuntu"
        ),
        pytest.param("5.15.0-91-generic", ["5.15.0-91-generic", "6.5.0-1014-azure"], "", id="another flavour"),
        pytest.param("6.1.0-17-amd64", ["6.1.0-18-amd64", "6.1.0-17-amd64"], "6.1.0-18-amd64", id="Debian"),
        pytest.param("6.1.0-17-amd64", ["6.1.0-18-cloud-amd64"], "", id="Debian in a cloud"),
        pytest.param(
            "5.14.0-362.el9.x86_64",
            ["5.14.0-362.el9.x86_64", "5.14.0-362.8.1.el9_3.x86_64"],
            "5.14.0-362.8.1.el9_3.x86_64",
            id="RHEL, a number is newer than a word",
        ),
        pytest.param("5.14.0-362.8.1.el9_3.x86_64", ["5.14.0-362.el9.x86_64"], "", id="RHEL, the newest runs"),
        pytest.param("5.14.0-362.el9.x86_64", ["5.14.0-427.el9.x86_64+debug"], "", id="RHEL, for debugging"),
        pytest.param(
            "5.14.21-150500.55.36-default", ["5.14.21-150500.55.39-default"], "5.14.21-150500.55.39-default", id="SLES"
        ),
        pytest.param("6.6.8-arch1-1", ["6.6.10-arch1-1"], "6.6.10-arch1-1", id="Arch, whose old kernel is gone"),
        pytest.param("5.15.0-91-generic", [], "", id="no kernel is installed"),
        pytest.param("", ["5.15.0-91-generic"], "", id="the running one is unknown"),
    ],
)
def test_the_newest_kernel_of_the_same_flavour_has_to_run(running: str, installed: list[str], newest: str) -> None:
    said = [f"kernel {running} runs, and {newest} is installed"] if newest else []
    assert reboots.reasons(running=running, installed=installed) == said


@pytest.mark.parametrize(("code", "required"), [(None, False), (0, False), (1, True), (2, False), (127, False)])
def test_needs_restarting_answers_by_its_exit_code(code: int | None, required: bool) -> None:
    assert bool(reboots.reasons(needs_restarting=code)) is required


def test_all_reasons_are_told() -> None:
    found = reboots.reasons(files=["/a"], needs_restarting=1, running="1-x", installed=["2-x"])
    assert found == ["/a exists", "needs-restarting says so", "kernel 1-x runs, and 2-x is installed"]


RELEASES = st.from_regex(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,3}-[0-9]{1,4}(\.[0-9]{1,2}){0,2}-generic", fullmatch=True)


@settings(deadline=None)
@given(installed=st.lists(RELEASES, min_size=1))
def test_after_a_reboot_into_the_newest_none_is_required(installed: list[str]) -> None:
    newest = max(installed, key=reboots.version)
    assert reboots.reasons(running=newest, installed=installed) == []
    older = [release for release in installed if reboots.version(release) < reboots.version(newest)]
    assert all(reboots.reasons(running=release, installed=installed) for release in older)
