# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may go wrong with a request, and when."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request

What = t.Literal[
    "killed before",
    "killed after",
    "lost",
    "late",
    "conflict",
    "throttled",
    "throttled with time",
    "error",
    "in doubt",
    "down",
    "forbidden",
    "frozen",
    "frozen sent",
    "hang",
    "unreachable",
    "webhook",
    "fenced",
    "invalid",
    "not found",
    "balancer",
]
STATUSES = (404, 409, 410)
"""Of answers that mean something else where an API server gives them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request; `seconds` is for those that last, `status` for those of a balancer.

    * `killed before`: its process dies before the first byte leaves. `killed after`: the server did it, the
      process died before the answer.
    * `lost`: done, but the connection ends before the answer. `late`: it arrives at the server only `seconds` later.
    * `conflict` (409), `throttled` (429, `with time`: Retry-After of 2 s), `error` (500 InternalError), `forbidden`
      (403): not done, and told so. `in doubt`: done, and a 500 of the storage is told.
    * `down`: from now on and for `seconds` every request of that process is answered 503, and its watches end.
    * `frozen`: all threads of the process stand still for `seconds` before it passes its fence.
      `frozen sent`: the same right after the request was done, before its answer is read.
    * `webhook`: somebody's admission webhook denies it. `fenced`: the policy of our fence in the server does.
    * `invalid` (422): the server's own validation refuses it. `not found` (404): it says that there is no such object.
    * `balancer`: something before the server answers with that status and a page of its own; the request is not done.
    * `unreachable`: there is no connection to be had, so it never leaves.
    * `hang`: never done, and nothing comes back until its sender has waited for as long as it wants to.
    """

    what: What
    seconds: float = 0.0
    status: int = 404

    def fits(self, request: Request) -> bool:
        """Whether a server would do that to such a request."""
        return request.writes or self.what not in ("conflict", "in doubt", "late")


EVERY: tuple[Fault, ...] = (
    Fault("killed before"),
    Fault("killed after"),
    Fault("lost"),
    Fault("conflict"),
    Fault("throttled"),
    Fault("throttled with time"),
    Fault("error"),
    Fault("in doubt"),
    Fault("down", 40.0),
    Fault("forbidden"),
    Fault("balancer"),
    Fault("frozen", 90.0),
    Fault("frozen sent", 90.0),
)
"""One of each that a run has to get through at any request."""


@dataclass
class _When:
    predicate: t.Callable[[Request], bool]
    fault: Fault
    times: int


@dataclass
class _Overtaken:
    predicate: t.Callable[[Request], bool]
    by: t.Callable[[], t.Any]


class Faults:
    """The faults of one process: at the request with a number (from 0), or at those that a predicate chooses."""

    def __init__(self) -> None:
        self._at: dict[int, Fault] = {}
        self._when: list[_When] = []
        self._overtaken: list[_Overtaken] = []
        self.met: list[tuple[int, Request, Fault]] = []

    def at(self, ordinal: int, fault: Fault) -> None:
        self._at[ordinal] = fault

    def when(self, predicate: t.Callable[[Request], bool], fault: Fault, times: int = 1) -> None:
        self._when.append(_When(predicate, fault, times))

    def overtaken(self, predicate: t.Callable[[Request], bool], by: t.Callable[[], t.Any]) -> None:
        """The next request that is chosen has left when `by` is done: somebody else is first. Once; in order."""
        self._overtaken.append(_Overtaken(predicate, by))

    def overtake(self, request: Request) -> None:
        """Called when a request has passed its fence."""
        if not self._overtaken:
            return
        chosen = next((one for one in self._overtaken if one.predicate(request)), None)
        if chosen is not None:
            self._overtaken.remove(chosen)
            chosen.by()

    def clear(self) -> None:
        self._at.clear()
        self._when.clear()
        self._overtaken.clear()

    def of(self, ordinal: int, request: Request) -> Fault | None:
        """What happens to this request; it is used up then."""
        fault = self._at.pop(ordinal, None)
        if fault is None and self._when:
            chosen = next((when for when in self._when if when.times > 0 and when.predicate(request)), None)
            if chosen is not None:
                chosen.times -= 1
                fault = chosen.fault
        if fault is not None:
            self.met.append((ordinal, request, fault))
        return fault
