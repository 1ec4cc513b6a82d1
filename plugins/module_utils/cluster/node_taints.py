# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Taints and tolerations: how they match and how they are written.

The rules of matching are those of ``Toleration.ToleratesTaint`` (k8s.io/api/core/v1), those of
validity of the API server's ``validateNodeTaints`` (both read at v1.36.3). They read raw objects,
so that they apply to the template of a workload too.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    selectors,
)

OUT_OF_SERVICE: objects.Raw = {
    "key": "node.kubernetes.io/out-of-service",
    "value": names.MANAGED_BY,
    "effect": "NoExecute",
}
"""As in the Kubernetes documentation, where only the key matters. The value, which Kubernetes does
not read, tells that it is ours: no kubelet can set a taint.
"""

# Whose taints are whose: controllers that set a taint on a node and remove it again on their own.
#
# Such a taint on a node that comes back means that something on the node is not ready yet.
# ``node_taint`` with ``exact`` leaves them all to their owners.


@dataclass(frozen=True, slots=True)
class Owner:
    """A controller by its name and what to look at when its taint stays;
    ``keys`` may end in ``*``.
    """

    keys: tuple[str, ...]
    name: str
    remedy: str


OWNERS: tuple[Owner, ...] = (
    # k8s.io/api core/v1 well_known_taints.go.
    Owner(("node.kubernetes.io/*",), "Kubernetes", "Check the node's conditions and its kubelet."),
    # k8s.io/cloud-provider api/well_known_taints.go: uninitialized, shutdown.
    Owner(
        ("node.cloudprovider.kubernetes.io/*",),
        "the cloud controller manager",
        "Check that the cloud controller manager runs and knows this machine.",
    ),
    # Cilium, Documentation/installation/taints.rst: agent-not-ready.
    Owner(
        ("node.cilium.io/*",), "Cilium", "Check the cilium pod on this node and cilium-operator."
    ),
    # Karpenter, pkg/apis/v1/taints.go: disrupted, unregistered.
    Owner(("karpenter.sh/*",), "Karpenter", "Check the node's NodeClaim: kubectl get nodeclaims."),
    # Cluster API, api/core/v1beta2/common_types.go: uninitialized, outdated-revision.
    Owner(
        ("node.cluster.x-k8s.io/*",),
        "Cluster API",
        "Check the node's Machine in the management cluster.",
    ),
    # node-readiness-controller v0.4.1: the taint of a NodeReadinessRule has to start like this.
    Owner(
        ("readiness.k8s.io/*",),
        "node-readiness-controller",
        "Check the node's conditions that its rule asks for: "
        "kubectl get nodereadinessrules -o yaml.",
    ),
    # Gardener, pkg/apis/core/v1beta1/constants: critical-components-not-ready.
    Owner(
        ("node.gardener.cloud/*",),
        "Gardener",
        "Check the node's critical DaemonSet pods in kube-system.",
    ),
    # cluster-autoscaler/utils/taints/taints.go.
    Owner(
        (
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            "ignore-taint.cluster-autoscaler.kubernetes.io/*",
            "startup-taint.cluster-autoscaler.kubernetes.io/*",
            "status-taint.cluster-autoscaler.kubernetes.io/*",
        ),
        "cluster-autoscaler or an agent that it waits for",
        "Check the log of cluster-autoscaler, and the DaemonSet that removes a startup taint.",
    ),
    # aws-ebs-csi-driver and aws-efs-csi-driver: the startup taint of their node pods.
    Owner(
        ("ebs.csi.aws.com/agent-not-ready", "efs.csi.aws.com/agent-not-ready"),
        "the AWS CSI driver",
        "Check the driver's pod on this node.",
    ),
    Owner((f"{names.PREFIX}/*",), "this collection", "Release the node."),
)


def owner_of(key: str) -> Owner | None:
    """Who sets and removes the taint with this key; ``None`` for one that people set."""
    return next((owner for owner in OWNERS if among(key, owner.keys)), None)


def among(key: str, patterns: t.Iterable[str]) -> bool:
    """Whether a key is one of these; a pattern that ends in ``*`` is every key
    that starts like it.
    """
    return any(key.startswith(one[:-1]) if one.endswith("*") else key == one for one in patterns)


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

OUTDATED: t.Mapping[str, str] = {
    "node.alpha.kubernetes.io/notReady": "node.kubernetes.io/not-ready",
    "node.alpha.kubernetes.io/unreachable": "node.kubernetes.io/unreachable",
}
"""Keys of taint-based evictions in alpha, which nothing sets or tolerates any more,
and their successors.
"""


def outdated(desired: t.Iterable[DesiredTaint]) -> str:
    """What to say of keys that nothing knows any more; empty if there is none to set."""
    found = dict.fromkeys(
        taint.key for taint in desired if not taint.absent and taint.key in OUTDATED
    )
    return " ".join(
        f"Key {key} is outdated: Kubernetes uses {OUTDATED[key]} instead." for key in found
    )


def _any(condition: str, effect: str) -> objects.Raw:
    return {"key": f"node.kubernetes.io/{condition}", "operator": "Exists", "effect": effect}


CORDON: objects.Raw = {"key": names.UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
OURS: objects.Raw = {"key": names.TAINT_KEY, "effect": "NoSchedule"}
OF_MAINTENANCE = frozenset({names.TAINT_KEY, names.UNSCHEDULABLE_TAINT})
"""Keys of the taints of nodes that are out of service."""

DAEMON_TOLERATIONS: tuple[objects.Raw, ...] = (
    *(_any(condition, "NoExecute") for condition in ("not-ready", "unreachable")),
    *(_any(f"{resource}-pressure", "NoSchedule") for resource in ("disk", "memory", "pid")),
    _any("unschedulable", "NoSchedule"),
)
"""What the DaemonSet controller adds to every pod it creates
(``AddOrUpdateDaemonPodTolerations``).
"""

HOST_NETWORK_TOLERATION = _any("network-unavailable", "NoSchedule")

_INTEGER = re.compile(r"-?[1-9][0-9]*|0")


@dataclass(frozen=True, slots=True)
class DesiredTaint:
    """A taint to set or, with ``absent``, to remove; an empty ``effect`` (``absent``
    only) means every effect.
    """

    key: str
    value: str = ""
    effect: str = ""
    absent: bool = False

    def means(self, taint: objects.Raw) -> bool:
        """Whether this is the taint, by key and effect as for the API server."""
        return self.key == taint.get("key") and self.effect in ("", taint.get("effect"))

    @property
    def raw(self) -> objects.Raw:
        """As the API server takes it."""
        value = {"value": self.value} if self.value else {}
        return {"key": self.key, **value, "effect": self.effect}


class BadValue(t.NamedTuple):
    """One wrong value of the input: where it is, what it is, and what is expected."""

    where: str
    value: t.Any
    expected: str


def tolerates(tolerations: t.Iterable[objects.Raw], taint: objects.Raw) -> bool:
    """Whether one of the tolerations covers the taint."""
    return first_match(tolerations, taint) is not None


def first_match(tolerations: t.Iterable[objects.Raw], taint: objects.Raw) -> objects.Raw | None:
    """The toleration that counts for the taint: the first of them that covers it
    (``GetMatchingTolerations``).
    """
    return next((toleration for toleration in tolerations if covers(toleration, taint)), None)


def covers(toleration: objects.Raw, taint: objects.Raw) -> bool:
    """Whether the toleration covers the taint; an empty effect is every effect,
    an empty key every key.

    ``Lt`` and ``Gt`` compare the taint's number with the toleration's (Kubernetes 1.35, off by
    default); a cluster that does not know them refuses such pods.
    """
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    wanted, value = toleration.get("value") or "", taint.get("value") or ""
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            # An empty key is valid with Exists alone; the API server refuses it otherwise.
            return bool(key) and wanted == value
        case "Lt" | "Gt" as operator:
            mine, its = _number(wanted), _number(value)
            if mine is None or its is None:
                return False
            return its < mine if operator == "Lt" else its > mine
    return False


def untolerated(
    tolerations: t.Collection[objects.Raw], taints: t.Iterable[objects.Raw]
) -> tuple[objects.Raw, ...]:
    """The taints that keep such a pod off the node; PreferNoSchedule does not."""
    return tuple(x for x in taints if hard(x) and not tolerates(tolerations, x))


def hard(taint: objects.Raw) -> bool:
    """Whether the taint keeps pods off the node; PreferNoSchedule does not."""
    return taint.get("effect") in ("NoSchedule", "NoExecute")


def in_words(taint: objects.Raw) -> str:
    """The taint as kubectl writes it, ``key=value:effect``."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def same_taint(one: objects.Raw, other: objects.Raw) -> bool:
    """Whether two taints are the same to the API server: of one key and effect."""
    return bool(one.get("key") == other.get("key") and one.get("effect") == other.get("effect"))


def _number(text: str) -> int | None:
    """A decimal integer of 64 bits in canonical form, as for the API server; ``-0`` is not."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def parse(word: str) -> objects.Raw:
    """One taint as typed for ``kubectl taint``: ``key=value:effect``,
    with a trailing ``-`` to remove it.

    Without ``=`` the value is empty; without ``:`` all effects of the key are
    meant, in a removal only.
    """
    head, _colon, effect = word.removesuffix("-").partition(":")
    key, _equals, value = head.partition("=")
    parts = {
        "key": key,
        "value": value,
        "effect": effect,
        "state": "absent" if word.endswith("-") else "present",
    }
    return {name: text for name, text in parts.items() if text or name == "key"}


def read(
    raws: t.Sequence[objects.Raw], state: str
) -> tuple[tuple[DesiredTaint, ...], tuple[BadValue, ...]]:
    """The taints of a list of ``{key, value, effect, state}``,
    and everything that is wrong with it.

    ``state`` (``present``, ``absent`` or ``exact``) is the default. Booleans become ``true`` and
    ``false``, numbers their digits, as in a manifest.
    """
    desired: list[DesiredTaint] = []
    faults: list[BadValue] = []
    for index, raw in enumerate(raws):
        own = raw.get("state") or ("absent" if state == "absent" else "present")
        one = DesiredTaint(
            _text(raw.get("key")),
            _text(raw.get("value")),
            _text(raw.get("effect")),
            own == "absent",
        )
        faults += _faults(f"taints[{index}]", one)
        if one.absent and state == "exact":
            faults.append(
                BadValue(
                    f"taints[{index}].state",
                    own,
                    "no taint to remove: exact removes what is not listed",
                )
            )
        for earlier, other in enumerate(desired):
            expected = ""
            if one.absent != other.absent and (one.means(other.raw) or other.means(one.raw)):
                expected = "no taint both set and removed in one call"
            elif one.absent == other.absent and (one.key, one.effect) == (other.key, other.effect):
                expected = "each key and effect once"
            if expected:
                faults.append(
                    BadValue(f"taints[{index}]", words(one), f"{expected}; see taints[{earlier}]")
                )
        desired.append(one)
    return tuple(desired), tuple(faults)


def _faults(where: str, one: DesiredTaint) -> t.Iterator[BadValue]:
    if not selectors.is_key(one.key):
        expected = (
            "a key like dedicated or example.com/gpu (the name 63 characters at most, "
            "of letters, digits, -_.)"
        )
        yield BadValue(f"{where}.key", one.key, expected)
    elif one.key in (names.TAINT_KEY, names.WAITING):
        yield BadValue(
            f"{where}.key", one.key, "another key: this one belongs to the maintenance itself"
        )
    if not selectors.is_value(one.value):
        expected = (
            "a label value: 63 characters at most, letters, digits, -_. "
            "and a letter or digit at both ends"
        )
        yield BadValue(f"{where}.value", one.value, expected)
    if one.effect not in EFFECTS and (one.effect or not one.absent):
        yield BadValue(f"{where}.effect", one.effect, f"one of {', '.join(EFFECTS)}")


def words(one: DesiredTaint) -> str:
    """The taint as ``kubectl taint`` takes it: ``key=value:effect``,
    with a trailing ``-`` to remove it.
    """
    taint = in_words(one.raw) if one.effect else one.key
    return f"{taint}-" if one.absent else taint


def desired_taints(
    current: tuple[objects.Raw, ...],
    desired: t.Sequence[DesiredTaint],
    *,
    exact: bool,
    keep: t.Collection[str] = (),
) -> tuple[objects.Raw, ...]:
    """The node's taints with the desired ones applied.

    Others keep their place and ``timeAdded``; ``exact`` removes them, unless they belong to one of
    the known owners or are of a key in ``keep``. New taints come last.
    """
    kept: list[objects.Raw] = []
    for taint in current:
        wanted = next((one for one in desired if one.means(taint)), None)
        if wanted is None:
            if not exact or _left_alone(taint, keep):
                kept.append(taint)
        elif not wanted.absent:
            kept.append(taint if wanted.value == (taint.get("value") or "") else wanted.raw)
    for one in desired:
        if not one.absent and not any(one.means(taint) for taint in current):
            kept.append(one.raw)
    return tuple(kept)


def _left_alone(taint: objects.Raw, keep: t.Collection[str]) -> bool:
    key: str = taint.get("key", "")
    return owner_of(key) is not None or among(key, keep)


def new_no_execute(
    before: t.Iterable[objects.Raw], after: t.Iterable[objects.Raw]
) -> tuple[objects.Raw, ...]:
    """The taints that delete running pods and were not there before;
    another value makes another taint.
    """
    had = {in_words(taint) for taint in before}
    return tuple(x for x in after if x.get("effect") == "NoExecute" and in_words(x) not in had)


def rewrite(node: objects.Node, after: tuple[objects.Raw, ...]) -> api_changes.Change | None:
    """The change of the node's whole list (one value to the API), or ``None`` if there is none."""
    if after == node.taints:
        return None
    before = [in_words(taint) for taint in node.taints]
    wanted = [in_words(taint) for taint in after]
    return api_changes.patch(
        node,
        f"On node {node.name}: {_deeds('remove', before, wanted)}",
        {"spec": {"taints": [dict(taint) for taint in after] or None}},
        {"taints": before},
        {"taints": wanted},
    )


def progress(change: api_changes.Change) -> str:
    """The line of progress for what ``rewrite`` gave, beside the node's name."""
    return _deeds("removed", (change.before or {})["taints"], (change.after or {})["taints"])


def _deeds(removed: str, before: t.Sequence[str], after: t.Sequence[str]) -> str:
    """Which taints are set and removed, in words; ``removed`` is the verb for the latter."""
    come = [word for word in after if word not in before]
    go = [word for word in before if word not in after]
    return "; ".join(
        f"{verb} {', '.join(words)}" for verb, words in (("set", come), (removed, go)) if words
    )


def _text(value: t.Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
