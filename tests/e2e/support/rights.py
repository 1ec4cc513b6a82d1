# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The account that the collection acts as in the tests: a ServiceAccount with the documented roles, nothing more.

The tests themselves (what they set up, the witness, what they look at) are the lab's administrator.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import yaml
from witness.api import Api, ApiError
from witness.log import Json

RIGHTS = Path(__file__).resolve().parents[3] / "playbooks/files/rights.yml"
PREFIX = "kubeops-node-maintenance-"
BIND_IN = "maintenance.kubeops.io/bind-in"
HOME = "kubeops-node-maintenance"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECONDS = 24 * 3600
"""How long a token is good for: longer than any run of the tests."""

LACKING = re.compile(r"(?:may not|, nor) (.+?) in (the whole cluster|namespace [a-z0-9-]+(?:, [a-z0-9-]+)*)")

VERBS = ("get", "list", "watch", "create", "patch", "delete")

AGENT = "kubeops-test"
OPERATOR = "operator"
NOT_HELD = frozenset({"look", "delete-pods", "namespace", "fence", "dry-run"})
"""Roles that the account of the tests has no use for: they are part of others, or for others who ask for them."""


@functools.cache
def documents() -> tuple[Json, ...]:
    """The objects of the file, in its order."""
    return tuple(yaml.safe_load(RIGHTS.read_text(encoding="utf-8"))["items"])


@functools.cache
def roles() -> dict[str, Json]:
    """The ClusterRoles by their short names."""
    return {
        str(one["metadata"]["name"]).removeprefix(PREFIX): one for one in documents() if one["kind"] == "ClusterRole"
    }


def account(name: str) -> str:
    """The ServiceAccount as the API server and its audit log call it."""
    return f"system:serviceaccount:{HOME}:{name}"


def granted(api: Api, path: Path, name: str = OPERATOR, wanted: Collection[str] = ()) -> Path:
    """Make the ServiceAccount with these roles (all but NOT_HELD), each bound where the file says.

    Returns `path`, to which its kubeconfig is written. A namespace that is not there gets no binding.
    """
    for one in documents():
        base = "/api/v1/namespaces" if one["kind"] == "Namespace" else f"{RBAC}/clusterroles"
        made(api, base, one)
    accounts = f"/api/v1/namespaces/{HOME}/serviceaccounts"
    made(api, accounts, {"metadata": {"name": name}})
    for role in wanted or roles().keys() - NOT_HELD:
        for place in str(roles()[role]["metadata"]["annotations"][BIND_IN]).split():
            bind(api, role, "" if place == "*" else place, name)
    asked = {"spec": {"expirationSeconds": SECONDS}}
    token = api.create(f"{accounts}/{name}/token", asked)["status"]["token"]
    config = yaml.safe_load(api.kubeconfig.read_text(encoding="utf-8"))
    for entry in config["users"]:
        entry["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def token(config: Path) -> str:
    """The token in a kubeconfig."""
    return str(yaml.safe_load(config.read_text(encoding="utf-8"))["users"][0]["user"]["token"])


def bind(api: Api, role: str, namespace: str = "", name: str = OPERATOR) -> None:
    """Give the account a role in a namespace, or everywhere; nothing where the namespace is missing."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{PREFIX}{role}"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": HOME}
    binding = {"metadata": {"name": f"{name}-{role}"}, "roleRef": reference, "subjects": [subject]}
    base = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    try:
        made(api, base, binding)
    except ApiError as error:
        if error.status != 404:
            raise


def may(config: Path, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
    """What `kubectl auth can-i` says to the owner of a kubeconfig; without a namespace: everywhere."""
    plural, _slash, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "namespace": namespace}
    asked["name"] = name
    review = {"spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}}}
    answer = Api(config, AGENT).create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def holds_its_own_token_alone(config: Path, name: str) -> None:
    """A kubeconfig that only its owner may read, with nothing of the administrator who made it."""
    assert config.stat().st_mode & 0o777 == 0o600
    (user,) = yaml.safe_load(config.read_text(encoding="utf-8"))["users"]
    assert (user["name"], set(user["user"])) == (name, {"token"})
    assert may(config, "create", "", "pods/eviction")
    assert not may(config, "*", "*", "*")


@contextlib.contextmanager
def withheld(api: Api) -> Iterator[None]:
    """The account has no right in the whole cluster for a while; the API server has heard of it, and of the end."""
    everywhere = [role for role, one in roles().items() if one["metadata"]["annotations"][BIND_IN] == "*"]
    everywhere = [role for role in everywhere if role not in NOT_HELD]
    for role in everywhere:
        api.delete(f"{RBAC}/clusterrolebindings/{OPERATOR}-{role}")
    try:
        yield
    finally:
        for role in everywhere:
            bind(api, role)


def also(api: Api, namespace: str, group: str, *resources: str) -> None:
    """Let the account read a kind that the file cannot know, in one namespace; gone with the namespace."""
    rules = [{"apiGroups": [group], "resources": list(resources), "verbs": ["get"]}]
    base = f"{RBAC}/namespaces/{namespace}"
    made(api, f"{base}/roles", {"metadata": {"name": f"{OPERATOR}-also"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": f"{OPERATOR}-also"}
    subject = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": HOME}
    binding = {"metadata": {"name": f"{OPERATOR}-also"}, "roleRef": reference, "subjects": [subject]}
    made(api, f"{base}/rolebindings", binding)


def revoke(api: Api, name: str) -> None:
    """Delete the account and its bindings, whether made here, by the playbook `access` or as a message says."""
    bindings = [f"{RBAC}/clusterrolebindings"]
    bindings += [f"{RBAC}/namespaces/{one['metadata']['name']}/rolebindings" for one in api.items("/api/v1/namespaces")]
    for base in bindings:
        for found in api.items(base):
            called = str(found["metadata"]["name"])
            if called.startswith(f"{name}-") or called.endswith((f".{HOME}.{name}", f"-{HOME}-{name}")):
                api.delete(f"{base}/{called}")
    api.delete(f"/api/v1/namespaces/{HOME}/serviceaccounts/{name}")


def lacking(text: str) -> set[str]:
    """The rights that a text says are missing, each as `patch nodes in the whole cluster`."""
    found = set()
    for told, place in LACKING.findall(text):
        for alike in told.split("; "):
            words = alike.replace(",", "").split(" ")
            verbs = [word for word in words if word in VERBS]
            found |= {f"{verb} {word} in {place}" for verb in verbs for word in words if word not in VERBS}
    return found


def refusals(audit_log: Path, mark: int, name: str = OPERATOR) -> list[str]:
    """What the account asked for since the mark (the log's size then) and was refused for want of a right."""
    with audit_log.open("rb") as file:
        file.seek(mark)
        lines = file.read().decode("utf-8", "replace").splitlines()
    found: list[str] = []
    for line in lines:
        if account(name) not in line or '"forbid"' not in line:
            continue
        with contextlib.suppress(json.JSONDecodeError):
            entry = json.loads(line)
            forbidden = (entry.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid"
            if forbidden and entry["user"]["username"] == account(name):
                found.append(f"{entry['verb']} {entry['requestURI']}")
    return list(dict.fromkeys(found))


def made(api: Api, base: str, obj: Json) -> None:
    try:
        api.create(base, obj)
    except ApiError as error:
        if error.status != 409:
            raise
        api.patch(f"{base}/{obj['metadata']['name']}", obj)
