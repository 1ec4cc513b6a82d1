# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The account that does maintenance: its ServiceAccount, and which role is bound to it where."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import roles
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
)

# Which change brings an object that is installed once per cluster to its manifest, or removes it.


def ref_of(obj: objects.Raw) -> objects.Ref:
    """The kind, name and namespace in a manifest, or of an object from a list."""
    meta = obj["metadata"]
    return objects.Ref(
        obj["kind"], meta["name"], meta.get("namespace", ""), api_version=obj["apiVersion"]
    )


def present(wanted: objects.Raw, found: objects.Raw | None) -> api_changes.Change | None:
    """What makes the object as wanted; ``None`` if it is.
    Whatever the server or others add to it stays.

    A binding to another role has to be deleted first, because the API server does not change that.
    """
    target = ref_of(wanted)
    if found is None or going(found):
        return api_changes.Change(
            "create", target, f"Create {target}", body=wanted, before={}, after=_parts(wanted)
        )
    before = _common(_parts(found), _parts(wanted))
    after = _parts(wanted)
    if before.get("roleRef") != after.get("roleRef"):
        return absent(wanted, found)
    body = {key: part for key, part in after.items() if before.get(key) != part}
    if not body:
        return None
    meta = {key: body.pop(key) for key in ("labels", "annotations") if key in body}
    if meta:
        body["metadata"] = meta
    version = found["metadata"]["resourceVersion"]
    sentence = f"Change {target} back to its manifest"
    return api_changes.Change(
        "patch", target, sentence, body, before, after, resource_version=version
    )


def absent(wanted: objects.Raw, found: objects.Raw | None) -> api_changes.Change | None:
    """What removes the object; ``None`` if it does not exist."""
    if found is None or going(found):
        return None
    target = ref_of(wanted)
    before = _common(_parts(found), _parts(wanted))
    version = found["metadata"]["resourceVersion"]
    return api_changes.Change(
        "delete", target, f"Delete {target}", before=before, after={}, resource_version=version
    )


def going(found: objects.Raw) -> bool:
    """Whether the object will not exist any more in a moment."""
    return "deletionTimestamp" in found["metadata"]


def _parts(obj: objects.Raw) -> dict[str, t.Any]:
    """What a manifest decides: labels, annotations, and all but coordinates and status."""
    meta = obj["metadata"]
    parts: dict[str, t.Any] = {"labels": meta.get("labels") or {}}
    if meta.get("annotations"):
        parts["annotations"] = meta["annotations"]
    return {
        **parts,
        **{key: obj[key] for key in ("spec", "rules", "roleRef", "subjects", "type") if key in obj},
    }


def _common(found: t.Any, wanted: t.Any) -> t.Any:
    """The found value without unwanted keys; it equals ``wanted`` if nothing is to change."""
    if isinstance(found, t.Mapping) and isinstance(wanted, t.Mapping):
        return {key: _common(found[key], wanted[key]) for key in wanted if key in found}
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [_common(one, other) for one, other in zip(found, wanted, strict=True)]
    return found


LABELS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
REPLICAS = 100
PREVIEWS = f"{names.NAMESPACE}-dry-run"
"""The ServiceAccount of the pods that preview a descheduler, in the descheduler's namespace."""
NAMESPACE: objects.Raw = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": names.NAMESPACE, "labels": LABELS},
}


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount with the ``steps`` that it may do.

    ``workloads`` are the namespaces whose pods move, none: the whole cluster; ``locks`` those of
    the nodes' locks. ``taints`` (keys) and ``replicas`` are bounds in its policies: which it may
    change besides ours, to how many it may raise a workload.
    """

    name: str = "operator"
    namespace: str = names.NAMESPACE
    steps: tuple[str, ...] = roles.MAINTAIN
    workloads: tuple[str, ...] = ()
    locks: tuple[str, ...] = (names.NAMESPACE,)
    descheduler: str = roles.KOORDINATOR
    taints: tuple[str, ...] = ()
    replicas: int = REPLICAS

    @property
    def user(self) -> str:
        """As the API server and its audit log call it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def service_accounts(self) -> tuple[objects.Raw, ...]:
        """The account, and that of a descheduler's previews if it is among the steps."""
        pairs = [(self.namespace, self.name)]
        if "dry-run" in self.steps:
            pairs.append((self.descheduler, PREVIEWS))
        return tuple(_service_account(namespace, name) for namespace, name in pairs)

    def bindings(self) -> tuple[objects.Raw, ...]:
        """Each role of the steps in each of its places."""
        found = []
        for step in self.steps:
            role = roles.BY_STEP[step]
            found += [self._binding(role, place) for place in self._places(role)]
        return tuple(found)

    def binding_name(self, step: str) -> str:
        """The name of the account's bindings to the role of a step; no two accounts share one."""
        return f"{roles.BY_STEP[step].name}.{self.namespace}.{self.name}"

    def _places(self, role: roles.Role) -> tuple[str, ...]:
        """The namespaces in which a role is bound; the empty one stands for the whole cluster."""
        if role.everywhere:
            named = self.workloads if role.places in ("workloads", "announced") else ()
            more = ("default",) if named and role.places == "announced" else ()
            return tuple(dict.fromkeys((*named, *more))) or ("",)
        fixed = {"locks": self.locks, "descheduler": (self.descheduler,)}
        return fixed.get(role.places) or tuple(roles.BOUND_IN[role.places].split())

    def _binding(self, role: roles.Role, place: str) -> objects.Raw:
        holder = (
            (self.descheduler, PREVIEWS) if role.places == "pods" else (self.namespace, self.name)
        )
        return {
            "apiVersion": roles.RBAC,
            "kind": "RoleBinding" if place else "ClusterRoleBinding",
            "metadata": {
                "name": self.binding_name(role.step),
                **({"namespace": place} if place else {}),
                "labels": LABELS,
            },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role.name,
            },
            "subjects": [{"kind": "ServiceAccount", "namespace": holder[0], "name": holder[1]}],
        }


def ours(found: objects.Raw) -> bool:
    """Whether we made the object: it has our label or, from before that, our annotation."""
    meta = found["metadata"]
    labelled = (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
    return labelled or roles.BIND_IN in (meta.get("annotations") or {})


def stale(
    account: Account, bindings: t.Iterable[objects.Raw], wanted: t.Container[objects.Ref]
) -> tuple[objects.Raw, ...]:
    """Bindings of ours that give the account a role of its steps where it should not have it."""
    known = {account.binding_name(step) for step in account.steps}
    return tuple(
        found
        for found in bindings
        if found["metadata"]["name"] in known and ours(found) and ref_of(found) not in wanted
    )


def free(step: str, bindings: t.Iterable[objects.Raw], going: t.Container[objects.Ref]) -> bool:
    """Whether nothing but bindings that are ``going`` refers to the role of a step."""
    role = ("ClusterRole", roles.BY_STEP[step].name)
    left = (found for found in bindings if ref_of(found) not in going)
    return all((found["roleRef"]["kind"], found["roleRef"]["name"]) != role for found in left)


def serves(service_account: objects.Raw, bindings: t.Iterable[objects.Raw]) -> bool:
    """Whether any of the bindings gives the ServiceAccount a role."""
    meta = service_account["metadata"]
    wanted = ("ServiceAccount", meta["namespace"], meta["name"])
    for binding in bindings:
        for subject in binding.get("subjects") or ():
            if (subject["kind"], subject.get("namespace"), subject["name"]) == wanted:
                return True
    return False


def _service_account(namespace: str, name: str) -> objects.Raw:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
    }
