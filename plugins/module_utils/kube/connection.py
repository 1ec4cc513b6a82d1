# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Where the credentials come from: the only file that imports the `kubernetes` package.

Only its configuration loaders are used (tokens, OIDC, in-cluster): their interface is the same from
24.2 to 37, that of ApiClient is not. Credential plugins are run by exec_plugin.py. The text of the
loaders' errors is never passed on, because it can quote credentials. The precedence of options is
that of kubernetes.core.
"""

from __future__ import annotations

import base64
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    clocks,
    credentials,
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

_RENEWED_AFTER_SECONDS = 240.0
"""Seconds after which a token without a known expiry is read again;
the loaders renew tokens 300 s ahead.
"""
_POD = "the pod's service account"
IN_CLUSTER = "in-cluster"
"""Stands for the context where the credentials are a pod's: its cluster has no other name there."""
_EXPLICIT = (
    "Give `kubeconfig`, or `host` with `api_key`, or with `client_cert` and `client_key` "
    "(or the same as K8S_AUTH_* in the environment)."
)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The cluster options of every module, as in kubernetes.core; empty is unset.

    `kubeconfig` is a path, several paths as in KUBECONFIG, or the content. `validate_certs` None
    leaves it to the kubeconfig. `proxy_headers` has `basic_auth`, `proxy_basic_auth`
    (user:password) and `user_agent`.
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
        """Without secrets: an instance may end up in a traceback."""
        return f"ConnectionOptions(host={self.host!r}, context={self.context!r})"


def connect(
    options: ConnectionOptions,
    *,
    user_agent: str,
    guard: Callable[[], None] | None = None,
    answered: bool = True,
) -> client.Cluster:
    """Reads the credentials, for at most `credentials.ABANDONED_AFTER_SECONDS`;
    nothing is sent yet. Raises ConfigError.

    `user_agent` is sent with every request, for the audit log. `guard` is called before every
    request; if it raises, nothing is sent. `answered`: the server is known to be there, so requests
    are retried from the start.
    """
    if LIBRARY_ERROR is not None:
        raise errors.ConfigError(
            f"the Python package `kubernetes` cannot be imported by {sys.executable}",
            remedy="Install kubernetes>=24.2.0 there, or set ansible_python_interpreter.",
        )
    clock = clocks.Clock()
    impersonate = (
        [("Impersonate-User", options.impersonate_user)] if options.impersonate_user else []
    )
    impersonate += [("Impersonate-Group", group) for group in options.impersonate_groups]
    login = credentials.Credentials(
        _Loader(options, clock), user_agent=user_agent, impersonate=tuple(impersonate), clock=clock
    )
    return client.Cluster(login, guard, answered=answered, clock=clock)


class _Loader:
    """Reads the credentials; after the first time only of the same context and for the same server.

    Somebody may select another context, or another cluster under the same name, during a run.
    """

    def __init__(self, options: ConnectionOptions, clock: clocks.Clock) -> None:
        self._options = options
        self._clock = clock
        self._base = ""

    def __call__(self, stop: threading.Event) -> credentials.Loaded:
        """Raises ConfigError: what is wrong, where, and the remedy."""
        options = self._options
        before = set(_temp_files().values())
        try:
            loaded = _LoadedConfiguration(options, lambda plugin: plugin.run(self._clock, stop))
            endpoint = _endpoint(loaded.configuration, options, loaded.source)
            entry = _entry(endpoint, str(options.ca_cert or loaded.configuration.ssl_ca_cert or ""))
        finally:
            _remove_temp_files(before)
        if self._base and endpoint.base != self._base:
            raise errors.ConfigError(
                (
                    f"{loaded.source} now leads to {transports.plain(endpoint.base)}, not to "
                    f"{transports.plain(self._base)}"
                ),
                remedy="Start again with the kubeconfig of the right cluster.",
            )
        self._base = endpoint.base
        if loaded.context:
            self._options = replace(options, context=loaded.context)
        expires, lasts = loaded.expires, None
        if expires is not None and expires <= self._clock.epoch():
            # the two clocks differ; the server refuses the credentials when
            # they have really expired
            expires = None
        if (
            expires is None
            and not options.api_key
            and loaded.configuration.refresh_api_key_hook is not None
        ):
            lasts = _RENEWED_AFTER_SECONDS
        header = _authorization(loaded.configuration, options)
        transport = transports.Transport(endpoint)
        context = loaded.context or (IN_CLUSTER if loaded.source == _POD else "")
        return credentials.Loaded(
            transport,
            authorization=header,
            source=loaded.source,
            renewer=loaded.renewer,
            expires=expires,
            lasts=lasts,
            entry=entry,
            context=context,
        )


def _authorization(configuration: Any, options: ConnectionOptions) -> str:
    """The header: of `api_key`, else as the loaders made it, else of user name and password."""
    if options.api_key:
        return f"Bearer {options.api_key.strip()}"
    for key in ("BearerToken", "authorization"):  # clients before 37 use the latter
        if configuration.api_key.get(key):
            prefix = configuration.api_key_prefix.get(key)
            token = str(configuration.api_key[key]).strip()
            return f"{prefix} {token}" if prefix else token
    if options.username and options.password:
        return str(
            urllib3.util.make_headers(basic_auth=f"{options.username}:{options.password}")[
                "authorization"
            ]
        )
    return ""


class _LoadedConfiguration:
    """The client's Configuration as it was loaded, without what single options override.

    A host with a complete credential is enough; else the given kubeconfig or context is loaded,
    else the pod's service account, else the default kubeconfig. `source` says where it comes from
    and `renewer` who would make new credentials; `expires` is in seconds of the wall clock, if a
    credential plugin said so.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        run: Callable[[exec_plugin.Plugin], exec_plugin.Credential],
    ) -> None:
        self.configuration: Any = Configuration()
        self.context = ""
        self.renewer = ""
        self.expires: float | None = None
        self._options = options
        self._run = run
        whole = (
            options.api_key
            or (options.username and options.password)
            or (options.client_cert and options.client_key and not options.kubeconfig)
        )
        if options.host and whole:
            self.source = f"the credentials given for {transports.plain(options.host)}"
        elif options.kubeconfig or options.context:
            self.source = self._from_kubeconfig()
        else:
            try:
                load_incluster_config(client_configuration=self.configuration)
                self.source = _POD
            except (ConfigException, OSError):
                paths = kubeconfig.default_paths()
                if not kubeconfig.exists(paths):
                    message = (
                        f"no credentials: {paths} does not exist, "
                        "and this is no pod with a service account"
                    )
                    raise errors.ConfigError(
                        message, remedy=f"Set KUBECONFIG to a kubeconfig's path. {_EXPLICIT}"
                    ) from None
                self.source = self._from_kubeconfig()
        self.renewer = self.renewer or self.source

    def _from_kubeconfig(self) -> str:
        given = self._options.kubeconfig or kubeconfig.default_paths()
        chosen = kubeconfig.choose(given, self._options.context or "")
        transports.address(str(chosen.cluster["server"]))
        self.context = chosen.context
        source = f"{chosen.where}, context {chosen.context!r}"
        config = self._with_plugin(chosen)
        persist = bool(
            self._options.persist_config and isinstance(given, str) and config is chosen.config
        )
        wanted = {
            "context": chosen.context,
            "client_configuration": self.configuration,
            "persist_config": persist,
        }
        try:
            if persist:
                load_kube_config(config_file=given, **wanted)
            else:
                load_kube_config_from_dict(dict(config), **wanted)
        except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = (
                f"{source} is not usable: the Python client refuses it ({type(error).__name__})"
            )
            raise errors.ConfigError(message, remedy="Try `kubectl` with it.") from None
        if chosen.cluster.get("tls-server-name"):
            self.configuration.tls_server_name = chosen.cluster["tls-server-name"]
        if chosen.cluster.get("proxy-url"):
            self.configuration.proxy = chosen.cluster["proxy-url"]
        return source

    def _with_plugin(self, chosen: kubeconfig.Chosen) -> Mapping[str, Any]:
        """The kubeconfig with the output of the user's credential plugin in place of the plugin."""
        spec = chosen.user.get("exec")
        if not isinstance(spec, Mapping):
            return chosen.config
        user = {name: value for name, value in chosen.user.items() if name != "exec"}
        if not self._options.api_key and not any(
            user.get(name) for name in ("token", "tokenFile", "auth-provider")
        ):
            plugin = exec_plugin.Plugin(
                spec, f"user {chosen.user_name!r} in {chosen.where}", chosen.cluster
            )
            credential = self._run(plugin)
            user |= credential.as_user()
            self.renewer = plugin.name
            self.expires = credential.expires
        return {**chosen.config, "users": [{"name": chosen.user_name, "user": user}]}


def _endpoint(configuration: Any, options: ConnectionOptions, source: str) -> transports.Endpoint:
    """Where to connect; single options override what was loaded."""
    base = transports.address(str(options.host or configuration.host))
    verify = configuration.verify_ssl if options.validate_certs is None else options.validate_certs
    context = None
    if base.startswith("https://"):
        context = transports.tls_context(
            bool(verify),
            ca_cert=options.ca_cert or configuration.ssl_ca_cert or "",
            client_cert=options.client_cert or configuration.cert_file or "",
            client_key=options.client_key or configuration.key_file or "",
            source=source,
        )
    proxy_headers = configuration.proxy_headers
    if options.proxy_headers:
        proxy_headers = urllib3.util.make_headers(**options.proxy_headers)
    return transports.Endpoint(
        base=base,
        context=context,
        server_name=str(getattr(configuration, "tls_server_name", None) or ""),
        assert_hostname=configuration.assert_hostname,
        proxy=str(options.proxy or configuration.proxy or ""),
        no_proxy=str(options.no_proxy or configuration.no_proxy or ""),
        proxy_headers=proxy_headers,
    )


def _entry(endpoint: transports.Endpoint, authority: str) -> dict[str, Any]:
    """The cluster as a kubeconfig describes it, with the certificate authority, a file, in it."""
    found: dict[str, Any] = {"server": endpoint.base}
    if endpoint.context is not None and endpoint.context.verify_mode == ssl.CERT_NONE:
        found["insecure-skip-tls-verify"] = True
    elif endpoint.context is not None and authority:
        found["certificate-authority-data"] = base64.b64encode(Path(authority).read_bytes()).decode(
            "ascii"
        )
    named = {"tls-server-name": endpoint.server_name, "proxy-url": endpoint.proxy}
    return found | {key: value for key, value in named.items() if value}


def _temp_files() -> dict[str, str]:
    """Inline certificates and keys, which the loader writes to files and removes only at exit.

    Forked workers of Ansible do not run exit handlers, so the keys would stay.
    """
    return getattr(kube_config, "_temp_files", {})


def _remove_temp_files(before: set[str]) -> None:
    files = _temp_files()
    for content, path in list(files.items()):
        if path not in before:
            del files[content]
            Path(path).unlink(missing_ok=True)
