# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_access``: an account with its rights and limits, the fence in the API server, and
whether that stands.

Everything is read and judged first: no object of others is touched, and all writes are tried as dry
runs, so that all that these credentials may not do is known before the first real one.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import (
    accounts,
    policies,
    roles,
    run_tokens,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    reasons,
)

SERVED_WITHIN_SECONDS = 30.0
"""Seconds within which a kind that was just defined has to be served."""
LOOK_EVERY_SECONDS = 0.2

DONE = {
    "create": outcomes.AccessOutcome.CREATED,
    "patch": outcomes.AccessOutcome.CHANGED,
    "delete": outcomes.AccessOutcome.DELETED,
}
"""The outcome of an object after a change of this verb."""

_REFERS_TO = {
    "ValidatingAdmissionPolicy": "CustomResourceDefinition",
    "ValidatingAdmissionPolicyBinding": "ValidatingAdmissionPolicy",
}
"""What the API server looks up to validate an object: as long as it is not there,
the object is invalid.

A binding is so only for those who may not read all kinds (Kubernetes 1.37: ``paramRef``,
"unable to get policy").
"""

State = t.Literal["present", "absent"]
Standing = t.Literal["present", "incomplete", "absent", "unknown"]
Decide = t.Callable[[objects.Raw, "objects.Raw | None"], "api_changes.Change | None"]


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Options of the module; an account without ``steps`` is none."""

    state: State = "present"
    steps: tuple[str, ...] = roles.MAINTAIN
    service_account: str = "operator"
    service_account_namespace: str = names.NAMESPACE
    namespaces: tuple[str, ...] = ()
    descheduler_namespace: str = roles.KOORDINATOR
    lease_namespace: str = ""
    fence: bool = False
    policies: bool = False
    taints: tuple[str, ...] = ()
    replicas: int = accounts.REPLICAS
    token: run_tokens.Form = "request"
    token_lifetime: float = 24 * 3600.0
    dest: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """An object to settle: as it should be (or was, if it goes), as found, and what decides."""

    wanted: objects.Raw
    found: objects.Raw | None
    decide: Decide

    @property
    def change(self) -> api_changes.Change | None:
        return self.decide(self.wanted, self.found)


def install(ctx: run_context.Context, options: AccessOptions) -> run_context.Result:
    """Create, correct or delete what the options name.

    Raises:
        CallAborted: this API server has no such policies, or a namespace that is needed does not
        exist. ClusterError: the server refused, or could not be reached.
        PlaceError: the kubeconfig cannot be read or written.
    """
    present = options.state == "present"
    _check_served(ctx, options)
    pieces = _pieces(ctx, options, present)
    findings = _foreign(pieces) or _refusals(ctx, pieces)
    if findings:
        failed = [finding.to_dict() for finding in findings]
        message = " ".join(finding.sentence for finding in findings)
        return run_context.Result({"objects": [], "findings": failed}, failed=True, message=message)
    data: dict[str, t.Any] = {
        "objects": [_settled(ctx, piece, options.state) for piece in pieces],
        "findings": [],
    }
    if options.dest:
        account = _account(options, (names.NAMESPACE,))
        asked = run_tokens.TokenRequest(
            account, options.token, options.token_lifetime, run_tokens.PrivateFile(options.dest)
        )
        data["kubeconfig"] = (
            run_tokens.written(ctx, asked) if present else run_tokens.removed(ctx, asked)
        )
    return run_context.Result(data)


def standing(ctx: run_context.Context, unread: list[reasons.Finding] | None = None) -> Standing:
    """Whether the fence is there; ``unknown`` if these credentials may not read it,
    which is ``unread``.

    Raises:
        ClusterError: the API server cannot be reached.
    """
    try:
        found = [(obj, run_reconcile.read(ctx, accounts.ref_of(obj))) for obj in policies.FENCE]
    except errors.Forbidden as error:
        if unread is not None:
            message = f"It is unknown whether the API server has the fence: {error}"
            unread.append(
                reasons.Finding("not_checked", message, severity="info", object="NodeFence")
            )
        return "unknown"
    if all(raw is None for _obj, raw in found):
        return "absent"
    as_wanted = all(raw is not None and accounts.present(obj, raw) is None for obj, raw in found)
    return "present" if as_wanted else "incomplete"


def _check_served(ctx: run_context.Context, options: AccessOptions) -> None:
    wanted = options.fence or options.policies
    if wanted and options.state == "present" and not _admits(ctx):
        what = "the fence" if options.fence else "the policies"
        raise run_context.CallAborted(
            "no_admission_policies",
            "This API server has no ValidatingAdmissionPolicy in version v1, "
            f"so it cannot hold {what}.",
            "Kubernetes 1.30 and newer have it. Everything else works without it.",
            "ValidatingAdmissionPolicy",
        )


def _pieces(ctx: run_context.Context, options: AccessOptions, present: bool) -> list[Piece]:
    """All objects with how they are now, in the order in which they are settled."""
    pieces = _of_account(ctx, options, present) if options.steps else []
    extra: list[objects.Raw] = []
    if options.policies and (present or _admits(ctx)):
        extra += policies.bounding(_account(options, ()))
    # The policies demand the name of a lock, and the fence that it is held.
    fenced = options.fence or (options.policies and present)
    if fenced and (present or _admits(ctx)):
        extra += policies.FENCE
    decide = accounts.present if present else accounts.absent
    more = [Piece(obj, run_reconcile.read(ctx, accounts.ref_of(obj)), decide) for obj in extra]
    # What limits an account is there before what it may do, and goes after that.
    return [*more, *pieces] if present else [*pieces, *more[::-1]]


def _of_account(ctx: run_context.Context, options: AccessOptions, present: bool) -> list[Piece]:
    found = _namespaces(ctx)
    locks = (names.NAMESPACE, names.MEDIK8S_NAMESPACE, options.lease_namespace)
    account = _account(
        options, tuple(n for n in dict.fromkeys(locks) if n in {names.NAMESPACE, *found})
    )
    bound = [*_all(ctx, kinds.CLUSTER_ROLE_BINDINGS), *_all(ctx, kinds.ROLE_BINDINGS)]
    wanted = account.bindings()
    refs = {accounts.ref_of(one) for one in wanted}
    known = {accounts.ref_of(one): one for one in bound}
    stale = accounts.stale(account, bound, refs if present else ())
    going = [Piece(one, one, accounts.absent) for one in stale]
    named = [roles.BY_STEP[step].manifest for step in account.steps]
    if present:
        _check_namespaces(account, wanted, found)
        made = [
            *([accounts.NAMESPACE] if names.NAMESPACE not in found else []),
            *account.service_accounts(),
            *named,
        ]
        read = [Piece(obj, run_reconcile.read(ctx, accounts.ref_of(obj)), _added) for obj in made]
        settled = [
            Piece(x.wanted, x.found, accounts.present) if x.wanted in named else x for x in read
        ]
        settled += [Piece(o, known.get(accounts.ref_of(o)), accounts.present) for o in wanted]
        return [*settled, *going]
    gone = {accounts.ref_of(one) for one in stale}
    unused = [
        role
        for step, role in zip(account.steps, named, strict=True)
        if accounts.free(step, bound, gone)
    ]
    others = [one for one in bound if accounts.ref_of(one) not in gone]
    idle = [one for one in account.service_accounts() if not accounts.serves(one, others)]
    read = [
        Piece(obj, run_reconcile.read(ctx, accounts.ref_of(obj)), accounts.absent)
        for obj in (*unused, *idle)
    ]
    left = [piece for piece in read if piece.found is None or accounts.ours(piece.found)]
    return [*going, *left]


def _account(options: AccessOptions, locks: tuple[str, ...]) -> accounts.Account:
    return accounts.Account(
        options.service_account,
        namespace=options.service_account_namespace,
        steps=tuple(dict.fromkeys(options.steps)),
        workloads=options.namespaces,
        locks=locks,
        descheduler=options.descheduler_namespace,
        taints=options.taints,
        replicas=options.replicas,
    )


def _added(wanted: objects.Raw, found: objects.Raw | None) -> api_changes.Change | None:
    """For what may be others': it is made if it is missing, and else left as it is."""
    return accounts.present(wanted, found) if found is None or accounts.going(found) else None


def _namespaces(ctx: run_context.Context) -> set[str]:
    return {raw["metadata"]["name"] for raw in _all(ctx, kinds.NAMESPACES)}


def _all(ctx: run_context.Context, kind: kinds.Kind) -> list[objects.Raw]:
    return list(ctx.cluster.items(kind).items)


def _check_namespaces(
    account: accounts.Account, bindings: t.Iterable[objects.Raw], found: t.Container[str]
) -> None:
    """Raises CallAborted if a binding or the account itself has no namespace to be in."""
    asked = {account.namespace: "service_account_namespace"}
    asked |= dict.fromkeys(account.workloads, "namespaces")
    for binding in bindings:
        asked.setdefault(
            binding["metadata"].get("namespace", names.NAMESPACE), "descheduler_namespace"
        )
    missing = [place for place in asked if place != names.NAMESPACE and place not in found]
    if missing:
        raise run_context.CallAborted(
            "namespace_missing",
            f"Namespace {', '.join(missing)} does not exist, so no role can be bound there.",
            f"Create it, or give another one as {asked[missing[0]]}.",
            f"Namespace {missing[0]}",
        )


def _foreign(pieces: t.Iterable[Piece]) -> list[reasons.Finding]:
    """Objects with our names that we did not make."""
    label = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
    found = []
    for piece in pieces:
        if piece.found is None or piece.decide is _added or accounts.ours(piece.found):
            continue
        ref = accounts.ref_of(piece.wanted)
        message = f"{ref} exists, and this collection did not make it."
        remedy = (
            "Rename or delete it; if it is to be replaced, label it: kubectl label "
            f"{_kubectl(ref)} {label}"
        )
        found.append(reasons.Finding("not_ours", message, remedy, "blocker", str(ref)))
    return found


def _kubectl(ref: objects.Ref) -> str:
    return f"{ref.kind.lower()} {ref.name}" + (f" -n {ref.namespace}" if ref.namespace else "")


def _refusals(ctx: run_context.Context, pieces: t.Iterable[Piece]) -> list[reasons.Finding]:
    """What these credentials may not do of all that is planned, found out by dry runs."""
    changes = [change for piece in pieces if (change := piece.change)]
    created = {change.target.kind for change in changes if change.verb == "create"}
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "dry runs") as pool:
        tried = pool.map(lambda change: _refused(ctx, change, created), changes)
        return [finding for finding in tried if finding]


def _refused(
    ctx: run_context.Context, change: api_changes.Change, created: t.Container[str]
) -> reasons.Finding | None:
    """``created``: the kinds of what all the changes together create."""
    request = run_requests.request_for(change)
    try:
        ctx.cluster.send(verbs.dry(request))
    except errors.Forbidden as error:
        words = f"{request.verb} {request.resource}"
        message = f"These credentials may not {words} ({change.target}): {error.message}"
        remedy = (
            "Run this once with an administrator's credentials: to grant rights one must have "
            "them, or may `escalate` clusterroles and `bind` them."
        )
        return reasons.Finding("missing_permission", message, remedy, "blocker", words)
    except (errors.NotFound, errors.Conflict):
        # Its namespace, role or kind is to be created first; or somebody has just written it,
        # such as the controller of its status, and it is read again before the real write.
        return None
    except errors.Invalid:
        if _REFERS_TO.get(change.target.kind) not in created:
            raise
    return None


def _settled(ctx: run_context.Context, piece: Piece, state: State) -> dict[str, t.Any]:
    """Bring one object to its state, and show it as the result has it."""
    target = accounts.ref_of(piece.wanted)

    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        return piece.decide(piece.wanted, found)

    change = run_reconcile.reconcile(ctx, target, decide, known=piece.found).change
    if change and change.verb == "delete" and piece.decide is accounts.present:
        known = None if ctx.check else run_reconcile.UNREAD
        run_reconcile.reconcile(ctx, target, decide, known=known)
        outcome = outcomes.AccessOutcome.CHANGED
    else:
        outcome = DONE[change.verb] if change else outcomes.AccessOutcome(f"already_{state}")
    if change and change.verb == "create" and target.kind == "CustomResourceDefinition":
        _await_served(ctx, names.FENCE_API, "NodeFence")
    return {
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "outcome": outcome.value,
    }


def _await_served(ctx: run_context.Context, group_version: str, kind: str) -> None:
    """Until then, creating an object of the kind fails as if its namespace did not exist."""
    for _late in ctx.poll(LOOK_EVERY_SECONDS, SERVED_WITHIN_SECONDS):
        if ctx.check or _served(ctx, group_version, kind):
            return


def _admits(ctx: run_context.Context) -> bool:
    return _served(ctx, policies.ADMISSION, "ValidatingAdmissionPolicy")


def _served(ctx: run_context.Context, group_version: str, kind: str) -> bool:
    try:
        answer = ctx.cluster.send(verbs.api_resources(group_version))
    except errors.NotFound:
        return False
    return any(entry.get("kind") == kind for entry in answer.get("resources") or ())
