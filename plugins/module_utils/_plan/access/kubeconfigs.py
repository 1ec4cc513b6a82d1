# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The kubeconfig of an account: its text, and whether one that was written earlier still serves.

A token is only looked into, not verified; the API server does that.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
import typing as t
from dataclasses import dataclass

_TOKEN = re.compile(r"^    token: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says of itself: when it was made, when it expires (0: never), and the account's UID."""

    user: str
    uid: str
    made: float
    expires: float

    @property
    def until(self) -> str:
        """When it expires, in UTC, or that it does not."""
        if not self.expires:
            return "never"
        return datetime.datetime.fromtimestamp(self.expires, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def serves(self, user: str, uid: str, now: float) -> bool:
        """Whether it is of this account and not of an earlier one of that name, and half of its time is left."""
        lasting = not self.expires or now < (self.made + self.expires) / 2
        return lasting and (self.user, self.uid) == (user, uid)


def text(cluster: t.Mapping[str, t.Any], name: str, token: str) -> str:
    """The kubeconfig of ``name`` for a cluster, given as a kubeconfig has it."""
    lines = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in sorted(cluster.items()))
    return (
        f"apiVersion: v1\nkind: Config\ncurrent-context: {name}\n"
        f"clusters:\n- name: cluster\n  cluster:\n{lines}"
        f"contexts:\n- name: {name}\n  context:\n    cluster: cluster\n    user: {name}\n"
        f"users:\n- name: {name}\n  user:\n    token: {token}\n"
    )


def token_in(content: str, cluster: t.Mapping[str, t.Any], name: str) -> str:
    """The token in what ``text`` made for this account and cluster; empty if it is anything else."""
    found = _TOKEN.search(content)
    return found[1] if found and content == text(cluster, name, found[1]) else ""


def parsed(token: str) -> Token | None:
    """What a token says; ``None`` if it is none of a ServiceAccount."""
    try:
        _head, claims, _signature = token.split(".")
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        kubernetes = found.get("kubernetes.io") or {}
        uid = (kubernetes.get("serviceaccount") or {}).get("uid") or found[
            "kubernetes.io/serviceaccount/service-account.uid"
        ]
        return Token(str(found["sub"]), str(uid), float(found.get("iat") or 0), float(found.get("exp") or 0))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None
