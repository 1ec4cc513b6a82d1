# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Names that tell nothing: the same name always becomes the same hash under the same key.

A name is hashed part by part between hyphens and dots, because names are made of names: the pod
``web-0``, the claim ``data-web-0``, the label with a ReplicaSet's hash. What belonged together
still does. A number at the end stays. Keys of labels, resources, and values that Kubernetes itself
defines stay as they are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import typing as t

Json = t.Any

KEPT = frozenset(
    {
        *("default", "kube-node-lease", "kube-public", "kube-system", "default-scheduler"),
        *("system-cluster-critical", "system-node-critical", "kubernetes.io/no-provisioner"),
    }
)
"""Names that mean the same in every cluster."""
KEPT_KEYS = frozenset(
    {"kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os"}
)
"""Labels whose values mean the same in every cluster."""
NAMES = frozenset(
    {
        *("name", "namespace", "uid", "nodeName", "claimName", "volumeName", "storageClassName"),
        *("priorityClassName", "runtimeClassName", "schedulerName", "serviceName"),
        *("driver", "provisioner", "nodeID", "handler"),
    }
)
"""Fields that are names."""
LABELS = frozenset({"labels", "matchLabels", "nodeSelector"})
"""Fields that map keys of labels to values."""
LONGEST = 63
_LENGTH = 6
_PARTS = re.compile(r"([.-])")
_NUMBER = re.compile(r"[0-9]{1,4}")


class SameHashError(ValueError):
    """Two names have the same hash under this key; the text says what to do."""


class Hasher:
    """Hashes with one key, and remembers what it has hashed, so that no two names become one."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._known: dict[str, str] = {}
        self._taken: dict[str, str] = {}

    def name(self, text: str) -> str:
        """The hash of a name or of a label's value; one that is too long for a label is
        hashed in one piece.

        Raises:
            SameHashError: another name has this hash.
        """
        if text in KEPT or not text or _NUMBER.fullmatch(text):
            return text
        if text not in self._known:
            made = self._made(text)
            if self._taken.setdefault(made, text) != text:
                raise SameHashError(
                    "Two names have the same hash under this key. Choose another key."
                )
            self._known[text] = made
        return self._known[text]

    def hashed(self, found: Json, field: str = "") -> Json:
        """A value with each name in it hashed, as its field says; raises as ``name`` does."""
        if isinstance(found, t.Mapping):
            if field in LABELS or (
                field == "selector" and all(isinstance(value, str) for value in found.values())
            ):
                return {key: self._value(key, value) for key, value in found.items()}
            if "key" in found and ("values" in found or "value" in found):
                return self._expression(found)
            if field == "annotations":
                return dict(found)
            return {key: self.hashed(value, key) for key, value in found.items()}
        if isinstance(found, (list, tuple)):
            if field == "namespaces":
                field = "name"
            return [self.hashed(one, field) for one in found]
        return self.name(found) if field in NAMES and isinstance(found, str) else found

    def _expression(self, found: t.Mapping[str, Json]) -> dict[str, Json]:
        """A requirement of a selector, a taint or a toleration."""
        made = dict(found)
        if isinstance(found.get("values"), (list, tuple)):
            made["values"] = [self._value(found["key"], value) for value in found["values"]]
        if isinstance(found.get("value"), str):
            made["value"] = self._value(found["key"], found["value"])
        return made

    def _value(self, key: str, value: str) -> str:
        return value if key in KEPT_KEYS or value in ("true", "false") else self.name(str(value))

    def _made(self, text: str) -> str:
        parts = _PARTS.split(text)
        last = len(parts) - 1
        made = ""
        for index, part in enumerate(parts):
            ordinal = index and index == last and _NUMBER.fullmatch(part)
            if part in (".", "-", "") or ordinal:
                made += part
            else:
                made += self._word(part, _LENGTH)
        return made if len(made) <= LONGEST else self._word(text, 4 * _LENGTH)

    def _word(self, text: str, length: int) -> str:
        """Letters and digits, a letter first: what every kind of name may consist of."""
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        letter = "abcdefghijklmnopqrstuvwxyz"[digest[-1] % 26]
        return letter + base64.b32encode(digest).decode().lower().rstrip("=")[: length - 1]
