# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The version of a descheduler, by its image, and whether the rules that are applied fit it.

koord-descheduler 1.7.0 and 1.8.0 serve no ``/version``, so the image's tag is the only source. The minimum versions are
those of Koordinator's and ACK's documentation.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import check, rules

KUBERNETES = (1, 18)
"""The oldest Kubernetes on which PodMigrationJobs work."""

OLDEST: t.Mapping[check.Flavor, tuple[tuple[int, ...], str]] = {
    "koordinator": ((0, 6, 0), "0.6"),
    "ack": ((1, 2, 0, 2), "v1.2.0-ack.2"),
}
"""The oldest version with PodMigrationJobs, and how its documentation writes it. The fourth number is ACK's own."""

_TAG = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-ack\.(\d+))?(?:[-+].*)?")

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """``applied`` is the version whose rules apply, ``image`` the image's tag without ``v``, empty if it is none."""

    applied: str
    image: str = ""
    faults: tuple[rules.Fault, ...] = ()


def numbers(tag: str) -> Numbers:
    """The numbers of a version such as ``v1.7.0``, ``1.8.0-rc.1`` or ``v1.2.0-ack.2``; empty for something else."""
    found = _TAG.fullmatch(tag)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def judged(flavor: check.Flavor, given: str, image: str, kubernetes: str) -> Found:
    """Which rules apply: those of the ``given`` version, else those closest to the image's.

    ``kubernetes`` is the API server's ``gitVersion``, empty if it could not be read.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = numbers(tag)
    chosen = given or _closest(flavor, found)
    faults = (*_image_faults(flavor, given, chosen, image, found), *_kubernetes_faults(flavor, kubernetes))
    return Found(chosen, tag.removeprefix("v") if found else "", faults)


def _closest(flavor: check.Flavor, found: Numbers) -> str:
    """The newest supported version that is not newer; ACK's numbers are its own."""
    known = check.VERSIONS[flavor]
    if not found or flavor == "ack":
        return known[0]
    older = [version for version in known if numbers(version) <= found]
    return max(older, key=numbers) if older else min(known, key=numbers)


def _image_faults(flavor: check.Flavor, given: str, chosen: str, image: str, found: Numbers) -> rules.Faults:
    if not found:
        return
    oldest, written = OLDEST.get(flavor, ((), ""))
    if found < oldest[: len(found)]:
        message = f"The image is {image}, which is older than {written}, the first version with PodMigrationJobs."
        fault = rules.Fault("too_old", message, "Update it, or set version if its tag says something else.", "version")
        yield rules.warning(fault.code, message, "Update it.", "version") if given else fault
    elif flavor != "ack" and found[:2] != numbers(chosen)[:2]:
        remedy = f"Set version to one of {', '.join(check.VERSIONS[flavor])}, or omit it." if given else ""
        message = f"The image is {image}, but the rules of {chosen} apply."
        yield rules.warning("version_mismatch" if given else "unknown_version", message, remedy, "version")


def _kubernetes_faults(flavor: check.Flavor, kubernetes: str) -> rules.Faults:
    found = numbers(kubernetes)
    if flavor != "sigs" and found and found < KUBERNETES:
        message = f"Kubernetes is {kubernetes}; PodMigrationJobs need 1.18 or later."
        yield rules.Fault("too_old", message, "Update the cluster.", "version")
