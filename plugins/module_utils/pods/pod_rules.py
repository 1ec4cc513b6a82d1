# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How the user's rules, or the owner of a workload by annotations, want pods to be moved.

The first rule that selects a pod decides all of it; annotations count for pods that no rule
selects. Nothing is stored: who comes first is computed from the pods that are still there.
"""

from __future__ import annotations

import bisect
import dataclasses
import graphlib
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    pod_selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations

ACTIONS = (
    *("skip", "wait", "last", "order", "after", "before", "grace_period", "deadline"),
    *("bands", "method", "load_balancer_wait"),
)
"""What a rule can ask for."""
KEYS = ("name", *pod_selectors.KEYS, *ACTIONS)
ANNOTATIONS: t.Mapping[str, str] = {
    f"{names.PREFIX}/{key.replace('_', '-')}": key
    for key in ("skip", "wait", "order", "grace_period", "deadline", "method", "load_balancer_wait")
}
"""Annotations of a workload, or of a pod without one, and the key of a rule for each."""
METHODS = ("surge", "replace", "evict")
"""How a pod leaves: after one more, after its own replacement, or before it."""

Raw = t.Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """How a pod is moved; the default is as without any rule.

    ``rule`` is how messages call what asks for it, ``name`` how other rules do, and ``after`` are
    the names of rules with pods that leave the node before. ``order``: pods with a lower one leave
    the node before, and ``last`` is after all of them. ``grace_period`` replaces the pod's own
    seconds, ``most_grace`` limits them. ``deadline``, in seconds, counts from when it is the pod's
    turn. ``method`` is one of ``METHODS``, or empty; ``load_balancer_wait`` replaces that of the
    call. ``fault`` says why the wish cannot be read.
    """

    rule: str = ""
    name: str = ""
    skip: bool = False
    wait: bool = False
    last: bool = False
    order: int = 0
    after: frozenset[str] = frozenset()
    grace_period: int | None = None
    most_grace: int | None = None
    deadline: float | None = None
    method: str = ""
    load_balancer_wait: float | None = None
    fault: str = ""

    @property
    def ordered(self) -> bool:
        """Whether others may have to leave before."""
        return bool(self.last or self.order or self.after)

    def grace(self, pod: objects.Pod, given: int | None) -> int | None:
        """Seconds, ``None`` for the pod's own; ``given`` is the grace period of the call."""
        if self.grace_period is not None:
            return self.grace_period
        if self.most_grace is None:
            return given
        return min(pod.grace_seconds if given is None else given, self.most_grace)

    def balanced(self, given: float) -> float:
        """Seconds between its end in its Services and its eviction; ``given`` are the call's."""
        return given if self.load_balancer_wait is None else self.load_balancer_wait

    def waits_for(self, other: PodPolicy) -> bool:
        """Whether pods with the other policy leave the same node before."""
        return (self.last, self.order) > (other.last, other.order) or other.name in self.after


NONE = PodPolicy()
"""The policy of pods that no rule selects."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the user; ``bands`` are the lowest priority and the seconds of each."""

    selector: pod_selectors.PodSelector
    policy: PodPolicy
    bands: tuple[tuple[int, int], ...] = ()

    def of(self, pod: objects.Pod) -> PodPolicy:
        """The policy of a pod that the rule selects.

        A pod below all bands is in the first (``groupByPriority`` of the kubelet's
        graceful node shutdown).
        """
        if not self.bands:
            return self.policy
        priorities = [priority for priority, _seconds in self.bands]
        index = max(0, bisect.bisect_right(priorities, pod.priority) - 1)
        return dataclasses.replace(self.policy, order=index, most_grace=self.bands[index][1])


def policy_of(
    rules: t.Iterable[Rule],
    pod: objects.Pod,
    workload: objects.Ref | None,
    annotations: t.Mapping[str, str],
) -> PodPolicy:
    """``annotations`` are those of the pod's workload, or its own if it has none."""
    for rule in rules:
        if rule.selector.matches(pod, workload):
            return rule.of(pod)
    if ANNOTATIONS.keys().isdisjoint(annotations):
        return NONE
    wishes = {key: annotations[name] for name, key in ANNOTATIONS.items() if name in annotations}
    where = f"the annotations of {workload or pod.ref}"
    policy, _bands, faults = _policy(names.PREFIX, wishes)
    if faults:
        said = []
        for place, value, text in faults:
            said.append(f"{value!r} of {place.replace('_', '-')} is not {text}")
        message = "; ".join(said).replace(f"{names.PREFIX}.", f"{names.PREFIX}/")
        return PodPolicy(where, fault=message)
    return dataclasses.replace(policy, rule=where)


def read(
    raws: t.Sequence[t.Any], option: str = "rules"
) -> tuple[tuple[Rule, ...], list[pod_selectors.Fault]]:
    """The rules of a list of mappings with ``KEYS``, and everything that is wrong with them."""
    rules: list[Rule] = []
    faults: list[pod_selectors.Fault] = []
    for index, raw in enumerate(raws):
        where = f"{option}[{index}]"
        if not isinstance(raw, t.Mapping):
            faults.append((where, raw, f"a mapping with some of {', '.join(KEYS)}"))
            continue
        selector, wrong = pod_selectors.read(where, raw)
        unknown = [key for key in raw if key not in KEYS]
        faults += [(f"{where}.{key}", raw[key], f"one of {', '.join(KEYS)}") for key in unknown]
        policy, bands, more = _policy(where, raw)
        faults += [*wrong, *more]
        name = str(raw.get("name") or "")
        called = f"rule {name}" if name else f"rule {index + 1}"
        rules.append(Rule(selector, dataclasses.replace(policy, rule=called, name=name), bands))
    faults = faults or list(_sequence(raws, rules, option))
    if faults:
        return (), faults
    followers = {raw.get("name"): _texts(raw.get("before")) for raw in raws if raw.get("before")}
    whole = []
    for rule in rules:
        ahead = {name for name, before in followers.items() if rule.policy.name in before}
        policy = dataclasses.replace(rule.policy, after=rule.policy.after | ahead)
        whole.append(dataclasses.replace(rule, policy=policy))
    return tuple(whole), []


def _policy(
    where: str, raw: Raw
) -> tuple[PodPolicy, tuple[tuple[int, int], ...], list[pod_selectors.Fault]]:
    faults: list[pod_selectors.Fault] = []

    def take(key: str, convert: t.Callable[[t.Any], t.Any], expected: str) -> t.Any:
        try:
            return convert(raw[key]) if raw.get(key) is not None else None
        except (ValueError, TypeError, KeyError):
            faults.append((f"{where}.{key}", raw[key], expected))
            return None

    policy = PodPolicy(
        skip=bool(take("skip", _truth, "true or false")),
        wait=bool(take("wait", _finished, "finished")),
        last=bool(take("last", _truth, "true or false")),
        order=take("order", _number, "an integer such as -5 or 10") or 0,
        after=frozenset(take("after", _texts, "a list of names of rules") or ()),
        grace_period=take("grace_period", _natural, "an integer number of seconds, 0 or more"),
        deadline=take("deadline", _positive, f"more than 0: {durations.EXPECTED}"),
        method=take("method", _method, f"one of {', '.join(METHODS)}") or "",
        load_balancer_wait=take("load_balancer_wait", durations.seconds, durations.EXPECTED),
    )
    take("before", _texts, "a list of names of rules")
    expected = "a list of {priority, seconds}, as shutdownGracePeriodByPodPriority of a kubelet"
    bands = take("bands", _bands, expected) or ()
    # 0 is a value, although Python calls it equal to False.
    asked = [key for key in ACTIONS if raw.get(key) is not None and raw[key] is not False]
    given = [key for key in asked if raw[key] != "false"]
    if not given:
        faults.append((where, dict(raw), f"what to do with the pods: {', '.join(ACTIONS)}"))
    for key, others in _contradictions(given):
        faults.append((where, ", ".join(given), f"{key} without {', '.join(others)}"))
    return policy, bands, faults


def _contradictions(given: t.Sequence[str]) -> t.Iterator[tuple[str, list[str]]]:
    """An action with those beside it that mean something else."""
    sequence = {"order", "after", "before", "last"}
    against = {
        "skip": set(ACTIONS) - {"skip"},
        "wait": {"grace_period", "bands"},
        "bands": sequence | {"grace_period"},
        "last": {"order", "before"},
    }
    for key, wrong in against.items():
        if key in given and (others := [other for other in given if other in wrong]):
            yield key, others
            return


def _sequence(
    raws: t.Sequence[Raw], rules: t.Sequence[Rule], option: str
) -> t.Iterator[pod_selectors.Fault]:
    """What is wrong with names, ``after``, ``before``, and a ``skip`` that leaves every pod."""
    known = {rule.policy.name: rule for rule in rules if rule.policy.name}
    graph: dict[str, set[str]] = {}
    yield from _repeated(rules, option)
    for index, (raw, rule) in enumerate(zip(raws, rules, strict=True)):
        if rule.policy.skip and rule.selector == pod_selectors.PodSelector({}):
            expected = (
                f"{', '.join(pod_selectors.KEYS[:-1])} or {pod_selectors.KEYS[-1]} beside "
                "skip: which pods stay"
            )
            yield f"{option}[{index}]", dict(raw), expected
        me = rule.policy.name or f"{option}[{index}]"
        if raw.get("before") and not rule.policy.name:
            yield f"{option}[{index}].name", raw.get("name"), "a name, because the rule has before"
        for key in ("after", "before"):
            for other in _texts(raw.get(key) or ()):
                if other not in known or known[other].bands or known[other].policy.skip:
                    yield (
                        f"{option}[{index}].{key}",
                        other,
                        "the name of a rule without bands and skip",
                    )
                    continue
                first, then = (known[other], rule) if key == "after" else (rule, known[other])
                if (first.policy.last, first.policy.order) > (then.policy.last, then.policy.order):
                    expected = (
                        f"no higher order of what leaves first ({first.policy.rule} before "
                        f"{then.policy.rule})"
                    )
                    yield f"{option}[{index}].{key}", other, expected
                pair = (me, other) if key == "after" else (other, me)
                graph.setdefault(pair[0], set()).add(pair[1])
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield option, " after ".join(error.args[1]), "after and before without a circle"


def _repeated(rules: t.Sequence[Rule], option: str) -> t.Iterator[pod_selectors.Fault]:
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        name = rule.policy.name
        if name in seen:
            yield f"{option}[{index}].name", name, "another name: an earlier rule has it"
        if name:
            seen.add(name)


def _truth(value: t.Any) -> bool:
    return {"true": True, "false": False}[str(value).lower()]


def _finished(value: t.Any) -> bool:
    return {"finished": True}[str(value)]


def _method(value: t.Any) -> str:
    return {method: method for method in METHODS}[str(value)]


def _number(value: t.Any) -> int:
    if isinstance(value, (bool, float)):
        raise ValueError
    return int(value)


def _natural(value: t.Any) -> int:
    number = _number(value)
    if number < 0:
        raise ValueError
    return number


def _positive(value: t.Any) -> float:
    found = durations.seconds(value)
    if not found:
        raise ValueError
    return found


def _texts(value: t.Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value or ()
    if not isinstance(items, (list, tuple)):
        raise ValueError
    if not all(isinstance(item, str) and item for item in items):
        raise ValueError
    return tuple(items)


def _bands(value: t.Any) -> tuple[tuple[int, int], ...]:
    """From the lowest priority on; seconds may be called as in the kubelet's configuration."""
    found = {}
    for band in value:
        priority = _number(band["priority"])
        ((key, seconds),) = ((key, each) for key, each in band.items() if key != "priority")
        if key not in ("seconds", "shutdownGracePeriodSeconds") or priority in found:
            raise ValueError
        found[priority] = _natural(seconds)
    if not found:
        raise ValueError
    return tuple(sorted(found.items()))
