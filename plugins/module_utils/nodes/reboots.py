# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a host has to be rebooted, by what it says of itself."""

from __future__ import annotations

import re
import typing as t

Check = t.Literal["file", "needs_restarting", "kernel"]
CHECKS: tuple[Check, ...] = t.get_args(Check)


def reasons(
    *,
    files: t.Iterable[str] = (),
    needs_restarting: int | None = None,
    running: str = "",
    installed: t.Iterable[str] = (),
) -> list[str]:
    """Why it has to be rebooted; empty if it need not be.

    ``files`` are the existing files that ask for it, ``needs_restarting`` is the exit code of
    ``needs-restarting -r`` or ``dnf5 needs-restarting`` (1 if it is needed), ``None`` if it does
    not exist. ``running`` and ``installed`` are releases of kernels. Any other exit code, and a
    kernel without an installed one of its flavour, say nothing.
    """
    found = [f"{path} exists" for path in files]
    if needs_restarting == 1:
        found.append("needs-restarting says so")
    of_flavour = [release for release in installed if flavour(release) == flavour(running)]
    newest = max(of_flavour, key=version, default="")
    if newest and version(newest) > version(running):
        found.append(f"kernel {running} runs, and {newest} is installed")
    return found


def flavour(release: str) -> list[str]:
    """The words of a release, the same for kernels that replace it: ``generic``, ``el x``."""
    return re.findall(r"[a-z]+", release.lower())


def version(release: str) -> list[tuple[int, int, str]]:
    """A key that orders releases as RPM and Debian do: numbers by value, and newer than words."""
    parts = re.findall(r"(\d+)|([a-z]+)", release.lower())
    return [(1, int(number), "") if number else (0, 0, word) for number, word in parts]
