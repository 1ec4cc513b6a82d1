# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_wave``: those of the modules of its steps, one dictionary for each."""

from __future__ import annotations

import functools
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    calls,
    details,
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    arguments as drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
    arguments as hooks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_cordon,
    arguments_ready,
    arguments_taint,
    run_cordon,
    run_gates,
    run_node_steps,
    run_taint,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    arguments as planning,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    arguments as surge,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import (
    run_steps,
    run_wave,
)


class _Step(t.NamedTuple):
    """The module of a step, and what the wave says itself of the module's options."""

    spec: specs.ClusterModuleSpec
    kind: type[t.Any]
    own: tuple[str, ...] = ("nodes", "run", "state")


STEPS: t.Mapping[str, _Step] = {
    "plan": _Step(planning.SPEC, run_plan.PlanOptions, ("nodes", "run", "max_parallel")),
    "cordon": _Step(
        arguments_cordon.SPEC,
        run_node_steps.CordonOptions,
        ("nodes", "run", "state", "lease_duration", "stored", "adopt"),
    ),
    "protect": _Step(surge.SPEC, run_guard.GuardOptions),
    "migrate": _Step(drain.SPEC, run_drain.DrainOptions),
    "verify": _Step(arguments_ready.SPEC, run_gates.ReadyOptions, ("nodes", "run", "wait")),
    "taint": _Step(arguments_taint.SPEC, run_taint.TaintOptions, ("nodes", "run")),
}


WAYS: t.Mapping[str, run_steps.Engine] = {
    "out": run_wave.take_out,
    "back": run_wave.bring_back,
    "released": run_wave.release,
}
LACKING: t.Mapping[run_steps.Engine, specs.Lacking | None] = {
    run_cordon.cordon: arguments_cordon.SPEC.lacking,
    run_guard.guard: surge.SPEC.lacking,
    run_drain.drain: drain.SPEC.lacking,
    run_gates.check_ready: arguments_ready.SPEC.lacking,
    run_taint.taint: arguments_taint.SPEC.lacking,
}


def _prepared(params: specs.Params) -> specs.Params:
    before = specs.plain(params["before"] or {})
    rules = {
        "before_node": hooks.read("before_node", params["before_node"], "before_node"),
        "after_node": hooks.read("after_node", params["after_node"], "after_node"),
    }
    nodes = params["nodes"]
    kept = ("state", "nodes", "on_failure", "has_work", "tasks_timeout", "fences", "fenced", "last")
    plan = None
    if params["plan"] is not None:
        plan = _options("plan", params, max_parallel=len(nodes))
    return {
        **{name: params[name] for name in (*kept, "lease_duration")},
        **rules,
        "evacuates": params["goal"] == "evacuated",
        "releases": params["state"] == "released",
        "plan": plan,
        "cordon": _options("cordon", params, stored=True, adopt=params["adopt"]),
        "guard": _options("protect", params),
        "drain": _options("migrate", params),
        "gates": _options("verify", params, wait=True),
        "taint": _options("taint", params) if params["taint"] else None,
        "works": specs.plain(params["works"] or {}),
        "runs": specs.plain(params["runs"] or {}),
        "files": specs.plain(params["files"] or {}),
        "before": before,
        "told": tuple(map(details.whole, details.told(before))),
    }


def _options(name: str, params: specs.Params, **own: t.Any) -> t.Any:
    """The options of a step as its engine takes them.

    Raises:
        BadOption: the module of the step would not take them.
    """
    step = STEPS[name]
    given = {key: value for key, value in (params[name] or {}).items() if value is not None}
    if both := sorted(given.keys() & set(step.own)):
        raise option_values.BadOption(name, both, "none of these, which the wave sets itself")
    arguments = {"nodes": list(params["nodes"]), **given, **own}
    validation = ArgumentSpecValidator(dict(step.spec.options), **step.spec.rules).validate(
        specs.plain(arguments)
    )
    if validation.error_messages:
        expected = f"the options of {step.spec.name}: {'; '.join(validation.error_messages)}"
        raise option_values.BadOption(name, sorted(given), expected)
    try:
        converted = step.spec.converted(validation.validated_parameters)
        return specs.from_params(step.kind, step.spec.prepare(converted))
    except option_values.BadOption as error:
        error.args = (f"{name}: {error}",)
        raise


def _engine(ctx: run_context.Context, params: specs.Params) -> run_context.Result:
    state = params.pop("state")
    nodes, within = params["nodes"], params["drain"].choices.namespaces

    def explain(
        ctx: run_context.Context, result: run_context.Result, engine: run_steps.Engine
    ) -> None:
        if lacking := LACKING.get(engine):
            calls.name_lacking(ctx, result, functools.partial(lacking, nodes=nodes, within=within))

    options = specs.from_params(run_steps.WaveOptions, {**params, "explain": explain})
    result = WAYS[state](ctx, options)
    # The details of the calls before stay where they are.
    result.data[details.KEY] = list(options.before.get(details.KEY) or ())
    result.data["steps"] = [*(options.before.get("steps") or ()), *result.data["steps"]]
    return result


SPEC = specs.ClusterModuleSpec(
    name="maintenance_wave",
    options={
        "state": {"type": "str", "choices": list(WAYS), "required": True},
        **specs.NODES,
        "run": {"type": "str", "required": True},
        "goal": {"type": "str", "choices": ["maintained", "evacuated"], "default": "maintained"},
        **{name: {"type": "dict"} for name in STEPS},
        "before_node": {"type": "list", "elements": "dict"},
        "after_node": {"type": "list", "elements": "dict"},
        "on_failure": {"type": "str", "choices": ["auto", "keep", "release"], "default": "auto"},
        "has_work": {"type": "bool", "default": False},
        "tasks_timeout": {"type": "str", "default": "1h"},
        "works": {"type": "dict"},
        "runs": {"type": "dict"},
        "adopt": {"type": "bool", "default": False},
        "fences": {"type": "bool", "default": False},
        "fenced": {"type": "list", "elements": "str"},
        "files": {"type": "dict"},
        "before": {"type": "dict"},
        "last": {"type": "bool", "default": False},
        "lease_duration": {"type": "str"},
    },
    durations=("tasks_timeout", "lease_duration"),
    lists=("nodes", "fenced"),
    prepare=_prepared,
    unshown=(*STEPS, "before_node", "after_node", "files", "before", "works"),
    detailed=True,
    engine=_engine,
)
