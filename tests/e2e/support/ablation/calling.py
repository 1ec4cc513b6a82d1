# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls of modules in this process, and what is wrong with their results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import client, errors, verbs

INCOMPLETE = ("missing_permission", "not_checked", "not_fenced")
"""Codes of findings and of progress: something was left out for want of a right."""


class LackingError(Exception):
    """A call failed, or says that it did less than it should; ``said`` are its words."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(" ".join(said))
        self.said = said


def call(spec: specs.ModuleSpec, kubeconfig: str, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """A module's result, in this process."""
    defaults = {name: option.get("default") for name, option in spec.argument_spec.items()}
    return specs.run_call(spec, {**defaults, **arguments, "kubeconfig": kubeconfig}, specs.Call(check=check))


def wrong_with(result: Json) -> list[str]:
    """What a result says of a failure, or of what was not done for want of a right; empty where all is well."""
    found = [one["message"] for one in result.get("findings") or () if one.get("code") in INCOMPLETE]
    found += [one["message"] for one in result.get("timeline") or () if one["what"] in INCOMPLETE]
    if result["failed"]:
        failed = [one for one in result.get("nodes") or () if one.get("failed")]
        found = [result["msg"], *(one.get("message", "") for one in failed), *found]
    return found


def done(spec: specs.ModuleSpec, kubeconfig: Path, **arguments: Any) -> dict[str, Any]:
    """The result of a call that has to do all it should, though the first answer to each kind of write is lost.

    Raises:
        LackingError: it did less.
    """
    with losing_answers():
        result = call(spec, str(kubeconfig), **arguments)
    if said := wrong_with(result):
        raise LackingError(said)
    return result


@contextlib.contextmanager
def losing_answers() -> Iterator[None]:
    """The first answer to a write of each kind is lost, so what became of it has to be read."""
    send, lost = client.Cluster.send, set[tuple[str, str]]()

    def lossy(cluster: client.Cluster, request: verbs.Request, **how: Any) -> dict[str, Any]:
        answer = send(cluster, request, **how)
        kind = (request.verb, request.resource)
        if request.writes and "eviction" not in request.resource and kind not in lost:
            lost.add(kind)
            raise errors.UnknownOutcome("the answer was lost", request=request)
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client.Cluster, "send", lossy)
        yield
