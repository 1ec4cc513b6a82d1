# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A module's arguments and engine as data, for the module and for its action plugin.

Every result has ``changed``, ``failed``, ``msg``, ``actions`` and ``timeline``. A call that could
start its work also has ``nodes``, even if some of them failed; one that failed as a whole does not.
Playbooks tell them apart by this.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import os
import threading
import typing as t
from dataclasses import dataclass, field

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    calls,
    connection_options,
    masking,
    option_values,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    printable,
    reasons,
)

# What plugin_utils needs of the engine, of which it may import this layer only.
Event = run_context.Event
Interruption = calls.Interruption
failure = calls.failure

Arguments = t.Mapping[str, t.Any]
"""A task's arguments as Ansible validated them."""
Params = dict[str, t.Any]
"""The module's own arguments, converted for the engine."""
Progress = t.Callable[[Event], None]
Guard = t.Callable[[], None]
Engine = t.Callable[[run_context.Context, Params], run_context.Result]


class Lacking(t.Protocol):
    """The permissions that these credentials lack for a module."""

    def __call__(
        self, ctx: run_context.Context, *, nodes: t.Sequence[str], within: t.Sequence[str]
    ) -> t.Iterable[reasons.Finding]:
        """With remedies; ``within`` are the namespaces in which the module works."""


# Argument specs of options that several modules have.
NODES: Params = {
    "nodes": {"type": "list", "elements": "str", "required": True, "aliases": ["name"]},
    "run": {"type": "str"},
}
NODES_OR_SELECTOR: Params = {
    "required_one_of": [("nodes", "node_selector")],
    "mutually_exclusive": [("nodes", "node_selector")],
}
BUDGETS: Params = {
    "method": {"type": "str", "choices": ["surge", "replace", "evict"], "default": "replace"},
    "reactive_budgets": {"type": "list", "elements": "str"},
}
RULES: Params = {"rules": {"type": "list", "elements": "dict"}}
WEBHOOK: Params = {
    "url": {"type": "str", "required": True, "no_log": True},
    "headers": {"type": "dict", "no_log": True},
    "format": {"type": "str", "choices": ["json", "slack"], "default": "json"},
    "deadline": {"type": "str", "default": "30s"},
}


def _discard(event: Event) -> None:
    del event


def _unchanged(params: Params) -> Params:
    return params


def _ours(arguments: Arguments) -> str:
    del arguments
    return ""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: check and diff mode, where progress goes, and what ends it early.

    A ``guard`` may end the process before a request, an ``interruption`` the call at its next wait,
    which then ``let_go`` of what its run holds.
    """

    check: bool = False
    diff: bool = False
    progress: Progress = _discard
    environ: t.Mapping[str, str] = field(default_factory=dict)
    guard: Guard | None = None
    interruption: Interruption | None = None
    let_go: calls.LetGo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSpec(abc.ABC):
    """One module.

    ``options`` is its argument spec without the connection options, ``rules`` are
    ``mutually_exclusive`` and the like. The engine gets ``durations`` in seconds and ``lists`` as
    tuples of names. ``unshown`` are arguments that are too long for the result's ``invocation``.
    ``detailed``: the result has details that a playbook does not decide by. ``documents`` are keys
    of the result below which texts have several lines; all other texts have one. ``foreign`` says
    what to write instead of a task that was written for a module of another collection,
    and nothing of any other task.
    """

    name: str
    options: t.Mapping[str, t.Any]
    durations: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    rules: t.Mapping[str, t.Any] = field(default_factory=dict)
    unshown: tuple[str, ...] = ()
    detailed: bool = False
    documents: tuple[str, ...] = ()
    foreign: t.Callable[[Arguments], str] = _ours

    @property
    def argument_spec(self) -> dict[str, t.Any]:
        return dict(self.options)

    def converted(self, arguments: Arguments) -> Params:
        """The module's own options with durations and lists converted.

        Raises:
            BadOption: a duration cannot be parsed.
        """
        params = {name: arguments.get(name) for name in self.options}
        for name in self.durations:
            params[name] = option_values.seconds(name, params[name])
        for name in self.lists:
            params[name] = option_values.names(params[name])
        return params

    @abc.abstractmethod
    def run(self, arguments: Arguments, call: Call) -> dict[str, t.Any]:
        """Do the work and return the result as plain data.

        Raises:
            BadOption: an option has an unusable value. Nothing was requested or written.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterModuleSpec(ModuleSpec):
    """A module that works on a cluster. ``prepare`` turns converted options into the engine's.

    ``lacking`` finds the permissions that are missing for all of it, for the message about one,
    also those for the pods of its ``nodes`` in the namespaces that it is limited to (``within``).
    """

    engine: Engine
    lacking: Lacking | None = None
    prepare: t.Callable[[Params], Params] = _unchanged

    @property
    def argument_spec(self) -> dict[str, t.Any]:
        return {**connection_options.CONNECTION, **self.options}

    def run(self, arguments: Arguments, call: Call) -> dict[str, t.Any]:
        missing = calls.library_error()
        if missing is not None:
            return {**failure(missing_required_lib("kubernetes")), "exception": missing}
        run = run_context.Run.parse(arguments.get("run"))
        params = self.prepare(self.converted(arguments))
        lacking = None
        if self.lacking is not None:
            lacking = functools.partial(
                self.lacking,
                nodes=option_values.names(arguments.get("nodes")),
                within=option_values.names(arguments.get("namespaces")),
            )
        return calls.perform(
            connection_options.connection(arguments, call.environ),
            lambda ctx: self.engine(ctx, params),
            # Shown in the API server's audit log: the run's id, never its nonce.
            user_agent=f"kubeops.node_maintenance/{self.name}" + (f" run/{run.id}" if run else ""),
            run=run,
            check=call.check,
            progress=call.progress,
            guard=call.guard,
            interruption=call.interruption,
            let_go=call.let_go,
            lacking=lacking,
        )


def run_call(spec: ModuleSpec, arguments: Arguments, call: Call) -> dict[str, t.Any]:
    """The result of one call, without secrets and in printable texts.

    Never raises because of the user's input or the cluster.
    """
    hidden = connection_options.secrets(arguments, call.environ)
    masking.register(connection_options.credentials(arguments, call.environ))
    try:
        result = spec.run(
            arguments, dataclasses.replace(call, progress=_shown(call.progress, hidden))
        )
    except option_values.BadOption as error:
        result = failure(str(error))
    if not call.diff:
        result.pop("diff", None)
    # The nonce of a run is a secret, except for the caller that starts the run.
    returned = {"run": result["run"]} if "run" in result else {}
    shown: dict[str, t.Any] = printable.data(
        masking.masked(result, hidden), ("diff", *spec.documents)
    )
    return {**shown, **returned, "invocation": _invocation(spec, arguments, hidden)}


def _invocation(
    spec: ModuleSpec, arguments: Arguments, hidden: t.AbstractSet[str]
) -> dict[str, t.Any]:
    """The arguments as Ansible shows them at high verbosity, without secrets."""
    shown: Params = {}
    for name, option in spec.argument_spec.items():
        if name in spec.unshown:
            continue
        value = arguments.get(name)
        if option.get("no_log") and value is not None:
            value = masking.WHOLE
        elif name == "kubeconfig":
            value = connection_options.shown(value)
        shown[name] = value
    return {"module_args": masking.masked(shown, hidden)}


def _shown(progress: Progress, hidden: t.AbstractSet[str]) -> Progress:
    """Pass events on one at a time, from any thread, without secrets and in printable texts."""
    lock = threading.Lock()

    def announce(event: Event) -> None:
        message = masking.masked(event.message, hidden)
        clean = {
            key: printable.line(text)
            for key, text in {**dataclasses.asdict(event), "message": message}.items()
        }
        with lock:
            progress(Event(**clean))

    return announce


def line(event: Event) -> str:
    """An event as a line of progress: time (UTC), node, object, message."""
    place = f"{event.namespace}/{event.name}" if event.namespace else event.name
    parts = [
        event.at[11:19],
        event.node,
        place if place not in event.message else "",
        event.message,
    ]
    return "  ".join(part for part in parts if part)


def plain(value: t.Any) -> t.Any:
    """The value in Python's own types, without the tags that the controller's templates add."""
    if isinstance(value, t.Mapping):
        # A template's own strings remain such under str() alone (ansible-core 2.16).
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    return value


T = t.TypeVar("T")


def engine(run: t.Callable[[run_context.Context, T], run_context.Result], kind: type[T]) -> Engine:
    """What a module has as its engine: ``run``, with the options as ``kind``."""
    return lambda ctx, params: run(ctx, from_params(kind, params))


def from_params(kind: type[T], params: Params) -> T:
    """The engine's options. Unset ones take the engine's defaults;
    ``run`` belongs to the call, not to the engine.
    """
    given = {name: value for name, value in params.items() if value is not None}
    given.pop("run", None)
    return kind(**given)


# Running as a module: one JSON result and no progress, which modules cannot show.


class Module(AnsibleModule):
    """Ansible's module, but for what it logs to syslog."""

    def _log_invocation(self) -> None:
        """A kubeconfig that is given as a dictionary would be logged with its secrets."""
        if isinstance(self.params.get("kubeconfig"), dict):
            self.log("Invoked with a kubeconfig given as a dictionary")
        else:
            super()._log_invocation()


def run_module(spec: ModuleSpec) -> None:
    """Run a module; this is all that it does."""
    module = Module(spec.argument_spec, supports_check_mode=True, **spec.rules)
    call = Call(check=module.check_mode, diff=module._diff, environ=dict(os.environ))
    module.exit_json(**run_call(spec, module.params, call))
