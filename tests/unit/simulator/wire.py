# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is between a process and the API server: the `Connection` that `Cluster` is given, and its faults.

A request passes its fence and is on its way (others may go first); it is carried out at one moment, whatever has become
of its sender by then, and its answer is on its way again. A watch's events come one by one, each when the machine
chooses so.
"""

from __future__ import annotations

import collections
import email.utils
import functools
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import tunnel
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import Unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.exchange import Lost
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import answers
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.apiserver import ApiServer, Watcher
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.clocks import EPOCH
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, Faults
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import FOREVER, Action, Process, Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.programs import Forward

BOOKMARK_EVERY = 60.0
BOOKMARK_BEFORE_END = 2.0


@dataclass(slots=True)
class Sent:
    """One request that a process made: when it left, when it was carried out, and with what status (0: never)."""

    process: str
    ordinal: int
    request: Request
    left: float
    arrived: float = 0.0
    status: int = 0


class Whole:
    """An answer that is there as a whole, or (`text` None) is lost on its way."""

    def __init__(
        self, status: int, text: bytes | None, headers: t.Mapping[str, str], forward: Forward | None = None
    ) -> None:
        self.status, self.headers, self._text, self._forward = status, headers, text, forward

    def chunks(self) -> t.Iterator[bytes]:
        if self._text is None:
            raise Lost("the connection was cut")
        yield self._text

    def close(self) -> None:
        """Nothing is open."""

    def wire(self) -> tunnel.Wire:
        if self._forward is None:
            raise Lost("no wire was asked for")
        return self._forward


class Open(Whole):
    """The answer of a watch: its reader waits for what is delivered."""

    def __init__(self, link: Link, watcher: Watcher, silence: float) -> None:
        super().__init__(200, b"", {})
        self._link, self._watcher, self._silence = link, watcher, silence
        self._machine = link.process.machine
        self._read: collections.deque[bytes] = collections.deque()
        self._reader: Task | None = None
        self._over = self._cut = False
        self._ends = self._machine.now + watcher.seconds
        self._deliver = Action(self._delivered, f"deliver {watcher.kind.plural}", link.process)
        watcher.filled = self._filled
        if watcher.queue:
            self._filled()

    def chunks(self) -> t.Iterator[bytes]:
        machine = self._machine
        bookmark = min(machine.now + BOOKMARK_EVERY, self._ends - BOOKMARK_BEFORE_END)
        try:
            while True:
                while self._read:
                    yield self._read.popleft()
                if self._cut:
                    raise Lost("the connection was cut")
                if self._over or machine.now >= self._ends:
                    return
                if machine.now >= bookmark and self._watcher.bookmarks and not self._watcher.queue:
                    last = self._ends - BOOKMARK_BEFORE_END
                    bookmark = FOREVER if machine.now >= last else min(machine.now + BOOKMARK_EVERY, last)
                    yield self._link.server.bookmark(self._watcher)
                silent = machine.now + self._silence
                self._reader = machine.current
                until = min(self._ends, silent, bookmark if self._watcher.bookmarks else silent)
                woken = machine.pause(until)
                self._reader = None
                if not woken and machine.now >= silent:
                    raise Lost("no answer for too long")
        finally:
            self._leave()

    def close(self) -> None:
        self._over = True
        self._leave()
        self._wake()

    def hang(self) -> None:
        """Half open from now on: nothing is delivered any more, and nobody is told."""
        self._link.server.watchers.remove(self._watcher)
        self._watcher.queue.clear()
        self._watcher.bookmarks = False

    def cut(self) -> None:
        """As if the connection broke."""
        self._cut = True
        self._leave()
        self._wake()

    def _filled(self) -> None:
        self._machine.post(self._deliver)

    def _delivered(self) -> None:
        if self._over or not self._watcher.queue:
            return
        self._read.append(self._watcher.queue.popleft())
        if self._watcher.queue:
            if self._link.one_by_one:
                self._filled()
            else:
                self._read.extend(self._watcher.queue)
                self._watcher.queue.clear()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            self._machine.wake(reader)

    def _leave(self) -> None:
        self._over = True
        self._watcher.filled = _nothing
        if self._watcher in self._link.server.watchers:
            self._link.server.watchers.remove(self._watcher)
        if self in self._link.open_watches:
            self._link.open_watches.remove(self)


def _nothing() -> None:
    """Of a watch that nobody reads any more."""


class _Answer:
    """What came of a request, until its caller looks."""

    def __init__(self) -> None:
        self._body: Whole | None = None
        self._error: Lost | None = None

    def take(self, call: t.Callable[[], Whole]) -> None:
        try:
            self._body = call()
        except Lost as error:
            self._error = error

    def given(self) -> Whole:
        if self._error is not None:
            raise self._error
        return t.cast("Whole", self._body)


class Link:
    """The connection of one process. `log` is shared by all of a world; `one_by_one`: each event is a choice."""

    generation = 0
    source = "the simulated cluster"

    def __init__(self, server: ApiServer, process: Process, faults: Faults, log: list[Sent]) -> None:
        self.server, self.process, self.faults, self.log = server, process, faults, log
        self.one_by_one = False
        self.count = 0
        self.down_until = 0.0
        self.open_watches: list[Open] = []

    def open(
        self,
        request: Request,
        *,
        read_timeout: float,
        connect_timeout: float,
        before_send: t.Callable[[], None] | None,
    ) -> Whole:
        del connect_timeout
        machine = self.process.machine
        ordinal, self.count = self.count, self.count + 1
        sent = Sent(self.process.name, ordinal, request, machine.now)
        self.log.append(sent)
        fault = self.faults.of(ordinal, request)
        what = fault.what if fault else ""
        if fault and what == "frozen":
            self.process.freeze(fault.seconds)
            machine.hop()
        if before_send is not None:
            before_send()
        sent.left = machine.now
        if what == "killed before":
            self.process.kill()
        if what == "unreachable":
            raise Unreachable("connection refused", request=request)
        self.faults.overtake(request)
        if what == "hang":
            machine.pause(machine.now + read_timeout)
            raise Lost("no answer for too long")
        answer = _Answer()
        caller = machine.current

        def arrive() -> None:
            answer.take(lambda: self._carried_out(request, sent, fault, read_timeout))
            if caller is not None:
                machine.wake(caller)

        arrival = Action(arrive, f"{request.verb} {request.resource}")
        if fault and what == "late":
            machine.at(machine.now + fault.seconds, arrival)
        else:
            machine.post(arrival)
        machine.pause()
        if what == "killed after":
            self.process.kill()
        if fault and what == "frozen sent":
            self.process.freeze(fault.seconds)
            machine.hop()
        return answer.given()

    @property
    def entry(self) -> t.Mapping[str, t.Any]:
        return {"server": "https://simulated:6443"}

    @property
    def context(self) -> str:
        return "simulated"

    def renew(self, seen: int, request: Request, within: float) -> None:
        """There are no credentials to read."""

    def close(self) -> None:
        """There are no idle connections."""

    def _carried_out(self, request: Request, sent: Sent, fault: Fault | None, read_timeout: float) -> Whole:
        sent.arrived = now = self.process.machine.now
        if fault is not None and fault.what == "down":
            self.down_until = now + fault.seconds
            for watch in list(self.open_watches):
                watch.cut()
        try:
            if now < self.down_until:
                raise answers.unavailable()
            if fault is not None and (refusal := _refusal(fault, request)):
                raise refusal
            if request.verb == "watch":
                if self.process.dead:
                    raise Lost("nobody is there to read it")
                watcher = self.server.watch(request)
                sent.status = 200
                if fault is not None and fault.what == "lost":
                    self.server.watchers.remove(watcher)
                    raise Lost("the connection was cut")
                watch = Open(self, watcher, read_timeout)
                self.open_watches.append(watch)
                return watch
            if request.upgrade:
                sent.status = 101
                return Whole(101, b"", {}, self.server.forward(request))
            sent.status, text = self.server.answer(request)
        except answers.Refused as refusal:
            sent.status = refusal.code
            return _told(refusal, lost=fault is not None and fault.what == "lost")
        if fault is not None and fault.what == "lost":
            return Whole(sent.status, None, {})
        if fault is not None and fault.what == "in doubt":
            return _told(answers.storage_failed())
        return Whole(sent.status, text, {"Date": _date(int(EPOCH + self.server.objects.time()))})


@functools.lru_cache(maxsize=4096)
def _date(epoch: int) -> str:
    return email.utils.formatdate(epoch, usegmt=True)


def _told(refusal: answers.Refused, *, lost: bool = False) -> Whole:
    body = refusal.body
    text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Whole(refusal.code, None if lost else text, refusal.headers)


def _refusal(fault: Fault, request: Request) -> answers.Refused | None:
    """What is told instead of doing anything."""
    match fault.what:
        case "conflict":
            message = f'Operation cannot be fulfilled on {request.resource} "{request.name}": simulated'
            return answers.refused(409, "Conflict", message, name=request.name, kind=request.resource)
        case "throttled":
            return answers.overloaded(None)
        case "throttled with time":
            return answers.overloaded(2)
        case "error":
            return answers.internal()
        case "webhook":
            return answers.denied_by_webhook()
        case "fenced":
            return answers.denied_by_policy(request.name, names.FENCE_POLICY)
        case "invalid":
            message = f'{request.resource} "{request.name}" is invalid: simulated'
            return answers.refused(422, "Invalid", message, name=request.name, kind=request.resource)
        case "not found":
            message = f'{request.resource} "{request.name}" not found'
            return answers.refused(404, "NotFound", message, name=request.name, kind=request.resource)
        case "balancer":
            return answers.of_a_balancer(fault.status)
        case "forbidden":
            message = f'{request.resource} "{request.name}" is forbidden: User "somebody" cannot {request.verb} it'
            return answers.refused(403, "Forbidden", message, name=request.name, kind=request.resource)
    return None
