# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The input of the playbooks: ``maintain_*`` variables from the command line, surveys,
files and the inventory.

They are converted once, here, and all errors are reported at once.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import json
import re
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_conditions,
    arguments_taints,
    gate_checks,
    reboots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    arguments_window,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    pod_rules,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    arguments_announcements,
)

PREFIX = "maintain_"
ROLE = "migrate_"
"""The role whose options are mistaken for ours: as extra variables they would override it."""
UNPARSED = "_raw_params"
"""Words behind ``-e`` that belong to no variable, as Ansible hands them on."""
RUN_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")

CLOSE = 0.75
"""How similar a name has to be to one that was given wrong; 1 is the same."""
CHOSEN = "reboot_required"
"""Instead of names of nodes: those whose hosts have to be rebooted. No node can be called so."""
POLICY = (
    *("backend", "fallback", "job_wait"),
    *drain_policy.KOORDINATOR,
    *("allow_interruption", "node_autoscaler", "method", "reactive_budgets"),
    *("operator_budget_wait", "load_balancer_wait"),
    *("force", "delete_emptydir_data", "fenced", "rules"),
)
FORECAST = (
    *("before_pod", "on_blocked", "settle", "order", "zone_key", "max_per_zone", "kured"),
    *("node_conditions", "planned_notice", "timeout"),
)
POLICIES: t.Mapping[str, tuple[str, ...]] = {
    "plan": (*POLICY, *FORECAST),
    "guard": (
        *("method", "allow_interruption", "node_autoscaler", "rules"),
        *("reactive_budgets", "settle"),
    ),
    "drain": (*POLICY, "alarm_after"),
}
"""What every call of a run is told that plans how pods are moved, prepares that, or does it."""
STEPS: t.Mapping[str, tuple[str, ...]] = {
    "cordon": (
        *("reason", "exclude_from_load_balancers", "hold_autoscalers", "hold_remediation"),
        *("node_conditions", "planned_notice", "rules"),
    ),
    "protect": (*POLICIES["guard"], "timeout"),
    "migrate": (*POLICIES["drain"], "timeout", "before_pod", "after_pod"),
    "verify": ("gates", "taints", "conditions", "timeout"),
}
"""What the steps of ``maintenance_wave`` are told."""
HOOKS = ("before_node", "before_pod", "after_pod", "after_node")
OF_WAVES = ("before_node", "after_node", "on_failure", "tasks_timeout")
LISTS = (
    *("nodes", "taints", "fenced", "rules", "reactive_budgets"),
    *("window", "reboot_checks", "reboot_files"),
)
"""The variables that are lists."""
EVERY_NODE = "kubernetes.io/hostname"
"""A selector of all nodes: each kubelet sets this label."""

Convert = t.Callable[[str, t.Any], t.Any]


def _text(name: str, value: t.Any) -> str:
    if isinstance(value, (t.Mapping, list, tuple)):
        raise option_values.BadOption(name, value, "a string")
    return str(value).strip()


def _truth(name: str, value: t.Any) -> bool:
    try:
        return bool(boolean(value.strip() if isinstance(value, str) else value))
    except TypeError:
        raise option_values.BadOption(name, value, "true or false") from None


def _seconds(name: str, value: t.Any) -> int | None:
    seconds = option_values.seconds(name, value)
    return None if seconds is None else int(seconds)


def _some_seconds(name: str, value: t.Any) -> int | None:
    seconds = _seconds(name, value)
    if seconds == 0:
        raise option_values.BadOption(
            name, value, "more than 0 seconds; maintain_backend=eviction uses no jobs"
        )
    return seconds


def _names(name: str, value: t.Any) -> list[str]:
    if isinstance(value, t.Mapping):
        raise option_values.BadOption(
            name, value, "a list, or a string with commas, spaces or newlines between the names"
        )
    return list(option_values.names(value))


def _selectors(name: str, value: t.Any) -> list[str]:
    """Label selectors, which contain commas and spaces themselves."""
    if not isinstance(value, (str, list, tuple)):
        raise option_values.BadOption(
            name, value, "a list of label selectors, or a string with semicolons between them"
        )
    # Its imports are needed by few playbooks.
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
        arguments_policy,
    )

    items = re.split(r"[;\n]", value) if isinstance(value, str) else value
    selectors = [text for item in items if (text := str(item).strip())]
    return list(arguments_policy.reactive_budgets(selectors, name))


def _at_least(smallest: int) -> Convert:
    def convert(name: str, value: t.Any) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d+", text) or int(text) < smallest:
            raise option_values.BadOption(name, value, f"an integer of at least {smallest}")
        return int(text)

    return convert


def _one_of(*words: str) -> Convert:
    def convert(name: str, value: t.Any) -> str:
        text = _text(name, value)
        if text not in words:
            raise option_values.BadOption(name, value, f"one of {', '.join(words)}")
        return text

    return convert


def _reboot(name: str, value: t.Any) -> str:
    """``always``, ``if_required``, or empty for never; true and false mean always and never."""
    word = str(value).strip()
    if word not in ("always", "if_required", "never"):
        try:
            word = "always" if _truth(name, value) else "never"
        except option_values.BadOption:
            raise option_values.BadOption(
                name, value, "one of if_required, always, never, true, false"
            ) from None
    return "" if word == "never" else word


def _some_of(*words: str) -> Convert:
    def convert(name: str, value: t.Any) -> list[str]:
        found = _names(name, value)
        if not set(found) <= set(words):
            raise option_values.BadOption(name, value, f"some of {', '.join(words)}")
        return found

    return convert


def _rules(name: str, value: t.Any) -> list[t.Any]:
    """Rules of how pods are moved, as a list or as JSON, which is how surveys send one."""
    items = value
    with contextlib.suppress(ValueError):
        items = json.loads(value) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise option_values.BadOption(name, value, "a list of rules, or such a list as JSON")
    faults = pod_rules.read(items, name)[1]
    if faults:
        raise option_values.BadOptions(faults)
    return list(items)


def _run(name: str, value: t.Any) -> str:
    text = _text(name, value)
    if not RUN_ID.fullmatch(text):
        raise option_values.BadOption(name, value, "the id of a run, as printed when it started")
    return text


def _moment(name: str, value: t.Any) -> float:
    """Seconds since the epoch, from RFC 3339 or from a time of day (its next occurrence, local)."""
    if isinstance(value, int) and not isinstance(value, bool):
        # YAML 1.1 reads 22:15 as a number of base 60.
        hour, minute = divmod(value, 60)
        meant = f': "{hour}:{minute:02d}"' if 0 < hour < 24 else ""
        raise option_values.BadOption(
            name, value, f"a time of day in quotes{meant}; without them YAML reads it as a number"
        )
    text = _text(name, value)
    now = datetime.datetime.now().astimezone()
    if found := re.fullmatch(r"(\d{1,2}):(\d{2})", text):
        hour, minute = int(found[1]), int(found[2])
        if hour < 24 and minute < 60:
            when = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (when if when > now else when + datetime.timedelta(days=1)).timestamp()
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.datetime.min
    if moment.tzinfo is None:
        raise option_values.BadOption(
            name,
            value,
            "a time of day such as 05:30, or a timestamp such as 2026-11-21T05:30:00+01:00",
        )
    return moment.timestamp()


def _descheduler(name: str, value: t.Any) -> dict[str, t.Any]:
    # This imports the engine of descheduler_config, which costs half a second that
    # most playbooks can save.
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
        arguments_input,
    )

    return arguments_input.read(name, value)


def _hooks(hook: str) -> Convert:
    """As lists of mappings, or JSON from a survey; paths of task files are absolute afterwards."""

    def convert(name: str, value: t.Any) -> list[dict[str, t.Any]]:
        # As above: most playbooks have no hooks.
        from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
            arguments,
        )

        return arguments.variable(name, value, t.cast("t.Any", hook))

    return convert


@dataclass(frozen=True, slots=True)
class Variable:
    """How a variable is converted, and its value if it is not set."""

    convert: Convert
    unset: t.Any = None


VARIABLES: t.Mapping[str, Variable] = {
    "nodes": Variable(_names, ()),
    "node_selector": Variable(_text, ""),
    "reason": Variable(_text, ""),
    "run": Variable(_run, ""),
    "tasks": Variable(_text, ""),
    "tasks_timeout": Variable(_seconds, 3600),
    "reboot": Variable(_reboot, ""),
    "reboot_checks": Variable(_some_of(*reboots.CHECKS), list(reboots.CHECKS)),
    "reboot_files": Variable(_names, ["/var/run/reboot-required", "/run/reboot-needed"]),
    "serial": Variable(_at_least(1)),
    "order": Variable(_one_of("given", "name", "pods", "priority", "zone"), "given"),
    "zone_key": Variable(_text, "topology.kubernetes.io/zone"),
    "max_per_zone": Variable(_at_least(1)),
    "kured": Variable(_text, "kube-system/kured"),
    "max_failures": Variable(_at_least(0), 0),
    "backend": Variable(_one_of("auto", "eviction", "koordinator"), "auto"),
    "fallback": Variable(_one_of("eviction", "fail"), "eviction"),
    "koordinator_namespace": Variable(_text, ""),
    "koordinator_deployment": Variable(_text, ""),
    "koordinator_config_map": Variable(_text, ""),
    "koordinator_key": Variable(_text, ""),
    "job_wait": Variable(_some_seconds, 60),
    "allow_interruption": Variable(_truth, False),
    "node_autoscaler": Variable(_truth, False),
    "method": Variable(_one_of(*pod_rules.METHODS), "replace"),
    "reactive_budgets": Variable(_selectors, ()),
    "operator_budget_wait": Variable(_seconds, 600),
    "load_balancer_wait": Variable(_seconds, 0),
    "settle": Variable(_seconds),
    "force": Variable(_truth, False),
    "delete_emptydir_data": Variable(_truth, False),
    "exclude_from_load_balancers": Variable(_truth, True),
    "hold_autoscalers": Variable(_truth, True),
    "hold_remediation": Variable(_truth, True),
    "node_conditions": Variable(_truth, False),
    "planned_notice": Variable(_seconds),
    "mark_waiting": Variable(_truth, True),
    "timeout": Variable(_seconds),
    "alarm_after": Variable(_seconds, 600),
    "fenced": Variable(_names, ()),
    "rules": Variable(_rules, ()),
    "fence_tasks": Variable(_text, ""),
    "fence_timeout": Variable(_seconds, 600),
    "before_node": Variable(_hooks("before_node"), []),
    "before_pod": Variable(_hooks("before_pod"), []),
    "after_pod": Variable(_hooks("after_pod"), []),
    "after_node": Variable(_hooks("after_node"), []),
    "gates": Variable(_some_of(*gate_checks.GATES)),
    "conditions": Variable(arguments_conditions.read, {}),
    "until": Variable(_moment),
    "soak": Variable(_seconds, 0),
    "window": Variable(arguments_window.read, ()),
    "tasks_estimate": Variable(_seconds, 900),
    "on_blocked": Variable(_one_of("stop", "skip"), "stop"),
    "on_failure": Variable(_one_of("auto", "keep", "release"), "auto"),
    "taints": Variable(arguments_taints.read, ()),
    "descheduler": Variable(_descheduler, {}),
    "report_dir": Variable(_text, ""),
    "traffic": Variable(_names, ()),
    "announce_on": Variable(
        _some_of(*arguments_announcements.MOMENTS), list(arguments_announcements.MOMENTS)
    ),
    "announce_events": Variable(_truth, False),
    "announce_webhook": Variable(arguments_announcements.url, ""),
    "announce_headers": Variable(arguments_announcements.headers, {}),
    "announce_format": Variable(_one_of("json", "slack"), "json"),
    "announce_deadline": Variable(arguments_announcements.deadline, 30),
    "announce_plan": Variable(_truth, False),
}


def read(
    raw: t.Mapping[str, t.Any],
    playbook: str,
    extra: t.Iterable[str] = (),
    fault: t.Callable[[str], str] = lambda _path: "",
) -> dict[str, t.Any]:
    """The input in its final types, with the list of ``errors`` in it, with whether there is work
    to do on hosts (``has_work``), and whether anything of the user's runs there (``on_hosts``).

    ``raw`` maps full names of variables to their values, including variables that start like an
    option of the role ``migrate``, and ``UNPARSED``. Empty and null mean unset. A relative path is
    relative to the current directory, because the directory of a playbook that imports ours is
    unknown here. ``extra`` are the names of all extra variables. ``fault`` says what is wrong with
    a file of tasks, which Ansible would find out only after the drain.
    """
    values, wrong = _converted(raw)
    wrong = [*without_prefix(raw, extra), *wrong]
    wrong += [*_cross_checks(values, playbook), *arguments_announcements.cross_checks(values)]
    for name in ("tasks", "fence_tasks"):
        if values[name]:
            values[name], missing = _file(name, values[name])
            wrong += missing
    wrong += [f"{name}: {why}" for name, path in _task_files(values) if (why := fault(path))]
    for name in LISTS:
        values[name] = list(values[name])
    if values["backend"] == "koordinator" and _empty(raw.get(f"{PREFIX}method")):
        # Its jobs are wanted, also for pods that could be replaced.
        values["method"] = "surge"
    if playbook != "maintain":
        values["soak"] = 0
    values["has_work"] = playbook != "evacuate" and bool(values["tasks"] or values["reboot"])
    values["on_hosts"] = values["has_work"] or _files_on_hosts(values)
    values["gates"] = values["gates"] or _usual_gates(values)
    values["announce_on"] = arguments_announcements.moments(values)
    values["alarm"] = arguments_announcements.alarm(values)
    values["traffic"] = [str(Path(path).expanduser().absolute()) for path in values["traffic"]]
    wrong += _traffic(values["traffic"])
    values["report_dir"] = str(Path(values["report_dir"] or ".").expanduser().absolute())
    mark = fingerprint(values, playbook)
    values["asks_hosts"] = values["nodes"] == [CHOSEN] or _only_reboots(values, playbook)
    if values["nodes"] == [CHOSEN]:
        values["nodes"] = []
        values["node_selector"] = values["node_selector"] or EVERY_NODE
    plan = {name: values[name] for name in POLICIES["plan"]}
    rollout = {name: value for name, value in values["descheduler"].items() if name != "pause"}
    policies = {"plan": plan, "wave": _of_waves(values, playbook), "descheduler": rollout}
    return {**values, "policies": policies, "fingerprint": mark, "errors": wrong}


def _files_on_hosts(values: t.Mapping[str, t.Any]) -> bool:
    """Whether task files run, which may be delegated to the nodes' hosts."""
    rules = (rule for hook in HOOKS for rule in values[hook])
    return bool(values["fence_tasks"]) or any(rule.get("tasks") for rule in rules)


def _of_waves(values: t.Mapping[str, t.Any], playbook: str) -> dict[str, t.Any]:
    """The options of ``maintenance_wave`` that are the same for all waves of a run."""
    steps = {step: {name: values[name] for name in names} for step, names in STEPS.items()}
    steps["migrate"]["announce"] = values["alarm"]
    if not steps["verify"]["timeout"]:
        steps["verify"]["timeout"] = "10m"
    return {
        **steps,
        **{name: values[name] for name in OF_WAVES},
        "taint": {"taints": values["taints"], "allow_no_execute": True} if values["taints"] else {},
        "goal": "evacuated" if playbook == "evacuate" else "maintained",
        "has_work": values["has_work"],
        "fences": bool(values["fence_tasks"]),
    }


def _converted(raw: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], list[str]]:
    values: dict[str, t.Any] = {name: variable.unset for name, variable in VARIABLES.items()}
    wrong: list[str] = []
    for full, value in sorted(raw.items()):
        if full == UNPARSED:
            wrong.append(
                f'"{value}" on the command line does not belong to any variable. Quote a value '
                "with spaces: -e \"maintain_nodes='worker-1 worker-2'\", or use commas instead of "
                "spaces."
            )
            continue
        if full.startswith(ROLE):
            wrong += of_the_role(full)
            continue
        name = full.removeprefix(PREFIX)
        if name not in VARIABLES:
            wrong.append(unknown(full))
        elif not _empty(value):
            try:
                values[name] = VARIABLES[name].convert(full, value)
            except option_values.BadOption as error:
                wrong.append(str(error))
    return values, wrong


def unknown(full: str) -> str:
    """The message about an unknown variable, with similar ones if there are any."""
    # Without the prefix, which they all share.
    close = difflib.get_close_matches(full.removeprefix(PREFIX), VARIABLES, n=3, cutoff=CLOSE)
    names = [PREFIX + name for name in close[: 1 if full in VARIABLES else None] or VARIABLES]
    hint = f"The variables are {', '.join(names)}."
    if close:
        hint = f"Did you mean {' or '.join(names)}?"
    return f"{full} is not a variable of this playbook. {hint}"


def without_prefix(raw: t.Container[str], extra: t.Iterable[str]) -> list[str]:
    """The messages about extra variables like ``force`` instead of ``maintain_force``,
    which would have no effect.

    If the latter is set as well, a playbook that imports ours may have set it from the former.
    """
    return [
        unknown(name) for name in sorted(extra) if name in VARIABLES and PREFIX + name not in raw
    ]


def of_the_role(full: str) -> list[str]:
    """Empty for a variable that resembles no option of the role ``migrate``."""
    return [
        f"{full} is a variable of the role migrate. Use {PREFIX}{close} with this playbook."
        for close in difflib.get_close_matches(full.removeprefix(ROLE), VARIABLES, n=1, cutoff=0.8)
    ]


def fingerprint(values: t.Mapping[str, t.Any], playbook: str) -> dict[str, t.Any]:
    """What makes two starts the same run: what is done to which nodes, without timeouts."""
    parts = ("nodes", "node_selector", "tasks", "reboot", "backend", "taints")
    return {"playbook": playbook, **{name: values[name] for name in parts}}


def _empty(value: t.Any) -> bool:
    return value is None or (
        isinstance(value, (str, t.Mapping, list, tuple)) and not str(value or "").strip()
    )


def _only_reboots(values: t.Mapping[str, t.Any], playbook: str) -> bool:
    """Whether there is nothing to do on a node whose host need not be rebooted."""
    other_work = values["tasks"] or values["taints"]
    return values["reboot"] == "if_required" and playbook in ("maintain", "plan") and not other_work


def _cross_checks(values: t.Mapping[str, t.Any], playbook: str) -> t.Iterator[str]:
    """The contradictions between variables."""
    yield from _about_nodes(values, playbook)
    if values["planned_notice"] and not values["node_conditions"]:
        yield (
            "maintain_planned_notice waits after a node condition. Set "
            "maintain_node_conditions=true as well."
        )
    if (values["max_per_zone"] or 0) > (values["serial"] or 1):
        most = "one node, because maintain_serial is not set"
        if values["serial"]:
            most = f"maintain_serial={values['serial']}"
        yield (
            f"maintain_max_per_zone={values['max_per_zone']} contradicts {most}: a wave never "
            "has so many nodes. Raise maintain_serial, or leave out maintain_max_per_zone."
        )


def _about_nodes(values: t.Mapping[str, t.Any], playbook: str) -> t.Iterator[str]:
    if CHOSEN in values["nodes"]:
        if playbook == "release" or list(values["nodes"]) != [CHOSEN]:
            yield (
                f"maintain_nodes: {CHOSEN} stands alone, for plan, maintain and evacuate. "
                "Otherwise name the nodes."
            )
    elif values["nodes"] and values["node_selector"]:
        yield "maintain_nodes and maintain_node_selector are both set. Set only one of them."
    elif not values["nodes"] and not values["node_selector"]:
        yield (
            f"Playbook {playbook} needs nodes. Set -e maintain_nodes=worker-1,worker-2, "
            "or -e maintain_node_selector='pool=blue'."
        )


def _usual_gates(values: t.Mapping[str, t.Any]) -> list[str]:
    """All gates, except those for work that is not done on the hosts."""
    left_out = set() if values["reboot"] else {"rebooted"}
    if not values["reboot"] and not values["tasks"]:
        left_out.add("stable")
    return [gate for gate in gate_checks.GATES if gate not in left_out]


def _task_files(values: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    """The files of tasks that exist, with the variables that name them."""
    named = [(PREFIX + name, values[name]) for name in ("tasks", "fence_tasks")]
    for hook in HOOKS:
        named += [
            (f"{PREFIX}{hook}[{index}].tasks", rule.get("tasks"))
            for index, rule in enumerate(values[hook])
        ]
    yield from ((name, path) for name, path in named if path and Path(path).is_file())


def _traffic(paths: t.Iterable[str]) -> t.Iterator[str]:
    """What is wrong with files of requests; one that is written at the end need not be there."""
    for path in map(Path, paths):
        # As above: most playbooks have none.
        from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
            run_traffic,
        )

        if not path.parent.is_dir():
            yield (
                f"{PREFIX}traffic: {path} cannot be written, because {path.parent} is no directory."
            )
        elif path.exists():
            try:
                run_traffic.read(str(path))
            except run_traffic.TrafficError as error:
                yield f"{PREFIX}traffic: {path} {error}"


def _file(name: str, path: str) -> tuple[str, list[str]]:
    wanted = Path(path).expanduser().absolute()
    if wanted.is_file():
        return str(wanted.resolve()), []
    return path, [f"{PREFIX}{name}: file {path} does not exist (looked for {wanted})."]
