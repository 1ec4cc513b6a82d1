# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Credentials: the only file that imports the `kubernetes` package.

Of that package only the configuration loaders are used (tokens, OIDC, in-cluster): they
have kept their shape from 24.2 to 37, while ApiClient has not; credential plugins are run by
exec_plugin.py. No text of their errors is passed on: it can quote credentials. What wins over what is as in
kubernetes.core.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import (
    client,
    clocks,
    credentials,
    endpoints,
    errors,
    exec_plugin,
    kubeconfig,
    transports,
)

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
except ImportError:
    LIBRARY_ERROR: str | None = traceback.format_exc()
else:
    LIBRARY_ERROR = None

_RENEWED_AFTER = 240.0
"""Seconds after which tokens are read again that say nothing of their end; the loaders renew them 300 s ahead."""
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
    clock: clocks.Clock | None = None,
) -> client.Cluster:
    """Reads the credentials, which takes at most `credentials.ABANDONED` seconds; nothing is sent yet.

    Args:
        options: where to and as whom.
        user_agent: goes out with every request, into the audit log.
        guard: called before every request; what it raises ends that request unsent.
        answered: the server is known to be there, so an unreachable one deserves patience at once.
        clock: whose threads and time it takes.

    Raises:
        ConfigError: what is wrong, where, and the remedy.
    """
    if LIBRARY_ERROR is not None:
        raise errors.ConfigError(
            f"the Python package `kubernetes` cannot be imported by {sys.executable}",
            remedy="Install kubernetes>=24.2.0 there, or set ansible_python_interpreter.",
        )
    clock = clock or clocks.Clock()
    impersonate = [("Impersonate-User", options.impersonate_user)] if options.impersonate_user else []
    impersonate += [("Impersonate-Group", group) for group in options.impersonate_groups]
    login = credentials.Credentials(
        _Loader(options, clock), user_agent=user_agent, impersonate=tuple(impersonate), clock=clock
    )
    return client.Cluster(login, guard, answered=answered, clock=clock)


class _Loader:
    """Reads the credentials; from the second time on of the same context and for the same server.

    Somebody may choose another context, or another cluster under the same name, while a run is under way.
    """

    def __init__(self, options: ConnectionOptions, clock: clocks.Clock) -> None:
        self._options = options
        self._clock = clock
        self._base = ""

    def __call__(self, stop: threading.Event) -> credentials.Loaded:
        """Raises ConfigError: what is wrong, where, and the remedy."""
        before = set(_temp_files().values())
        try:
            found = _Found(self._options, lambda plugin: plugin.run(self._clock, stop))
            endpoint = _endpoint(found.configuration, found.source)
        finally:
            _remove_temp_files(before)
        if self._base and endpoint.base != self._base:
            raise errors.ConfigError(
                f"{found.source} leads to {endpoints.plain(endpoint.base)} by now, "
                f"not to {endpoints.plain(self._base)}",
                remedy="Start again with the kubeconfig of the right cluster.",
            )
        self._base = endpoint.base
        if found.context:
            self._options = replace(self._options, context=found.context)
        authorization = _authorization(found.configuration)
        if not authorization and self._options.username and self._options.password:
            authorization = str(found.configuration.get_basic_auth_token() or "")
        expires = found.expires
        if expires is not None and expires <= self._clock.epoch():
            expires = None  # two clocks that differ; the server will tell when it has really expired
        lasts = _RENEWED_AFTER if found.configuration.refresh_api_key_hook is not None and expires is None else None
        return credentials.Loaded(
            transports.Transport(endpoint), authorization, found.source, found.renewer, expires, lasts
        )


def _authorization(configuration: Any) -> str:
    """The header as the loaders made it. Clients before 37 keep it under another key."""
    for key in ("BearerToken", "authorization"):
        if configuration.api_key.get(key):
            prefix = configuration.api_key_prefix.get(key)
            token = str(configuration.api_key[key]).strip()
            return f"{prefix} {token}" if prefix else token
    return ""


class _Found:
    """A loaded Configuration, and what there is to say of it.

    A host with a complete credential stands alone; else the given kubeconfig or context; else the pod's
    service account; else the default kubeconfig. Single options then override what was loaded.

    Attributes:
        configuration: of the client's own class.
        source: where it is from.
        renewer: who would make new credentials.
        context: of the kubeconfig; empty where it is none.
        expires: in seconds of the wall clock, where a credential plugin said so.
    """

    def __init__(self, options: ConnectionOptions, run: Callable[[exec_plugin.Plugin], exec_plugin.Credential]) -> None:
        self.configuration: Any = Configuration()
        self.context = ""
        self.renewer = ""
        self.expires: float | None = None
        self._options = options
        self._run = run
        whole = bool(
            options.api_key
            or (options.username and options.password)
            or (options.client_cert and options.client_key and not options.kubeconfig)
        )
        if options.host and whole:
            self.source = f"the credentials given for {endpoints.plain(options.host)}"
        elif options.kubeconfig or options.context:
            self.source = self._from_kubeconfig()
        else:
            try:
                load_incluster_config(client_configuration=self.configuration)
                self.source = "the pod's service account"
            except (ConfigException, OSError):
                if not kubeconfig.exists(kubeconfig.default_paths()):
                    raise errors.ConfigError(
                        f"no credentials: {kubeconfig.default_paths()} does not exist, "
                        "and this is no pod with a service account",
                        remedy=_EXPLICIT,
                    ) from None
                self.source = self._from_kubeconfig()
        self.renewer = self.renewer or self.source
        _override(self.configuration, options)

    def _from_kubeconfig(self) -> str:
        given = self._options.kubeconfig or kubeconfig.default_paths()
        chosen = kubeconfig.choose(given, self._options.context or "")
        endpoints.address(str(chosen.cluster["server"]))
        self.context = chosen.context
        source = f"{chosen.where}, context {chosen.context!r}"
        config = self._with_plugin(chosen)
        try:
            if self._options.persist_config and isinstance(given, str) and config is chosen.config:
                load_kube_config(
                    config_file=given,
                    context=chosen.context,
                    client_configuration=self.configuration,
                    persist_config=True,
                )
            else:
                load_kube_config_from_dict(
                    dict(config),
                    context=chosen.context,
                    client_configuration=self.configuration,
                    persist_config=False,
                )
        except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.ConfigError(
                f"{source} is not usable: the Python client refuses it ({type(error).__name__})",
                remedy="Try `kubectl` with it.",
            ) from None
        if chosen.cluster.get("tls-server-name"):
            self.configuration.tls_server_name = chosen.cluster["tls-server-name"]
        if chosen.cluster.get("proxy-url"):
            self.configuration.proxy = chosen.cluster["proxy-url"]
        return source

    def _with_plugin(self, chosen: kubeconfig.Chosen) -> Mapping[str, Any]:
        """The kubeconfig with what the user's credential plugin gives in the place of the plugin."""
        spec = chosen.user.get("exec")
        if not isinstance(spec, Mapping):
            return chosen.config
        user = {name: value for name, value in chosen.user.items() if name != "exec"}
        if not self._options.api_key and not any(user.get(name) for name in ("token", "tokenFile", "auth-provider")):
            plugin = exec_plugin.Plugin(spec, f"user {chosen.user_name!r} in {chosen.where}", chosen.cluster)
            credential = self._run(plugin)
            user |= credential.as_user()
            self.renewer, self.expires = plugin.name, credential.expires
        return {**chosen.config, "users": [{"name": chosen.user_name, "user": user}]}


def _override(configuration: Any, options: ConnectionOptions) -> None:
    if options.host:
        configuration.host = endpoints.address(options.host)
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


def _endpoint(configuration: Any, source: str) -> endpoints.Endpoint:
    base = endpoints.address(str(configuration.host))
    context = None
    if base.startswith("https://"):
        context = endpoints.tls_context(
            bool(configuration.verify_ssl),
            ca_cert=configuration.ssl_ca_cert or "",
            client_cert=configuration.cert_file or "",
            client_key=configuration.key_file or "",
            source=source,
        )
    return endpoints.Endpoint(
        base=base,
        context=context,
        server_name=str(getattr(configuration, "tls_server_name", None) or ""),
        assert_hostname=configuration.assert_hostname,
        proxy=str(configuration.proxy or ""),
        no_proxy=str(configuration.no_proxy or ""),
        proxy_headers=configuration.proxy_headers,
    )


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
