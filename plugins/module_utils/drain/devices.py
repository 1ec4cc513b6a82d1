# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Devices of dynamic resource allocation (resource.k8s.io/v1) that hold pods on their node.

Devices are counted as the scheduler's allocator does (``dynamic-resource-allocation/structured``,
read at v1.36.3): of the newest generation of each pool, on one node, free of claims and of taints
that the request does not tolerate. Of CEL selectors only ``device.driver == "..."`` is evaluated;
constraints, capacities and shared counters are not, so more may seem to fit than does.
"""

from __future__ import annotations

import itertools
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    node_affinity,
    node_taints,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility

KINDS = ("device_claims", "device_slices", "device_classes")
NOWHERE = "no_free_device"
MOST_TRIES = 1000
"""How many alternatives of the requests of a pod are tried on one node at most."""
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""With the name of a DeviceClass, the extended resource that it always serves (KEP-5004)."""
_DRIVER = re.compile(r"""\bdevice\.driver\s*==\s*(?:"([^"]+)"|'([^']+)')""")

DeviceName = tuple[str, str, str]
"""A device by driver, pool and name."""


def claimants(pods: t.Iterable[objects.Pod]) -> bool:
    """Whether claims and slices are needed to judge these pods."""
    return any(pod.device_claims for pod in pods)


def extended(pods: t.Iterable[objects.Pod]) -> bool:
    """Whether one of the pods requests an extended resource,
    which a DeviceClass may serve instead of a node.
    """
    for pod in pods:
        for key in pod.requests:
            name = key.partition("/")[2]
            if "/" in name and ("kubernetes.io/" not in name or name.startswith(IMPLICIT)):
                return True
    return False


def served(snapshot: snapshots.Snapshot) -> frozenset[str]:
    """The extended resources for which the scheduler allocates devices,
    where a node does not have them itself.
    """
    found = set()
    for device_class in snapshot.device_classes:
        found.add(f"{IMPLICIT}{device_class['metadata']['name']}")
        if own := (device_class.get("spec") or {}).get("extendedResourceName"):
            found.add(own)
    return frozenset(found)


def refusal(snapshot: snapshots.Snapshot, pod: objects.Pod) -> reasons.Reason | None:
    """Why no second pod like this one can run on another node while this one is still there."""
    if shared := single_node(snapshot, pod):
        return shared
    claims = _claims(snapshot, pod, shared=False)
    if not claims or fits(snapshot, pod, claims):
        return None
    asked = ", ".join(dict.fromkeys(_asked(claim) for claim in claims))
    message = (
        f"A second pod needs {asked}, which no other node that takes it has "
        f"free.{_tainted_ones(snapshot, pod)}"
    )
    return reasons.Reason(
        NOWHERE, message, f"Free or add such a device on another node, or {eligibility.ACCEPT}."
    )


def single_node(snapshot: snapshots.Snapshot, pod: objects.Pod) -> reasons.Reason | None:
    """Whether the pod shares a claim whose devices no other node can use."""
    for claim in _claims(snapshot, pod, shared=True):
        allocation = (claim.get("status") or {}).get("allocation") or {}
        selector = allocation.get("nodeSelector")
        if selector is None or any(
            node_affinity.node_matches(selector, node) for node in _others(snapshot, pod)
        ):
            continue
        name = f"ResourceClaim {pod.namespace}/{claim['metadata']['name']}"
        message = (
            f"Its pods share {name}, whose devices ({_devices(claim)}) are of node {pod.node}: a "
            "second pod could run only there."
        )
        remedy = (
            "Give each pod a claim of its own (resourceClaimTemplateName), "
            f"or {eligibility.ACCEPT}: the claim is freed with its last pod, and allocated anew "
            "where there are devices."
        )
        return reasons.Reason("claim_single_node", message, remedy)
    return None


def nowhere(snapshot: snapshots.Snapshot, pod: objects.Pod) -> bool:
    """Whether the pod's successor, too, finds no devices on another node once the pod is gone."""
    bound = [claim for claim in _claims(snapshot, pod) if not _is_free_of_nodes(claim)]
    return bool(bound) and not fits(snapshot, pod, bound)


def fits(snapshot: snapshots.Snapshot, pod: objects.Pod, claims: t.Iterable[objects.Raw]) -> bool:
    """Whether one other node has free devices for all requests of these claims."""
    claims = list(claims)
    return any(on_node(snapshot, node, claims) for node in _others(snapshot, pod))


def on_node(
    snapshot: snapshots.Snapshot, node: objects.Node, claims: t.Iterable[objects.Raw]
) -> bool:
    """Whether the node has free devices for all requests of these claims."""
    near = _near(snapshot, node)
    free = _free(snapshot, node)
    return _choice(snapshot, _requests(claims), near, free) is not None


def findings(
    snapshot: snapshots.Snapshot,
    plans: t.Collection[drain_policy.PodPlan],
    waves: t.Iterable[t.Collection[str]],
) -> list[reasons.Finding]:
    """Tainted devices of the pods, and pods whose successors may find no device.

    The second pods of one wave exist at the same time, so they are given devices together.
    """
    concerned = [plan for plan in plans if plan.pod.device_claims]
    surges = [
        plan
        for plan in concerned
        if plan.route == "surge" and _claims(snapshot, plan.pod, shared=False)
    ]
    found: dict[tuple[str, str], reasons.Finding] = {}
    for wave, of_wave in drain_policy.by_wave(surges, waves):
        for finding in _together(snapshot, of_wave, wave):
            found[finding.code, finding.object] = finding
    for plan in concerned:
        pod = plan.pod
        subject = str(plan.workload or plan.pod.ref)
        if plan.route in ("evict", "job") and plan.code != NOWHERE and nowhere(snapshot, pod):
            message = (
                f"{pod.ref}: no other node has free devices for its successor, "
                "which starts when one has."
            )
            remedy = "Free or add such a device on another node."
            found.setdefault(
                (NOWHERE, subject),
                reasons.Finding(NOWHERE, message, remedy, "warning", subject, (pod.node,)),
            )
        for claim in _claims(snapshot, pod):
            for finding in _of_claim(snapshot, plan, claim):
                found.setdefault((finding.code, finding.object), finding)
    return list(found.values())


def _together(
    snapshot: snapshots.Snapshot, surges: t.Iterable[drain_policy.PodPlan], wave: t.Collection[str]
) -> t.Iterator[reasons.Finding]:
    """The surges of a wave whose second pods find no devices beside those of the others."""
    promised: set[DeviceName] = set()
    for plan in surges:
        claims = _claims(snapshot, plan.pod, shared=False)
        chosen = None
        for node in _others(snapshot, plan.pod):
            if node.name in wave:
                continue
            free = [place for place in _free(snapshot, node) if place not in promised]
            chosen = _choice(snapshot, _requests(claims), _near(snapshot, node), free)
            if chosen is not None:
                break
        if chosen is None:
            subject = str(plan.workload)
            asked = ", ".join(dict.fromkeys(_asked(claim) for claim in claims))
            message = (
                f"A second pod of {plan.workload} needs {asked}, and the other surges of its wave "
                f"leave none free on another node: it may stay pending, and node {plan.pod.node} "
                "is then given back."
            )
            remedy = "Take fewer nodes at a time, or free or add such devices on another node."
            yield reasons.Finding(NOWHERE, message, remedy, "warning", subject, (plan.pod.node,))
        else:
            promised.update(chosen)


def _requests(claims: t.Iterable[objects.Raw]) -> list[objects.Raw]:
    requests: list[objects.Raw] = []
    for claim in claims:
        requests += (claim["spec"].get("devices") or {}).get("requests") or ()
    return requests


def _of_claim(
    snapshot: snapshots.Snapshot, plan: drain_policy.PodPlan, claim: objects.Raw
) -> t.Iterator[reasons.Finding]:
    pod = plan.pod
    for result in _results(claim):
        place = _place(result)
        bad = node_taints.untolerated(result.get("tolerations") or (), _taints(snapshot, place))
        if not bad:
            continue
        words = ", ".join(node_taints.in_words(taint) for taint in bad)
        ends = any(taint.get("effect") == "NoExecute" for taint in bad)
        then = "no new claim gets it"
        if ends:
            then = "Kubernetes deletes the pod without regard to budgets"
        message = f"{pod.ref} uses device {'/'.join(place)}, which is tainted {words}: {then}."
        remedy = "Find out from the device's driver, or in the DeviceTaintRules, why it is tainted."
        yield reasons.Finding(
            "device_tainted", message, remedy, "warning", f"Device {'/'.join(place)}", (pod.node,)
        )
    if plan.route == "surge" and estimated(snapshot, claim):
        message = (
            f"{pod.ref}: whether another node has the right device free for a second pod is an "
            "estimate. Devices are counted by driver and taint; CEL selectors, constraints, "
            "capacities and counters are not evaluated."
        )
        remedy = "Nothing to do: where the second pod finds no device, the surge is undone."
        yield reasons.Finding(
            "devices_estimated", message, remedy, "info", str(plan.workload), (pod.node,)
        )


def _claims(
    snapshot: snapshots.Snapshot, pod: objects.Pod, *, shared: bool | None = None
) -> list[objects.Raw]:
    """The pod's claims: those that it shares by name, those that were made
    for it alone, or both.
    """
    if not pod.device_claims:
        return []
    wanted = {name for name, by_name in pod.device_claims if shared is None or by_name is shared}
    found = (snapshot.device_claim(pod.namespace, name) for name in sorted(wanted))
    return [claim for claim in found if claim]


def _others(snapshot: snapshots.Snapshot, pod: objects.Pod) -> t.Iterator[objects.Node]:
    """The other nodes that take new pods like this one."""
    workload = snapshot.workload_of(pod)
    spec = workload.pod_spec if workload else {}
    for node in snapshot.nodes.values():
        closed = node.unschedulable or node_taints.untolerated(pod.tolerations, node.taints)
        if node.name != pod.node and not closed and node_affinity.selects(spec, node):
            yield node


def _results(claim: objects.Raw) -> t.Sequence[objects.Raw]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()


def _is_free_of_nodes(claim: objects.Raw) -> bool:
    """Whether it is allocated, for every node."""
    allocation = (claim.get("status") or {}).get("allocation")
    return allocation is not None and allocation.get("nodeSelector") is None


def _place(result: objects.Raw) -> DeviceName:
    return result["driver"], result["pool"], result["device"]


def _devices(claim: objects.Raw) -> str:
    return ", ".join("/".join(_place(result)) for result in _results(claim))


def _asked(claim: objects.Raw) -> str:
    """What a claim requests, in words; of alternatives the first."""
    words = []
    for request in claim["spec"]["devices"].get("requests") or ():
        exact = _alternatives(request)[0]
        count = str(exact.get("count") or 1)
        if exact.get("allocationMode") == "All":
            count = "all devices"
        words.append(f"{count} of class {exact.get('deviceClassName')}")
    return " and ".join(words)


def _alternatives(request: objects.Raw) -> t.Sequence[objects.Raw]:
    return request.get("firstAvailable") or [request.get("exactly") or {}]


def estimated(snapshot: snapshots.Snapshot, claim: objects.Raw) -> bool:
    """Whether the claim asks for more than a number of devices of a driver,
    or these for more than themselves.
    """
    devices = claim["spec"]["devices"]
    if devices.get("constraints"):
        return True
    drivers = set()
    for request in devices.get("requests") or ():
        for exact in _alternatives(request):
            if not _plain(snapshot, exact):
                return True
            drivers.add(_driver(_expressions(snapshot, exact)))
    return any(
        place[0] in drivers and _divided(device)
        for place, (device, _where) in snapshot.devices.items()
    )


def _driver(expressions: t.Iterable[str]) -> str:
    """The driver that the devices must have; empty if the expressions do not simply say so."""
    for expression in expressions:
        found = _DRIVER.search(expression)
        if found and not re.search(r"\|\||!|\?", expression):
            return found[1] or found[2]
    return ""


def _expressions(snapshot: snapshots.Snapshot, exact: objects.Raw) -> list[str]:
    """The CEL selectors of a request and of its class."""
    name = exact.get("deviceClassName") or ""
    device_class = objects.find(snapshot.device_classes, "", name) or {}
    of_class = (device_class.get("spec") or {}).get("selectors") or ()
    selectors = [*of_class, *(exact.get("selectors") or ())]
    return [(selector.get("cel") or {}).get("expression") or "" for selector in selectors]


def _divided(device: objects.Raw) -> bool:
    """Whether it depends on what others have of the same hardware, or on what comes later,
    if the device can be had.
    """
    shares = device.get("allowMultipleAllocations") and device.get("capacity")
    return bool(shares or device.get("consumesCounters") or device.get("bindingConditions"))


def _plain(snapshot: snapshots.Snapshot, exact: objects.Raw) -> bool:
    """Whether a request asks for devices of a driver, and nothing more of them."""
    return not exact.get("capacity") and all(
        _DRIVER.fullmatch(one.strip()) for one in _expressions(snapshot, exact)
    )


def _near(snapshot: snapshots.Snapshot, node: objects.Node) -> list[DeviceName]:
    """The devices that a pod on this node can use, also those that claims have."""
    near = list(snapshot.devices_by_node.get(node.name, ()))
    for place in snapshot.devices_by_node.get("", ()):
        where = snapshot.devices[place][1]
        selector = where.get("nodeSelector")
        if where.get("allNodes") or (
            selector is not None and node_affinity.node_matches(selector, node)
        ):
            near.append(place)
    return near


def _free(snapshot: snapshots.Snapshot, node: objects.Node) -> list[DeviceName]:
    """The devices that a pod on this node can use and that no claim has."""
    taken = snapshot.devices_taken
    return [
        p
        for p in _near(snapshot, node)
        if p not in taken or snapshot.devices[p][0].get("allowMultipleAllocations")
    ]


def _choice(
    snapshot: snapshots.Snapshot,
    requests: t.Iterable[objects.Raw],
    near: t.Collection[DeviceName],
    free: t.Collection[DeviceName],
) -> list[DeviceName] | None:
    """The free devices, among those near, that the requests take; ``None`` if these do not suffice.

    Requests for one driver come first, the others take what is left. Of alternatives the first is
    taken with which all later requests find theirs.
    """
    alternatives = []
    for request in requests:
        exacts = _alternatives(request)
        alternatives.append([(_driver(_expressions(snapshot, exact)), exact) for exact in exacts])
    order = sorted(alternatives, key=lambda exacts: (len(exacts), not exacts[0][0]))
    tries = itertools.count()

    def pick(index: int, left: t.Sequence[DeviceName]) -> list[DeviceName] | None:
        if index == len(order):
            return []
        for driver, exact in order[index]:
            if next(tries) >= MOST_TRIES:
                return None
            most = near if exact.get("allocationMode") == "All" and _plain(snapshot, exact) else ()
            taken = _taken(snapshot, driver, exact, most, left)
            if taken is None:
                continue
            rest = pick(index + 1, [place for place in left if place not in taken])
            if rest is not None:
                return [*taken, *rest]
        return None

    return pick(0, list(free))


def _taken(
    snapshot: snapshots.Snapshot,
    driver: str,
    exact: objects.Raw,
    most: t.Collection[DeviceName],
    left: t.Sequence[DeviceName],
) -> set[DeviceName] | None:
    """The devices that one request takes away from others, ``None`` if there are too few.

    A request for all devices gets those of its driver among ``most``, or none.
    """
    if exact.get("adminAccess"):
        return set()
    tolerations = exact.get("tolerations") or ()
    usable = []
    for place in left:
        taints = _taints(snapshot, place)
        if driver in ("", place[0]) and not node_taints.untolerated(tolerations, taints):
            usable.append(place)
    count = exact.get("count") or 1
    if exact.get("allocationMode") == "All":
        count = max(1, sum(driver == place[0] for place in most))
    if len(usable) < count:
        return None
    return {p for p in usable[:count] if not snapshot.devices[p][0].get("allowMultipleAllocations")}


def _taints(snapshot: snapshots.Snapshot, place: DeviceName) -> list[objects.Raw]:
    """The device's taints: of its driver's slice, and of people's DeviceTaintRules."""
    device, _where = snapshot.devices.get(place, ({}, {}))
    found = list(device.get("taints") or ())
    for rule in snapshot.device_rules:
        selector = rule["spec"].get("deviceSelector")
        if selector is not None and all(
            selector.get(key) in (None, value)
            for key, value in zip(("driver", "pool", "device"), place, strict=True)
        ):
            found.append(rule["spec"]["taint"])
    return found


def _tainted_ones(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """The free devices elsewhere that taints keep from new claims, in words."""
    found = {}
    for node in _others(snapshot, pod):
        for place in _free(snapshot, node):
            if bad := node_taints.untolerated((), _taints(snapshot, place)):
                found["/".join(place)] = ", ".join(node_taints.in_words(taint) for taint in bad)
    if not found:
        return ""
    return f" Tainted are {', '.join(f'{name} ({words})' for name, words in found.items())}."


def bound_here(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """Why the pod can run on its node only, empty if none of its claims holds it there.

    A claim holds it if its volume is ``local`` or ``hostPath``, or if the volume's node affinity
    matches no other node. An inline hostPath volume does not: it is the path of whatever node the
    pod is on. Claims and volumes that are not in the snapshot hold nothing.
    """
    for name in pod.claims:
        claim = snapshot.claim(pod.namespace, name) or {}
        bound = (claim.get("spec") or {}).get("volumeName") or ""
        volume = snapshot.volume(bound)
        if volume is None:
            continue
        spec, shown = volume["spec"], f"PersistentVolume {bound} of claim {name}"
        for source in ("local", "hostPath"):
            if source in spec:
                path = (spec[source] or {}).get("path", "")
                return f"{shown} is a {source} volume ({path}) of this node"
        required: objects.Raw | None = (spec.get("nodeAffinity") or {}).get("required")
        others = (node for node in snapshot.nodes.values() if node.name != pod.node)
        if required is not None and not any(
            node_affinity.node_matches(required, node) for node in others
        ):
            return f"{shown} has a node affinity that no other node satisfies"
    return ""


def volume_claimants(pods: t.Iterable[objects.Pod]) -> bool:
    """Whether claims and volumes are needed to judge these pods."""
    return any(pod.claims for pod in pods)


def attaching(pods: t.Iterable[objects.Pod]) -> bool:
    """Whether it matters to these pods how many volumes a node takes,
    and so which ones others have there.
    """
    return any(pod.attaches for pod in pods)
