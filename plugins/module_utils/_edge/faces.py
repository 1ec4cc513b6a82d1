# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A module's arguments and its engine, as data; both faces (module and action) run it from here.

A result always holds ``changed``, ``failed``, ``msg``, ``actions`` and ``timeline``. A call that could
do its work holds ``nodes`` as well, even where some of them failed; one that failed whole does not,
and that is how a playbook tells the two apart.
"""

from __future__ import annotations

import abc
import dataclasses
import threading
import typing as t
from dataclasses import dataclass, field

from ansible.module_utils.basic import missing_required_lib
from ansible.module_utils.common.parameters import remove_values

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import durations, errors, lists, options
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import calls, context

# What plugin_utils needs of the engine, which may import this layer alone.
Event = context.Event
failure = calls.failure

Params = t.Mapping[str, t.Any]
Progress = t.Callable[[Event], None]
Guard = t.Callable[[], None]
Own = dict[str, t.Any]


def _unheard(event: Event) -> None:
    del event


def _as_they_are(own: Own, environ: t.Mapping[str, str]) -> Own:
    del environ
    return own


@dataclass(frozen=True, slots=True)
class Call:
    """How a face is called: check and diff mode, whom to tell, and what stops it before a request."""

    check: bool = False
    diff: bool = False
    progress: Progress = _unheard
    environ: t.Mapping[str, str] = field(default_factory=dict)
    guard: Guard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Face(abc.ABC):
    """One module.

    ``options`` is its argument spec without the connection's part, ``rules`` what Ansible calls
    ``mutually_exclusive`` and the like. The engine gets the options converted: ``durations`` as seconds
    and ``lists`` as tuples of names. ``unshown`` are arguments too long to be shown again.
    """

    name: str
    options: t.Mapping[str, t.Any]
    durations: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    rules: t.Mapping[str, t.Any] = field(default_factory=dict)
    unshown: tuple[str, ...] = ()

    @property
    def argument_spec(self) -> dict[str, t.Any]:
        """The whole argument spec."""
        return dict(self.options)

    def converted(self, params: Params) -> Own:
        """The module's own options as the engine takes them.

        Raises:
            BadOption: a duration is none.
        """
        own = {name: params.get(name) for name in self.options}
        for name in self.durations:
            own[name] = durations.seconds(name, own[name])
        for name in self.lists:
            own[name] = lists.names(own[name])
        return own

    @abc.abstractmethod
    def run(self, params: Params, call: Call) -> dict[str, t.Any]:
        """Do the work and give back the result as plain data.

        Raises:
            BadOption: an option's value cannot be used; nothing was asked or done.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFace(Face):
    """A module that works on a cluster.

    ``prepare`` makes of the converted options what the engine wants; it sees the environment.
    """

    engine: t.Callable[[context.Context, Own], context.Result]
    prepare: t.Callable[[Own, t.Mapping[str, str]], Own] = _as_they_are

    @property
    def argument_spec(self) -> dict[str, t.Any]:
        return {**options.CONNECTION, **self.options}

    def run(self, params: Params, call: Call) -> dict[str, t.Any]:
        missing = calls.library_error()
        if missing is not None:
            return {**failure(missing_required_lib("kubernetes")), "exception": missing}
        run = context.Run.parse(params.get("run"))
        own = self.prepare(self.converted(params), call.environ)
        return calls.perform(
            options.connection(params, call.environ),
            lambda ctx: self.engine(ctx, own),
            user_agent=user_agent(self.name, run),
            run=run,
            check=call.check,
            progress=call.progress,
            guard=call.guard,
        )


def run_face(face: Face, params: Params, call: Call) -> dict[str, t.Any]:
    """The result of one call, without secrets; never raises for what a user or a cluster did."""
    hidden = options.secrets(params, call.environ)
    try:
        result = face.run(params, dataclasses.replace(call, progress=_told(call.progress, hidden)))
    except errors.BadOption as error:
        result = failure(str(error))
    if not call.diff:
        result.pop("diff", None)
    # What is handed out as the right to act is not hidden from the one who asked for it.
    handed_out = {"run": result["run"]} if "run" in result else {}
    shown: dict[str, t.Any] = remove_values(result, hidden)
    return {**shown, **handed_out, "invocation": invocation(face, params, hidden)}


def user_agent(module: str, run: context.Run | None) -> str:
    """What the API server's audit log shows; the run's id, never its nonce."""
    return f"kubeops.node_maintenance/{module}" + (f" run/{run.id}" if run else "")


def invocation(face: Face, params: Params, hidden: t.AbstractSet[str]) -> dict[str, t.Any]:
    """The arguments as Ansible shows them at high verbosity: secrets by option and by value left out."""
    spec = face.argument_spec
    shown = {
        name: "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
        if spec[name].get("no_log") and params.get(name) is not None
        else params.get(name)
        for name in spec
        if name not in face.unshown
    }
    return {"module_args": remove_values(shown, hidden)}


def _told(progress: Progress, hidden: t.AbstractSet[str]) -> Progress:
    """One line at a time, from whichever thread it comes, and without secrets."""
    lock = threading.Lock()

    def tell(event: Event) -> None:
        clean = dataclasses.replace(event, message=remove_values(event.message, hidden))
        with lock:
            progress(clean)

    return tell


def line(event: Event) -> str:
    """An event as a line for people: time of day (UTC), node, what it is about, what happened."""
    place = f"{event.namespace}/{event.name}" if event.namespace else event.name
    parts = [event.at[11:19], event.node, place if place not in event.message else "", event.message]
    return "  ".join(part for part in parts if part)


def plain(value: t.Any) -> t.Any:
    """The value in Python's own types: what the controller hands over carries tags of its templates."""
    if isinstance(value, t.Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    return value


T = t.TypeVar("T")


def built(kind: type[T], own: Own) -> T:
    """The engine's options from the module's; what is not given takes the engine's default.

    The run is part of the call and no option of the engine.
    """
    return kind(**{name: value for name, value in own.items() if name != "run" and value is not None})
