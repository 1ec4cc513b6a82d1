# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The kubeconfig of an account: its token, which is in the file and nowhere else, and the file.

A token that is asked for expires; one in a Secret does not, until the Secret is deleted.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import pathlib
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import accounts
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_file_writes,
    run_reconcile,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes

# The kubeconfig of an account: its text, and whether one that was written earlier still serves.
#
# A token is only looked into, not verified; the API server does that.


_TOKEN = re.compile(r"^    token: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says of itself: when made, when it expires (0: never), the account's UID."""

    user: str
    uid: str
    made: float
    expires: float

    @property
    def until(self) -> str:
        """When it expires, in UTC, or that it does not."""
        if not self.expires:
            return "never"
        return datetime.datetime.fromtimestamp(self.expires, datetime.UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )

    def serves(self, user: str, uid: str, now: float) -> bool:
        """Whether it is of this account and not of an earlier one of that name,
        and half of its time is left.
        """
        lasting = not self.expires or now < (self.made + self.expires) / 2
        return lasting and (self.user, self.uid) == (user, uid)


def kubeconfig_text(cluster: t.Mapping[str, t.Any], name: str, token: str) -> str:
    """The kubeconfig of ``name`` for a cluster, given as a kubeconfig has it."""
    lines = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in sorted(cluster.items()))
    return (
        f"apiVersion: v1\nkind: Config\ncurrent-context: {name}\n"
        f"clusters:\n- name: cluster\n  cluster:\n{lines}"
        f"contexts:\n- name: {name}\n  context:\n    cluster: cluster\n    user: {name}\n"
        f"users:\n- name: {name}\n  user:\n    token: {token}\n"
    )


def token_in(content: str, cluster: t.Mapping[str, t.Any], name: str) -> str:
    """The token in what ``text`` made for this account and cluster; empty otherwise."""
    found = _TOKEN.search(content)
    return found[1] if found and content == kubeconfig_text(cluster, name, found[1]) else ""


def parsed(token: str) -> Token | None:
    """What a token says; ``None`` if it is none of a ServiceAccount."""
    try:
        _head, claims, _signature = token.split(".")
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        kubernetes = found.get("kubernetes.io") or {}
        uid = (kubernetes.get("serviceaccount") or {}).get("uid") or found[
            "kubernetes.io/serviceaccount/service-account.uid"
        ]
        return Token(
            str(found["sub"]), str(uid), float(found.get("iat") or 0), float(found.get("exp") or 0)
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None


FILLED_WITHIN_SECONDS = 30.0
"""Seconds within which the control plane has to put the token into a new Secret."""
LOOK_EVERY_SECONDS = 0.2

Form = t.Literal["request", "secret"]


OWNER_ONLY = 0o600


class PlaceError(RuntimeError):
    """The file cannot be read, written or deleted; the text never has its content."""


class PrivateFile:
    """The file at a path, which need not exist yet, and which only its owner may read.

    Raises:
        PlaceError: it cannot be read, written or deleted.
    """

    def __init__(self, path: str) -> None:
        self._path = pathlib.Path(path).expanduser().absolute()
        self.path = str(self._path)

    def read(self) -> str:
        """What is in it, empty if it does not exist, may be read by others, or is not text."""
        try:
            # One that others may read is written anew, with another token.
            if self._path.stat().st_mode & 0o077 == 0:
                return self._path.read_text(encoding="utf-8")
            return ""
        except (FileNotFoundError, UnicodeDecodeError):
            return ""
        except OSError as error:
            raise self._refused("read", error) from None

    def write(self, text: str) -> None:
        try:
            run_file_writes.write(self._path, text, OWNER_ONLY)
        except OSError as error:
            raise self._refused("written", error) from None

    def remove(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused("deleted", error) from None

    def _refused(self, done: str, error: OSError) -> PlaceError:
        why = error.strerror or type(error).__name__
        return PlaceError(f"{self.path} cannot be {done}: {why}. Give another path as dest.")


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Whose kubeconfig goes where, with which kind of token, for how many seconds."""

    account: accounts.Account
    form: Form
    seconds: float
    place: PrivateFile

    @property
    def target(self) -> objects.Ref:
        return objects.Ref("Kubeconfig", self.place.path)

    @property
    def secret(self) -> objects.Raw:
        """The Secret that the control plane fills with a token."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": f"{self.account.name}-token",
                "namespace": self.account.namespace,
                "labels": accounts.LABELS,
                "annotations": {"kubernetes.io/service-account.name": self.account.name},
            },
            "type": "kubernetes.io/service-account-token",
        }


def written(ctx: run_context.Context, asked: TokenRequest) -> dict[str, t.Any]:
    """Write the kubeconfig, unless the one that is there still serves.

    Raises:
        CallAborted: the Secret is somebody else's, or stays empty.
        ClusterError: the server refused, or could not be reached.
        PlaceError: the file cannot be read or written.
    """
    entry, account = ctx.cluster.entry, asked.account
    content = asked.place.read()
    present = parsed(token_in(content, entry, account.name))
    if present and present.serves(account.user, _uid(ctx, account), ctx.clock.epoch()):
        lasting = not present.expires
        if lasting == (asked.form == "secret"):
            return _result(asked, outcomes.AccessOutcome.ALREADY_PRESENT, present.until)
    token = _from_secret(ctx, asked) if asked.form == "secret" else _requested(ctx, asked)
    before = {"account": account.user, "token": f"valid until {present.until}"} if present else {}
    before = before or ({"account": "another"} if content else {})
    after = {"account": account.user, "token": "new"}
    verb: api_changes.Verb = "patch" if content else "create"
    sentence = f"Write the kubeconfig of {account.user} to {asked.place.path}"
    if not ctx.check:
        asked.place.write(kubeconfig_text(entry, account.name, token))
    ctx.changed(api_changes.Change(verb, asked.target, sentence, before=before, after=after))
    made = parsed(token)
    outcome = outcomes.AccessOutcome.CHANGED if content else outcomes.AccessOutcome.CREATED
    return _result(asked, outcome, made.until if made else "")


def removed(ctx: run_context.Context, asked: TokenRequest) -> dict[str, t.Any]:
    """Delete the account's Secret with its token, and the file if it is this account's kubeconfig.

    Raises:
        ClusterError: the server refused, or could not be reached.
        PlaceError: the file cannot be read or deleted.
    """
    if asked.form == "secret":
        target = accounts.ref_of(asked.secret)
        run_reconcile.reconcile(ctx, target, lambda found: _unfilled(asked, found))
    content = asked.place.read()
    present = parsed(token_in(content, ctx.cluster.entry, asked.account.name))
    if present is None or present.user != asked.account.user:
        return _result(asked, outcomes.AccessOutcome.ALREADY_ABSENT, "")
    if not ctx.check:
        asked.place.remove()
    sentence = f"Delete the kubeconfig {asked.place.path}"
    ctx.changed(
        api_changes.Change(
            "delete", asked.target, sentence, before={"account": present.user}, after={}
        )
    )
    return _result(asked, outcomes.AccessOutcome.DELETED, "")


def _result(asked: TokenRequest, outcome: outcomes.AccessOutcome, until: str) -> dict[str, t.Any]:
    return {
        "path": asked.place.path,
        "user": asked.account.user,
        "outcome": outcome.value,
        "expires": until,
    }


def _uid(ctx: run_context.Context, account: accounts.Account) -> str:
    found = run_reconcile.read(
        ctx, objects.Ref("ServiceAccount", account.name, account.namespace, api_version="v1")
    )
    return str(found["metadata"]["uid"]) if found else ""


def _requested(ctx: run_context.Context, asked: TokenRequest) -> str:
    if ctx.check:
        return ""
    account = asked.account
    answer = ctx.cluster.send(verbs.token(account.namespace, account.name, int(asked.seconds)))
    return str(answer["status"]["token"])


def _from_secret(ctx: run_context.Context, asked: TokenRequest) -> str:
    target = accounts.ref_of(asked.secret)
    # Its content is a secret: the result tells of the change by its coordinates only.
    run_reconcile.reconcile(ctx, target, lambda found: _filled(asked, found))
    if ctx.check:
        return ""
    for _late in ctx.poll(LOOK_EVERY_SECONDS, FILLED_WITHIN_SECONDS):
        found = ctx.cluster.send(verbs.get(kinds.SECRETS, target.name, target.namespace))
        if token := (found.get("data") or {}).get("token"):
            return base64.b64decode(token).decode("ascii")
    raise run_context.CallAborted(
        "no_token",
        f"{target} got no token within {FILLED_WITHIN_SECONDS:.0f} s.",
        "Check that kube-controller-manager runs with --service-account-private-key-file, or "
        "use token=request.",
        str(target),
    )


def _filled(asked: TokenRequest, found: objects.Raw | None) -> api_changes.Change | None:
    if found is not None and not accounts.ours(found):
        target = accounts.ref_of(asked.secret)
        raise run_context.CallAborted(
            "not_ours",
            f"{target} exists, and this collection did not make it.",
            "Rename or delete it, or use another service account.",
            str(target),
        )
    return accounts.present(asked.secret, found)


def _unfilled(asked: TokenRequest, found: objects.Raw | None) -> api_changes.Change | None:
    return (
        accounts.absent(asked.secret, found) if found is not None and accounts.ours(found) else None
    )
