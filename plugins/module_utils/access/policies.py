# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Admission policies that keep an account to what this collection does,
even if somebody else has its token.

RBAC cannot say "this field of a node" or "only with the pod's UID"; ValidatingAdmissionPolicies
can. Each of them looks at the requests of one account only, and at one object: it cannot count
nodes or budgets, nor see how many replicas a workload had before a surge. What is bounded
nevertheless is so by what the object says of itself, such as a node's record, or by a number.
"""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import accounts
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects

# The manifests of the fence in the API server, which a cluster needs once.
#
# The policy applies only to evictions and changes of pods that name one of our locks; all others
# pass as if it did not exist. An eviction names it in an annotation; that of a change would stay on
# the pod, so its field manager names the holder, and the pod its node. The policy's parameter is
# the map of who holds which lock. If the map is missing or cannot be read, every request passes,
# because the server looks it up before it knows which request this is.
#
# The map has a kind of its own: kube-apiserver follows parameters of built-in kinds only until the
# last policy that uses the kind is deleted. Until it restarts, it evaluates policies created after
# that with the state known then.


ADMISSION = "admissionregistration.k8s.io/v1"

# CEL. A lock is <lease>=<run>/<nonce>; `held` maps the names of leases to <run>/<nonce>.
_ANNOTATIONS = "object.metadata.annotations"
_EVICTS = "request.operation == 'CREATE'"
_WITH_A_LOCK = f"{names.MANAGER}/"
NAMED_BY_MANAGER = (
    "(has(request.options.fieldManager) && "
    f"request.options.fieldManager.startsWith('{_WITH_A_LOCK}'))"
)
"""CEL: whether a change of an object names who holds a lock."""
_NAMES_A_LOCK = (
    f"{_EVICTS} ? has({_ANNOTATIONS}) && '{names.FENCE}' in {_ANNOTATIONS} : {NAMED_BY_MANAGER}"
)
_LOCK = (
    f"{_EVICTS} ? {_ANNOTATIONS}['{names.FENCE}'] : "
    f"'{names.node_lease_name('')}' + dyn(object).spec.nodeName + '=' + "
    f"request.options.fieldManager.substring({len(_WITH_A_LOCK)})"
)
_KEY = "variables.lock.split('=')[0]"
_HELD = "has(params.held) ? params.held : {}"
# A plan tries what a run will write, and holds no lock.
_TRIAL = f"has(request.dryRun) && request.dryRun && variables.lock.endsWith('={names.TRIAL}')"
_HOLDS_IT = (
    "variables.key in variables.held && variables.key + '=' + variables.held[variables.key] == "
    f"variables.lock || {_TRIAL}"
)
_HOLDER = (
    "(variables.key in variables.held ? variables.held[variables.key].split('/')[0] : 'nobody')"
)
_REFUSAL = f"'the lock ' + variables.key + ' is held by ' + {_HOLDER}"


def _requests(
    group: str, version: str, operations: t.Iterable[str], resources: t.Iterable[str]
) -> objects.Raw:
    """Which requests a policy is about."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
    }


def _admission(kind: str, name: str, spec: objects.Raw) -> objects.Raw:
    """The manifest of a policy or of its binding."""
    meta = {"name": name, "labels": accounts.LABELS}
    return {"apiVersion": ADMISSION, "kind": kind, "metadata": meta, "spec": spec}


_SCHEMA = {
    "type": "object",
    "description": "Who holds the locks of nodes under maintenance.",
    "properties": {
        "held": {
            "type": "object",
            "description": "The holder, <run>/<nonce>, by the name of the lock's Lease.",
            "additionalProperties": {"type": "string"},
        }
    },
}

DEFINITION: objects.Raw = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"nodefences.{names.PREFIX}", "labels": accounts.LABELS},
    "spec": {
        "group": names.PREFIX,
        "names": {"kind": "NodeFence", "plural": "nodefences", "singular": "nodefence"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}
        ],
    },
}
MAP: objects.Raw = {
    "apiVersion": names.FENCE_API,
    "kind": "NodeFence",
    "metadata": {"name": names.FENCE_MAP, "namespace": names.NAMESPACE, "labels": accounts.LABELS},
}
POLICY = _admission(
    "ValidatingAdmissionPolicy",
    names.FENCE_POLICY,
    {
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": names.FENCE_API, "kind": "NodeFence"},
        "matchConstraints": {
            "resourceRules": [
                _requests("", "v1", ["CREATE"], ["pods/eviction"]),
                _requests("", "v1", ["UPDATE"], ["pods"]),
            ]
        },
        "matchConditions": [{"name": "names-a-lock", "expression": _NAMES_A_LOCK}],
        "variables": [
            {"name": "lock", "expression": _LOCK},
            {"name": "key", "expression": _KEY},
            {"name": "held", "expression": _HELD},
        ],
        "validations": [
            {
                "expression": _HOLDS_IT,
                "messageExpression": _REFUSAL,
                "message": "the lock is held by somebody else",
                "reason": "Forbidden",
            }
        ],
    },
)
BINDING = _admission(
    "ValidatingAdmissionPolicyBinding",
    names.FENCE_POLICY,
    {
        "policyName": names.FENCE_POLICY,
        "validationActions": ["Deny"],
        "paramRef": {
            "name": names.FENCE_MAP,
            "namespace": names.NAMESPACE,
            "parameterNotFoundAction": "Allow",
        },
    },
)

FENCE = (DEFINITION, MAP, POLICY, BINDING)
"""In the order in which they are created; they are deleted in the opposite one."""


PROTECTED = f"{names.PREFIX}/protected"
"""The label, if ``true``, of a node that the account may not touch, or of a namespace."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

_MARKS = list(itertools.chain.from_iterable(names.MARKS.values()))


@dataclass(frozen=True, slots=True)
class Limit:
    """One policy: of which requests it demands what, as (CEL expression, what a refusal says)."""

    subject: str
    operations: tuple[str, ...]
    resources: tuple[tuple[str, str], ...]
    demands: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...] = ()


def _listed(values: t.Iterable[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _same(path: str) -> str:
    """Whether a field is as it was, or was and is not there."""
    now, was = f"object.{path}", f"oldObject.{path}"
    return f"(has({now}) == has({was}) && (!has({now}) || {now} == {was}))"


def _all_same(of: str, fields: str) -> str:
    """The same of several fields in one place, a list with spaces in between."""
    return " && ".join(_same(f"{of}.{field}") for field in fields.split())


LONGEST = 4096
"""Characters of an annotation of a pod that the account may write."""
_LONGEST = (
    "!has(object.metadata.annotations) || object.metadata.annotations.all(k, "
    f"object.metadata.annotations[k].size() <= {LONGEST} || "
    "has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations && "
    "object.metadata.annotations[k] == oldObject.metadata.annotations[k])"
)


def _marks(annotations: str, labels: str) -> tuple[tuple[str, str], ...]:
    return (
        (_kept("annotations", annotations), "only annotations of a maintenance may be changed"),
        (_kept("labels", labels), "no other labels may be changed"),
    )


def _kept(what: str, mine: str) -> str:
    """Whether a map of the metadata changed at most at keys with ``mine``, CEL about ``k``."""
    now = f"(has(object.metadata.{what}) ? object.metadata.{what} : {{}})"
    was = f"(has(oldObject.metadata.{what}) ? oldObject.metadata.{what} : {{}})"
    return (
        f"{now}.all(k, (k in {was} && {was}[k] == {now}[k]) || {mine}) && "
        f"{was}.all(k, k in {now} || {mine})"
    )


def _metadata(annotations: str, labels: str = "false") -> tuple[tuple[str, str], ...]:
    return (
        *_marks(annotations, labels),
        (
            _all_same("metadata", "ownerReferences finalizers"),
            "owners and finalizers may not be changed",
        ),
    )


_VALUE = "(has({0}.value) ? {0}.value : '')"
_EQUAL = f"a.key == b.key && a.effect == b.effect && {_VALUE.format('a')} == {_VALUE.format('b')}"
_NEW = f"variables.now.filter(a, !variables.was.exists(b, {_EQUAL}))"
_GONE = f"variables.was.filter(a, !variables.now.exists(b, {_EQUAL}))"
_FREE = _listed((names.UNSCHEDULABLE_TAINT, OUT_OF_SERVICE))
_OURS = f"a.key.startsWith('{names.PREFIX}/')"
_DEAD = (
    "has(object.status.conditions) && object.status.conditions.exists(c, c.type == 'Ready' && "
    "c.status != 'True')"
)
_NODE_SPEC = "podCIDR podCIDRs providerID configSource externalID"
_NODE_STATUS = (
    "addresses allocatable capacity config daemonEndpoints images nodeInfo phase "
    "runtimeHandlers volumesAttached volumesInUse"
)
_CONDITIONS = f"filter(c, !(c.type in {_listed(names.LIFECYCLE)}))"


def _open(owner: str) -> str:
    labels = f"{owner}.metadata.labels"
    return f"!(has({labels}) && '{PROTECTED}' in {labels} && {labels}['{PROTECTED}'] == 'true')"


_UNPROTECTED = (_open("namespaceObject"), f"the namespace is protected (label {PROTECTED})")
_UPDATED, _ALL = ("UPDATE",), ("CREATE", "UPDATE", "DELETE")
_WAS_OPEN, _WAS_CORDONED = """'"unschedulable":false'""", """'"unschedulable":true'"""
"""How a record tells whether its node was cordoned before: CEL reads no JSON."""
_GUARDED = (
    f"has(g.metadata.labels) && '{names.MANAGED_BY_LABEL}' in g.metadata.labels && "
    f"g.metadata.labels['{names.MANAGED_BY_LABEL}'] == '{names.MANAGED_BY}'"
)


def _keys(place: str) -> str:
    """CEL about ``k``: one of those that tell other controllers of a maintenance."""
    return (
        "k in "
        f"{_listed(key.removeprefix(f'{place}/') for key in _MARKS if key.startswith(f'{place}/'))}"
    )


def _noted(of: str, key: str = names.RECORD) -> str:
    """CEL: an annotation, empty if it has none."""
    notes = f"{of}.metadata.annotations"
    return f"has({notes}) && '{key}' in {notes} ? {notes}['{key}'] : ''"


def _says(record: str, this: str, other: str) -> str:
    """CEL: whether a record has the one word and not the other."""
    return f"variables.{record}.contains({this}) && !variables.{record}.contains({other})"


_SAYS_THE_SAME = " && ".join(
    f"variables.record.contains({word}) == variables.recorded.contains({word})"
    for word in (_WAS_OPEN, _WAS_CORDONED)
)


def _raised(now: str, was: str) -> str:
    """CEL: whether a number is not raised, or no further than the account may."""
    return f"({now} <= {was} || {now} <= variables.most)"


def _named(*prefixes: str) -> str:
    return " || ".join(f"request.name.startsWith('{prefix}')" for prefix in prefixes)


_NODES = Limit(
    "nodes",
    _UPDATED,
    (("", "nodes"), ("", "nodes/status")),
    (
        (
            f"{_open('oldObject')} && {_open('object')}",
            f"the node is protected (label {PROTECTED})",
        ),
        *_metadata(f"k.startsWith('{names.PREFIX}/') || {_keys('annotation')}", _keys("label")),
        (_all_same("spec", _NODE_SPEC), "only spec.unschedulable and taints may be changed"),
        (
            f"variables.record == '' || (variables.recorded != '' ? {_SAYS_THE_SAME} : "
            f"variables.cordoned ? {_says('record', _WAS_CORDONED, _WAS_OPEN)} : "
            f"{_says('record', _WAS_OPEN, _WAS_CORDONED)})",
            "a record says whether its node was cordoned before",
        ),
        (
            "variables.cordon == variables.cordoned || (variables.cordon ? "
            f"variables.record != '' : {_says('recorded', _WAS_OPEN, _WAS_CORDONED)})",
            "a node is cordoned with a record, and uncordoned if that says that it was "
            "not cordoned before",
        ),
        (
            f"({_NEW} + {_GONE}).all(a, {_OURS} || a.key in {_FREE} || a.key in variables.taints)",
            "only taints of a maintenance may be changed, "
            "and those whose keys the option taints lists",
        ),
        (
            f"{_NEW}.all(a, a.effect != 'NoExecute' || (a.key == '{OUT_OF_SERVICE}' && {_DEAD}))",
            "a taint may not evict pods, except out-of-service on a node that is not ready",
        ),
    ),
    (
        ("now", "has(object.spec.taints) ? object.spec.taints : []"),
        ("was", "has(oldObject.spec.taints) ? oldObject.spec.taints : []"),
        ("cordon", "has(object.spec.unschedulable) && object.spec.unschedulable"),
        ("cordoned", "has(oldObject.spec.unschedulable) && oldObject.spec.unschedulable"),
        ("record", _noted("object")),
        ("recorded", _noted("oldObject")),
    ),
)
_STATUS = Limit(
    "node-status",
    _UPDATED,
    (("", "nodes/status"),),
    (
        (_all_same("status", _NODE_STATUS), "only conditions may be changed"),
        (
            f"(has(object.status.conditions) ? object.status.conditions : []).{_CONDITIONS} == "
            f"(has(oldObject.status.conditions) ? oldObject.status.conditions : []).{_CONDITIONS}",
            "only the conditions of a maintenance may be changed",
        ),
    ),
)
_EVICTIONS = Limit(
    "evictions",
    ("CREATE",),
    (("", "pods/eviction"),),
    (
        _UNPROTECTED,
        (
            "has(object.deleteOptions) && has(object.deleteOptions.preconditions) && "
            "has(object.deleteOptions.preconditions.uid)",
            "an eviction needs the pod's UID as a precondition",
        ),
        (
            "!has(object.deleteOptions) || !has(object.deleteOptions.gracePeriodSeconds) || "
            "object.deleteOptions.gracePeriodSeconds > 0",
            "an eviction may not end a pod at once (gracePeriodSeconds 0)",
        ),
        (
            f"has(object.metadata.annotations) && '{names.FENCE}' in object.metadata.annotations",
            f"an eviction names the lock under which it is sent (annotation {names.FENCE})",
        ),
    ),
)
_SAME_OWNERS = "variables.added.size() == 0 && variables.removed.size() == 0"
_SAME_RECORD = "variables.record == variables.recorded"
_NO_CHANGE = " && ".join(
    (
        "variables.labels == variables.labelled",
        _SAME_RECORD,
        "variables.left == variables.leaving",
        _SAME_OWNERS,
    )
)
_TEXTS = '[{]("[a-z_]+":"[A-Za-z0-9.:+-]*",){8}"v":1[}]'
"""A mark of ``released.Mark``: with what is demanded of its fields, it says nothing else."""
_LET_GO = " && ".join(
    (
        f"'{names.HASH}' in variables.labelled && !('{names.HASH}' in variables.labels)",
        "variables.recorded == '' && variables.left == [''] && variables.leaving == ['']",
        "variables.removed.size() == 0 && variables.added.size() == 1",
        "variables.added.all(o, o.apiVersion == 'apps/v1' && o.kind == 'Deployment' && "
        "(!has(o.controller) || !o.controller) && (!has(o.blockOwnerDeletion) || "
        "!o.blockOwnerDeletion) && "
        """variables.record.startsWith('{"deployment":"' + o.uid + '","hash":"' + """
        f"""variables.labelled['{names.HASH}'] + '","name":"' + o.name + '","node":"' + """
        """object.spec.nodeName + '","nonce":"'))""",
        "variables.owned.exists(o, has(o.controller) && o.controller && "
        "o.apiVersion == 'apps/v1' && o.kind == 'ReplicaSet' && "
        f"variables.added.all(d, o.name == d.name + '-' + variables.labelled['{names.HASH}']) "
        "&& "
        """variables.record.contains('","replica_set":"' + o.uid + '","run":"' + """
        f"""variables.labels['{names.RELEASED}'] + '","since":"'))""",
        f"variables.record.matches('^{_TEXTS}$')",
    )
)
_OUT = " && ".join(
    (
        "variables.leaving[0].matches('^[0-9TZ:.-]+$')",
        "variables.labels.all(k, k in variables.labelled && "
        "variables.labels[k] == variables.labelled[k])",
        "variables.leaving.size() > 1",
        "variables.leaving.size() == variables.labelled.size() - variables.labels.size() + 1",
        _SAME_RECORD,
        _SAME_OWNERS,
    )
)
"""Only labels go, and its annotation names each of them."""
_RESTORED = (
    "variables.leaving == [''] && "
    "variables.left.all(e, e.split('=').size() == 1 || e.split('=')[0] in variables.labels)"
)
_IN_AGAIN = " && ".join(
    (
        _RESTORED,
        "variables.labelled.all(k, k in variables.labels && "
        "variables.labels[k] == variables.labelled[k])",
        f"('{names.HASH}' in variables.labels) == ('{names.HASH}' in variables.labelled)",
        _SAME_RECORD,
        _SAME_OWNERS,
    )
)
_GIVEN_BACK = " && ".join(
    (
        f"'{names.HASH}' in variables.labels && !('{names.HASH}' in variables.labelled)",
        "variables.record == '' && variables.added.size() == 0",
        _RESTORED,
        "variables.removed.all(o, o.kind == 'Deployment' && (!has(o.controller) || "
        "!o.controller) && "
        """variables.recorded.startsWith('{"deployment":"' + o.uid + '","hash":"'))""",
        """!variables.owners.exists(o, variables.recorded.startsWith('{"deployment":"' + """
        """o.uid + '","hash":"'))""",
        f"""variables.recorded.contains('","hash":"' + variables.labels['{names.HASH}'] """
        """+ '","name":"')""",
    )
)
_PODS = Limit(
    "pods",
    _UPDATED,
    (("", "pods"),),
    (
        _UNPROTECTED,
        *_marks(
            f"k in {_listed((names.DELETION_COST, names.PLANNED, names.RELEASED, names.UNSERVED))}",
            f"k in {_listed((names.HASH, names.RELEASED))} || (k in variables.labels ? "
            "k + '=' + variables.labels[k] in variables.left : "
            "k + '=' + variables.labelled[k] in variables.leaving)",
        ),
        (_LONGEST, f"an annotation may not be longer than {LONGEST} characters"),
        (
            _all_same("metadata", "finalizers generateName"),
            "finalizers and names may not be changed",
        ),
        (
            f"variables.labels == variables.labelled || {NAMED_BY_MANAGER}",
            "labels are changed under a lock that is named (field manager "
            f"{names.MANAGER}/<run>/<nonce>)",
        ),
        (
            f"!variables.marked && '{names.RELEASED}' in variables.labels ? ({_LET_GO}) : "
            f"variables.marked && !('{names.RELEASED}' in variables.labels) ? ({_GIVEN_BACK}) : "
            f"!variables.marked || variables.leaving == variables.left ? ({_NO_CHANGE}) : "
            f"variables.left == [''] ? ({_OUT}) : ({_IN_AGAIN})",
            "a pod is let go by its ReplicaSet, or given back to it, with its record and its "
            "Deployment as an owner; in between it leaves its Services",
        ),
        (_same("spec"), "the specification of a pod may not be changed"),
    ),
    (
        ("labels", "has(object.metadata.labels) ? object.metadata.labels : {}"),
        ("labelled", "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"),
        ("marked", f"'{names.RELEASED}' in variables.labelled"),
        ("record", _noted("object", names.RELEASED)),
        ("recorded", _noted("oldObject", names.RELEASED)),
        ("leaving", f"({_noted('object', names.UNSERVED)}).split(',')"),
        ("left", f"({_noted('oldObject', names.UNSERVED)}).split(',')"),
        ("owners", "has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []"),
        (
            "owned",
            "has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : []",
        ),
        ("added", "variables.owners.filter(o, !variables.owned.exists(w, w == o))"),
        ("removed", "variables.owned.filter(o, !variables.owners.exists(n, n == o))"),
    ),
)
_DELETIONS = Limit(
    "pod-deletions",
    ("DELETE",),
    (("", "pods"),),
    (
        _UNPROTECTED,
        (
            "has(request.options) && has(request.options.preconditions) && "
            "has(request.options.preconditions.uid)",
            "deleting a pod needs its UID as a precondition",
        ),
    ),
)
_BUDGETS = Limit(
    "budgets",
    _ALL,
    (("policy", "poddisruptionbudgets"),),
    (
        _UNPROTECTED,
        (
            "variables.which.all(g, "
            f"g.metadata.name.startsWith('{names.GUARD_PREFIX}') && {_GUARDED})",
            "only budgets that this collection made may be touched",
        ),
        (
            "request.operation == 'DELETE' || (has(object.spec.maxUnavailable) && "
            "string(object.spec.maxUnavailable) == '1' && !has(object.spec.minAvailable) && "
            "has(object.spec.unhealthyPodEvictionPolicy) && "
            "object.spec.unhealthyPodEvictionPolicy == 'AlwaysAllow')",
            "such a budget has maxUnavailable 1 and holds no broken pod",
        ),
        (
            "request.operation == 'DELETE' || (has(object.spec.selector) && "
            "(has(object.spec.selector.matchLabels) && "
            "object.spec.selector.matchLabels.size() > 0 || "
            "has(object.spec.selector.matchExpressions) && "
            "object.spec.selector.matchExpressions.exists(e, e.operator == 'In')))",
            "such a budget selects pods by the value of a label",
        ),
        (
            "request.operation != 'UPDATE' || object.spec.selector == oldObject.spec.selector",
            "its pods stay the same",
        ),
    ),
    (
        (
            "which",
            "request.operation == 'CREATE' ? [object] : request.operation == 'DELETE' ? "
            "[oldObject] : [object, oldObject]",
        ),
    ),
)
_SCALES = Limit(
    "scales",
    _UPDATED,
    (
        ("apps", "deployments/scale"),
        ("apps", "replicasets/scale"),
        ("argoproj.io", "rollouts/scale"),
        ("apps.kruise.io", "clonesets/scale"),
    ),
    (
        _UNPROTECTED,
        ("variables.now >= 1", "a workload may not be scaled to nothing"),
        ("variables.now <= 2 * variables.was", "replicas may at most be doubled"),
        ("2 * variables.now >= variables.was", "replicas may at most be halved"),
        (
            _raised("variables.now", "variables.was"),
            "replicas may be raised to the option replicas at most",
        ),
    ),
    (
        ("now", "has(object.spec.replicas) ? object.spec.replicas : 0"),
        ("was", "has(oldObject.spec.replicas) ? oldObject.spec.replicas : 0"),
    ),
)
_LOCKS = Limit(
    "locks",
    _ALL,
    (("coordination.k8s.io", "leases"),),
    (
        (
            _named(
                names.NODE_LEASE_PREFIX,
                names.HEARTBEAT_PREFIX,
                names.SURGE_PREFIX,
                names.RUN_PREFIX,
                "descheduler-",
            ),
            "only locks of this collection may be touched",
        ),
    ),
)
_STORED = Limit(
    "stored-runs",
    _ALL,
    (("", "configmaps"),),
    (
        (
            f"request.namespace != '{names.NAMESPACE}' || "
            f"{_named(names.RUN_PREFIX, 'descheduler-')}",
            "only stored runs may be touched",
        ),
    ),
)
_HOLDERS = Limit(
    "fence",
    _UPDATED,
    ((names.PREFIX, "nodefences"),),
    (
        *_metadata("false"),
        (
            f"!has(object.held) || object.held.all(k, k.startsWith('{names.NODE_LEASE_PREFIX}'))",
            "only holders of nodes' locks may be noted",
        ),
    ),
)
_MIGRATIONS = Limit(
    "migrations",
    ("CREATE",),
    (("scheduling.koordinator.sh", "podmigrationjobs"),),
    (
        (
            "has(object.spec.podRef) && has(object.spec.podRef.uid) && "
            "object.spec.podRef.uid != ''",
            "a PodMigrationJob names the UID of its pod",
        ),
    ),
)
_EVENTS = Limit(
    "events",
    ("CREATE",),
    (("events.k8s.io", "events"),),
    (
        (
            "has(object.reportingController) && object.reportingController == "
            f"'{names.REPORTING_CONTROLLER}'",
            "an Event is reported in this collection's own name",
        ),
    ),
)

LIMITS = (
    *(_NODES, _STATUS, _EVICTIONS, _PODS, _DELETIONS, _BUDGETS),
    *(_SCALES, _LOCKS, _STORED, _HOLDERS, _MIGRATIONS, _EVENTS),
)


def bounding(account: accounts.Account) -> list[objects.Raw]:
    """The policies that bound an account, each with its binding."""
    found: list[objects.Raw] = []
    for limit in LIMITS:
        found += _policy(limit, account)
    return found


def _policy(limit: Limit, account: accounts.Account) -> tuple[objects.Raw, objects.Raw]:
    name = f"{limit.subject}.{account.name}.{account.namespace}.{names.PREFIX}"
    by_group: dict[str, list[str]] = {}
    for group, resource in limit.resources:
        by_group.setdefault(group, []).append(resource)
    rules = [
        _requests(group, "*", limit.operations, resources) for group, resources in by_group.items()
    ]
    mine = {"name": "account", "expression": f"request.userInfo.username == '{account.user}'"}
    spec: dict[str, t.Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [mine],
        "validations": [
            {
                "expression": demand,
                "message": f"bounds of {account.name}: {message}",
                "reason": "Forbidden",
            }
            for demand, message in limit.demands
        ],
    }
    own = {"taints": _listed(account.taints), "most": str(account.replicas)}
    demands = " ".join(demand for demand, _message in limit.demands)
    variables = [*limit.variables]
    variables += [(key, value) for key, value in own.items() if f"variables.{key}" in demands]
    if variables:
        spec["variables"] = [{"name": key, "expression": value} for key, value in variables]
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return (
        _admission("ValidatingAdmissionPolicy", name, spec),
        _admission("ValidatingAdmissionPolicyBinding", name, bound),
    )
