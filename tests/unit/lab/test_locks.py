# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lock of the lab in a directory where others write too, as that for free ports."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import lab_place
import pytest


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "lock"
    victim.write_text("precious", encoding="utf-8")
    path.symlink_to(victim)
    with pytest.raises(lab_place.LabError, match=str(path)), lab_place.alone(path):
        pass
    assert victim.read_text(encoding="utf-8") == "precious"


def test_no_file_is_made_through_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.symlink_to(tmp_path / "wanted")
    with pytest.raises(lab_place.LabError), lab_place.alone(path):
        pass
    assert not (tmp_path / "wanted").exists()


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(lab_place.LabError, match="another user"), lab_place.alone(path):
        pass


def test_what_is_in_the_file_stays_and_nobody_else_may_read_a_new_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("precious", encoding="utf-8")
    for path in (old, new):
        with lab_place.alone(path):
            pass
    assert old.read_text(encoding="utf-8") == "precious"
    assert new.stat().st_mode & 0o777 == 0o600


def test_one_waits_for_the_other_and_a_failure_frees_the_lock(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []

    def second() -> None:
        with lab_place.alone(path):
            order.append("second")

    def first() -> None:
        with lab_place.alone(path):
            other.start()
            other.join(0.2)
            order.append("first")
            raise ZeroDivisionError

    other = threading.Thread(target=second)
    with pytest.raises(ZeroDivisionError):
        first()
    other.join(10)
    assert order == ["first", "second"]
