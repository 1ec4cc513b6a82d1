# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One browser for all tests, and each report written once."""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import run_files
from ansible_collections.kubeops.node_maintenance.tests.browser import chromium, reports


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[chromium.Browser]:
    with chromium.started(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> t.Callable[[str], Path]:
    """The folder with the report of that name."""

    @functools.cache
    def write(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        run_files.write_report(reports.REPORTS[name](), str(folder), check=False)
        return folder

    return write
