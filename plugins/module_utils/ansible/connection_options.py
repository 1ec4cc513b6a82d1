# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The connection options, named as in ``kubernetes.core``, and their environment variables.

The environment is read here and not by ``env_fallback``, because a connection option in the task
discards every connection variable of the environment. Otherwise each "cluster" of a fleet would
silently be the one in ``K8S_AUTH_HOST``.
"""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    masking,
    option_values,
)

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

# kubernetes.core names a variable after the option's alias, if there is one:
# K8S_AUTH_VERIFY_SSL for validate_certs.
VARIABLES: dict[str, str] = {
    name: f"K8S_AUTH_{option.get('aliases', [name])[0].upper()}"
    for name, option in CONNECTION.items()
    if name != "proxy_headers"
}
HEADER_VARIABLES: dict[str, str] = {
    name: f"K8S_AUTH_PROXY_HEADERS_{name.upper()}" for name in PROXY_HEADERS
}

# Keys of secrets in a kubeconfig given as a dictionary, which Ansible would show with the task.
SECRET_KEYS = frozenset(
    {
        "token",
        "password",
        "client-key-data",
        "client-secret",
        "id-token",
        "refresh-token",
        "access-token",
    }
)


def given(params: Params) -> dict[str, t.Any]:
    """The connection options that the task itself sets."""
    return {name: params[name] for name in CONNECTION if params.get(name) is not None}


def from_environment(environ: Environ) -> dict[str, t.Any]:
    """The connection options that ``K8S_AUTH_*`` sets; an empty variable counts as unset.

    Raises:
        BadOption: a variable that must be true or false is neither.
    """
    found: dict[str, t.Any] = {
        name: environ[key] for name, key in VARIABLES.items() if environ.get(key)
    }
    for name in ("validate_certs", "persist_config"):
        if name in found:
            try:
                found[name] = boolean(found[name])
            except TypeError:
                raise option_values.BadOption(
                    VARIABLES[name], found[name], "true or false"
                ) from None
    if "impersonate_groups" in found:
        found["impersonate_groups"] = [
            g.strip() for g in found["impersonate_groups"].split(",") if g.strip()
        ]
    for name in ("ca_cert", "client_cert", "client_key"):
        if name in found:
            found[name] = str(Path(os.path.expandvars(found[name])).expanduser())
    headers = {name: environ[key] for name, key in HEADER_VARIABLES.items() if environ.get(key)}
    if headers:
        found["proxy_headers"] = headers
    return found


def connection(params: Params, environ: Environ) -> dict[str, t.Any]:
    """The task's connection options or, if it has none, the environment's.

    ``KUBECONFIG`` names the default file, as for ``kubectl``: it applies if neither a file
    nor a host is given.

    Raises:
        BadOption: a variable of the environment has an unusable value.
    """
    options = given(params) or from_environment(environ)
    if environ.get("KUBECONFIG") and "kubeconfig" not in options and "host" not in options:
        options["kubeconfig"] = environ["KUBECONFIG"]
    if "impersonate_groups" in options:
        options["impersonate_groups"] = tuple(options["impersonate_groups"])
    return options


def secrets(params: Params, environ: Environ) -> set[str]:
    """Every string that no result, message or progress line may show.

    This includes the nonce of a run, because anyone who has it may act for the run.
    """
    nonce = str(params.get("run") or "").partition("/")[2]
    return credentials(params, environ) | ({nonce} if nonce else set())


def credentials(params: Params, environ: Environ) -> set[str]:
    """The secrets by which the API server knows the caller."""
    found = {params.get("api_key"), params.get("password")}
    found |= {environ.get(VARIABLES["api_key"]), environ.get(VARIABLES["password"])}
    headers = params.get("proxy_headers") or {}
    for name in ("proxy_basic_auth", "basic_auth"):
        found |= {headers.get(name), environ.get(HEADER_VARIABLES[name])}
    urls = (
        params.get("host"),
        params.get("proxy"),
        environ.get(VARIABLES["host"]),
        environ.get(VARIABLES["proxy"]),
    )
    found |= {_userinfo(str(url)) for url in urls if url} | set(_inside(params.get("kubeconfig")))
    return {text for text in found if text}


def shown(kubeconfig: t.Any) -> t.Any:
    """A kubeconfig given as a dictionary without the environment of credential plugins.

    Nobody knows which of these values are secret, and many are words that results need,
    such as ``default``.
    """
    if isinstance(kubeconfig, t.Mapping):
        found = {key: shown(inner) for key, inner in kubeconfig.items()}
        if "env" in found:
            found["env"] = masking.WHOLE
        return found
    if isinstance(kubeconfig, (list, tuple)):
        return [shown(inner) for inner in kubeconfig]
    return kubeconfig


def _userinfo(url: str) -> str:
    """User and password in a URL, empty without a password."""
    found = url.rpartition("://")[2].partition("/")[0].rpartition("@")[0]
    return found if ":" in found else ""


def _inside(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, t.Mapping):
        for key, inner in value.items():
            if key in SECRET_KEYS and isinstance(inner, str):
                yield inner
            elif key in ("proxy-url", "server"):
                yield _userinfo(str(inner))
            else:
                yield from _inside(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _inside(inner)
