# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Credentials: the only file that imports the `kubernetes` package.

Of that package only the configuration loaders are used (tokens, exec plugins, OIDC, in-cluster): they
have kept their shape from 24.2 to 37, while ApiClient has not. No text of their errors is passed on:
it can quote credentials and the output of plugins. What wins over what is as in kubernetes.core.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kubeconfig
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import (
    Body,
    Cluster,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.endpoint import (
    Endpoint,
    address,
    plain,
    tls_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    ConfigError,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.transport import Transport
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.tunnel import upgrade_headers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request

try:
    import urllib3
    from kubernetes.client import Configuration
    from kubernetes.config import (
        ConfigException,
        kube_config,
        load_incluster_config,
        load_kube_config,
        load_kube_config_from_dict,
    )
    from urllib3._collections import HTTPHeaderDict  # public only since urllib3 2
except ImportError:
    LIBRARY_ERROR: str | None = traceback.format_exc()
else:
    LIBRARY_ERROR = None

_EXPLICIT = (
    "Give `kubeconfig`, or `host` with `api_key`, or with `client_cert` and `client_key` "
    "(or the same as K8S_AUTH_* in the environment)."
)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The cluster options of every module, named and meant as in kubernetes.core; empty is unset.

    `kubeconfig` is a path, several as in KUBECONFIG, or the content. `validate_certs` None leaves it
    to the kubeconfig. `proxy_headers` has `basic_auth`, `proxy_basic_auth` (user:password) and
    `user_agent`.
    """

    kubeconfig: str | Mapping[str, Any] | None = None
    context: str | None = None
    host: str | None = None
    api_key: str | None = None
    username: str | None = None
    password: str | None = None
    validate_certs: bool | None = None
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    no_proxy: str | None = None
    proxy_headers: Mapping[str, str] | None = None
    persist_config: bool | None = None
    impersonate_user: str | None = None
    impersonate_groups: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without its secrets: an instance may end in a traceback."""
        return f"ConnectionOptions(host={self.host!r}, context={self.context!r})"


def connect(
    options: ConnectionOptions,
    *,
    user_agent: str,
    guard: Callable[[], None] | None = None,
    answered: bool = True,
) -> Cluster:
    """Reads the credentials; nothing is sent yet.

    Args:
        options: where to and as whom.
        user_agent: goes out with every request, into the audit log.
        guard: called before every request; what it raises ends that request unsent.
        answered: the server is known to be there, so an unreachable one deserves patience at once.

    Raises:
        ConfigError: what is wrong, where, and the remedy.
    """
    if LIBRARY_ERROR is not None:
        raise ConfigError(
            f"the Python package `kubernetes` cannot be imported by {sys.executable}",
            remedy="Install kubernetes>=24.2.0 there, or set ansible_python_interpreter.",
        )
    return Cluster(Credentials(options, user_agent), guard, answered=answered)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One reading of the credentials and the pool made for them."""

    configuration: Any
    transport: Transport
    basic: str
    source: str


class Credentials:
    """Sends with credentials that are current: expiring tokens are renewed by the loaders' own hook,
    refused ones by reading everything again (`renew`).
    """

    def __init__(self, options: ConnectionOptions, user_agent: str) -> None:
        self._options = options
        self._user_agent = user_agent
        self._lock = threading.Lock()
        self.generation = 0
        self._loaded = self._load()

    @property
    def source(self) -> str:
        return self._loaded.source

    def open(
        self, request: Request, *, read_timeout: float, connect_timeout: float, fence: Callable[[], None] | None = None
    ) -> Body:
        loaded = self._loaded
        return loaded.transport.open(
            request,
            self._headers(loaded, request),
            read_timeout=read_timeout,
            connect_timeout=connect_timeout,
            fence=fence,
        )

    def renew(self, seen: int) -> None:
        with self._lock:
            if self.generation != seen:
                return
            old, self._loaded = self._loaded, self._load()
            self.generation += 1
        old.transport.close()

    def close(self) -> None:
        self._loaded.transport.close()

    def _headers(self, loaded: _Loaded, request: Request) -> Mapping[str, str]:
        headers = HTTPHeaderDict()
        headers["User-Agent"] = self._user_agent
        headers["Accept"] = "application/json"
        if request.upgrade:
            headers.update(upgrade_headers())
        if request.verb == "list":
            headers["Accept-Encoding"] = "gzip"  # a tenth of the bytes for the same time
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        token = self._token(loaded) or loaded.basic
        if token:
            if not token.isprintable() or not token.isascii():
                raise ConfigError(
                    f"the token of {loaded.source} has characters that no token has",
                    remedy="Look for line breaks and quotes in it.",
                )
            headers["Authorization"] = token
        if self._options.impersonate_user:
            headers["Impersonate-User"] = self._options.impersonate_user
        for group in self._options.impersonate_groups:
            headers.add("Impersonate-Group", group)
        return headers  # type: ignore[no-any-return]

    def _token(self, loaded: _Loaded) -> str:
        """The Authorization header as of now. Clients before 37 keep it under another key."""
        configuration = loaded.configuration
        with self._lock, _captured():
            hook = configuration.refresh_api_key_hook
            if hook is not None:
                try:
                    hook(configuration)
                except (ConfigException, OSError, ValueError, KeyError):
                    raise ConfigError(
                        f"the token of {loaded.source} cannot be renewed",
                        remedy="Look at the token file or plugin named there.",
                    ) from None
            for key in ("BearerToken", "authorization"):
                if configuration.api_key.get(key):
                    prefix = configuration.api_key_prefix.get(key)
                    token = str(configuration.api_key[key]).strip()
                    return f"{prefix} {token}" if prefix else token
        return ""

    def _load(self) -> _Loaded:
        before = set(_temp_files().values())
        try:
            configuration, source = _configuration(self._options)
            endpoint = _endpoint(configuration, source)
        finally:
            _remove_temp_files(before)
        basic = ""
        if self._options.username and self._options.password:
            basic = str(configuration.get_basic_auth_token() or "")
        return _Loaded(configuration, Transport(endpoint), basic, source)


def _configuration(options: ConnectionOptions) -> tuple[Any, str]:
    """A loaded Configuration and where it is from.

    A host with a complete credential stands alone; else the given kubeconfig or context; else the pod's
    service account; else the default kubeconfig. Single options then override what was loaded.
    """
    configuration = Configuration()
    whole = bool(
        options.api_key
        or (options.username and options.password)
        or (options.client_cert and options.client_key and not options.kubeconfig)
    )
    if options.host and whole:
        source = f"the credentials given for {plain(options.host)}"
    elif options.kubeconfig or options.context:
        source = _from_kubeconfig(configuration, options)
    else:
        try:
            load_incluster_config(client_configuration=configuration)
            source = "the pod's service account"
        except (ConfigException, OSError):
            if not kubeconfig.exists(kubeconfig.default_paths()):
                raise ConfigError(
                    f"no credentials: {kubeconfig.default_paths()} does not exist, "
                    "and this is no pod with a service account",
                    remedy=_EXPLICIT,
                ) from None
            source = _from_kubeconfig(configuration, options)
    _override(configuration, options)
    return configuration, source


def _from_kubeconfig(configuration: Any, options: ConnectionOptions) -> str:
    given = options.kubeconfig or kubeconfig.default_paths()
    chosen = kubeconfig.choose(given, options.context or "")
    address(str(chosen.cluster["server"]))
    source = f"{chosen.where}, context {chosen.context!r}"
    with _captured() as told:
        try:
            if options.persist_config and isinstance(given, str):
                load_kube_config(
                    config_file=given,
                    context=chosen.context,
                    client_configuration=configuration,
                    persist_config=True,
                )
            else:
                load_kube_config_from_dict(
                    dict(chosen.config),
                    context=chosen.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{source} is not usable: the Python client refuses it ({type(error).__name__})",
                remedy="Try `kubectl` with it.",
            ) from None
    plugin = chosen.user.get("exec")
    credential = configuration.api_key or configuration.cert_file
    if isinstance(plugin, Mapping) and not credential and not options.api_key:
        raise _plugin_error(plugin, chosen, " ".join(told))
    if chosen.cluster.get("tls-server-name"):
        configuration.tls_server_name = chosen.cluster["tls-server-name"]
    if chosen.cluster.get("proxy-url"):
        configuration.proxy = chosen.cluster["proxy-url"]
    return source


def _plugin_error(plugin: Mapping[str, Any], chosen: kubeconfig.Chosen, told: str) -> ConfigError:
    """Why an exec plugin gave nothing; its output stays unsaid, it may hold a credential."""
    command = str(plugin.get("command") or "")
    remedy = "Run it by hand."
    if which(command) is None:
        why = "it is not installed here, or not in PATH"
        hint = " ".join(str(plugin.get("installHint") or "").split())
        remedy = hint[:300] or "Install it, or use another user of this cluster."
    elif "process returned" in told:
        number = told.split("process returned", 1)[1].split(".")[0].strip()
        why = f"it ended with exit code {number}" if number.lstrip("-").isdigit() else "it failed"
    else:
        why = f"its output is no ExecCredential of {plugin.get('apiVersion')!r}"
    return ConfigError(
        f"the credential plugin {command!r} of user {chosen.user_name!r} in {chosen.where} gave no credential: {why}",
        remedy=remedy,
    )


def _override(configuration: Any, options: ConnectionOptions) -> None:
    if options.host:
        configuration.host = address(options.host)
    if options.api_key:
        # Both names, and no hook: a loader's token would come back and win.
        bearer = f"Bearer {options.api_key.strip()}"
        configuration.api_key = {"authorization": bearer, "BearerToken": bearer}
        configuration.refresh_api_key_hook = None
    configuration.username = options.username or None
    configuration.password = options.password or None
    for name, value in (
        ("ssl_ca_cert", options.ca_cert),
        ("cert_file", options.client_cert),
        ("key_file", options.client_key),
        ("proxy", options.proxy),
        ("no_proxy", options.no_proxy),
    ):
        if value:
            setattr(configuration, name, value)
    if options.validate_certs is not None:
        configuration.verify_ssl = options.validate_certs
    if options.proxy_headers:
        configuration.proxy_headers = urllib3.util.make_headers(**options.proxy_headers)


def _endpoint(configuration: Any, source: str) -> Endpoint:
    base = address(str(configuration.host))
    context = None
    if base.startswith("https://"):
        context = tls_context(
            bool(configuration.verify_ssl),
            ca_cert=configuration.ssl_ca_cert or "",
            client_cert=configuration.cert_file or "",
            client_key=configuration.key_file or "",
            source=source,
        )
    return Endpoint(
        base=base,
        context=context,
        server_name=str(getattr(configuration, "tls_server_name", None) or ""),
        assert_hostname=configuration.assert_hostname,
        proxy=str(configuration.proxy or ""),
        no_proxy=str(configuration.no_proxy or ""),
        proxy_headers=configuration.proxy_headers,
    )


@contextmanager
def _captured() -> Iterator[list[str]]:
    """Keeps what the kubeconfig loader logs to the root logger: it may quote a plugin's output.

    The loader reports a failed plugin nowhere else; without a handler Python would print it.
    """
    told: list[str] = []

    def mine(record: logging.LogRecord) -> bool:
        if Path(record.pathname).name != "kube_config.py":
            return True
        told.append(record.getMessage())
        return False

    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(mine)
    try:
        yield told
    finally:
        root.removeFilter(mine)
        root.removeHandler(handler)


def _temp_files() -> dict[str, str]:
    """Inline certificates and keys, which the loader writes to files and removes at exit only: a
    forked worker of Ansible never gets there, and the keys would stay.
    """
    return getattr(kube_config, "_temp_files", {})


def _remove_temp_files(before: set[str]) -> None:
    files = _temp_files()
    for content, path in list(files.items()):
        if path not in before:
            del files[content]
            Path(path).unlink(missing_ok=True)
