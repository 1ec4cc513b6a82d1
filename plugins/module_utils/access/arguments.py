# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_access``, and the file of the kubeconfig that it writes."""

from __future__ import annotations

import pathlib

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import (
    accounts,
    roles,
    run_access,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    files,
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context

# A file with a secret in it: its owner alone may read it, from the first byte on.


MODE = 0o600


class PlaceError(RuntimeError):
    """The file cannot be read, written or deleted; the text names it and the
    cause, never its content.
    """


class PrivateFile:
    """The file at a path, which need not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = pathlib.Path(path).expanduser().absolute()
        self.path = str(self._path)

    def read(self) -> str:
        """What is in it, empty if it does not exist, may be read by others, or is not text.

        Raises:
            PlaceError: it is there and cannot be read.
        """
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
        """Put this text there, at once.

        Raises:
            PlaceError: that is not possible.
        """
        try:
            files.write(self._path, text, MODE)
        except OSError as error:
            raise self._refused("written", error) from None

    def remove(self) -> None:
        """Delete it, if it exists.

        Raises:
            PlaceError: that is not possible.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused("deleted", error) from None

    def _refused(self, done: str, error: OSError) -> PlaceError:
        why = error.strerror or type(error).__name__
        return PlaceError(f"{self.path} cannot be {done}: {why}. Give another path as dest.")


SHORTEST = 600.0
"""Seconds; the API server makes no token for less."""


def _installed(ctx: run_context.Context, params: specs.Params) -> run_context.Result:
    given = dict(params)
    dest, lifetime = given.pop("dest"), given.get("token_lifetime")
    if lifetime is not None and lifetime < SHORTEST:
        raise option_values.BadOption(
            "token_lifetime", lifetime, "at least 10 minutes, as the API server demands"
        )
    if dest:
        given["dest"] = PrivateFile(dest)
    try:
        return run_access.install(ctx, specs.from_params(run_access.AccessOptions, given))
    except PlaceError as error:
        return run_context.Result({"findings": []}, failed=True, message=str(error))


SPEC = specs.ClusterModuleSpec(
    name="maintenance_access",
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "steps": {
            "type": "list",
            "elements": "str",
            "choices": list(roles.STEPS),
            "default": list(roles.MAINTAIN),
        },
        "service_account": {"type": "str", "default": "operator"},
        "service_account_namespace": {"type": "str", "default": "kubeops-node-maintenance"},
        "namespaces": {"type": "list", "elements": "str"},
        "descheduler_namespace": {"type": "str", "default": roles.KOORDINATOR},
        "lease_namespace": {"type": "str"},
        "fence": {"type": "bool", "default": False},
        "policies": {"type": "bool", "default": False},
        "taints": {"type": "list", "elements": "str"},
        "replicas": {"type": "int", "default": accounts.REPLICAS},
        "dest": {"type": "path"},
        "token": {
            "type": "str",
            "choices": ["request", "secret"],
            "default": "request",
            "no_log": False,
        },
        "token_lifetime": {"type": "raw", "default": "24h", "no_log": False},
    },
    durations=("token_lifetime",),
    lists=("namespaces", "taints"),
    engine=_installed,
)
