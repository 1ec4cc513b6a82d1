# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The connection's options, named as in ``kubernetes.core``, and where their values come from.

The environment is read here and not by ``env_fallback``: a single connection option in the task
discards every connection variable of the environment, or each "cluster" of a fleet would silently
become the one in ``K8S_AUTH_HOST``.
"""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors

Params = t.Mapping[str, t.Any]
Environ = t.Mapping[str, str]

PROXY_HEADERS: dict[str, t.Any] = {
    "proxy_basic_auth": {"type": "str", "no_log": True},
    "basic_auth": {"type": "str", "no_log": True},
    "user_agent": {"type": "str"},
}

CONNECTION: dict[str, t.Any] = {
    "kubeconfig": {"type": "raw"},
    "context": {"type": "str"},
    "host": {"type": "str"},
    "api_key": {"type": "str", "no_log": True},
    "username": {"type": "str"},
    "password": {"type": "str", "no_log": True},
    "validate_certs": {"type": "bool", "aliases": ["verify_ssl"]},
    "ca_cert": {"type": "path", "aliases": ["ssl_ca_cert"]},
    "client_cert": {"type": "path", "aliases": ["cert_file"]},
    "client_key": {"type": "path", "aliases": ["key_file"], "no_log": False},
    "proxy": {"type": "str"},
    "no_proxy": {"type": "str"},
    "proxy_headers": {"type": "dict", "options": PROXY_HEADERS},
    "persist_config": {"type": "bool"},
    "impersonate_user": {"type": "str"},
    "impersonate_groups": {"type": "list", "elements": "str"},
}

VARIABLES: dict[str, str] = {
    "kubeconfig": "K8S_AUTH_KUBECONFIG",
    "context": "K8S_AUTH_CONTEXT",
    "host": "K8S_AUTH_HOST",
    "api_key": "K8S_AUTH_API_KEY",
    "username": "K8S_AUTH_USERNAME",
    "password": "K8S_AUTH_PASSWORD",
    "validate_certs": "K8S_AUTH_VERIFY_SSL",
    "ca_cert": "K8S_AUTH_SSL_CA_CERT",
    "client_cert": "K8S_AUTH_CERT_FILE",
    "client_key": "K8S_AUTH_KEY_FILE",
    "proxy": "K8S_AUTH_PROXY",
    "no_proxy": "K8S_AUTH_NO_PROXY",
    "persist_config": "K8S_AUTH_PERSIST_CONFIG",
    "impersonate_user": "K8S_AUTH_IMPERSONATE_USER",
    "impersonate_groups": "K8S_AUTH_IMPERSONATE_GROUPS",
}

HEADER_VARIABLES: dict[str, str] = {
    "proxy_basic_auth": "K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH",
    "basic_auth": "K8S_AUTH_PROXY_HEADERS_BASIC_AUTH",
    "user_agent": "K8S_AUTH_PROXY_HEADERS_USER_AGENT",
}

# Without these a secret in a kubeconfig given as a dictionary would be shown with the task.
SECRET_KEYS = frozenset({"token", "password", "client-key-data", "id-token", "refresh-token", "access-token"})


def given(params: Params) -> dict[str, t.Any]:
    """The connection options that the task itself sets."""
    return {name: params[name] for name in CONNECTION if params.get(name) is not None}


def from_environment(environ: Environ) -> dict[str, t.Any]:
    """The connection options that ``K8S_AUTH_*`` sets; an empty variable is an unset one.

    Raises:
        BadOption: a variable that must be a truth value is none.
    """
    found: dict[str, t.Any] = {name: environ[key] for name, key in VARIABLES.items() if environ.get(key)}
    for name in ("validate_certs", "persist_config"):
        if name in found:
            try:
                found[name] = boolean(found[name])
            except TypeError:
                raise errors.BadOption(VARIABLES[name], found[name], "true or false") from None
    if "impersonate_groups" in found:
        found["impersonate_groups"] = [g.strip() for g in found["impersonate_groups"].split(",") if g.strip()]
    for name in ("ca_cert", "client_cert", "client_key"):
        if name in found:
            found[name] = str(Path(os.path.expandvars(found[name])).expanduser())
    headers = {name: environ[key] for name, key in HEADER_VARIABLES.items() if environ.get(key)}
    if headers:
        found["proxy_headers"] = headers
    return found


def connection(params: Params, environ: Environ) -> dict[str, t.Any]:
    """Where to connect to: the task's options, or, where it has none, the environment's.

    ``KUBECONFIG`` is no option but the place of the default file, as for ``kubectl``: it counts
    wherever neither a file nor a host is named.

    Raises:
        BadOption: a variable of the environment cannot be understood.
    """
    options = given(params) or from_environment(environ)
    if environ.get("KUBECONFIG") and "kubeconfig" not in options and "host" not in options:
        options["kubeconfig"] = environ["KUBECONFIG"]
    if "impersonate_groups" in options:
        options["impersonate_groups"] = tuple(options["impersonate_groups"])
    return options


def secrets(params: Params, environ: Environ) -> set[str]:
    """Every text that no result, message or line of progress may show.

    The nonce of a run is among them: whoever has it may act for the run.
    """
    found = {params.get("api_key"), params.get("password")}
    found |= {environ.get(VARIABLES["api_key"]), environ.get(VARIABLES["password"])}
    headers = params.get("proxy_headers") or {}
    for name in ("proxy_basic_auth", "basic_auth"):
        found |= {headers.get(name), environ.get(HEADER_VARIABLES[name])}
    found |= set(_inside(params.get("kubeconfig")))
    found.add(str(params.get("run") or "").partition("/")[2])
    return {text for text in found if text}


def _inside(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, t.Mapping):
        for key, inner in value.items():
            if key in SECRET_KEYS and isinstance(inner, str):
                yield inner
            else:
                yield from _inside(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _inside(inner)
