# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Where an API server is, and how it proves that it is the right one."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`base` may have a path (`https://rancher/k8s/clusters/c-1`); `context` is None for plain HTTP.

    `server_name` is the name in the server's certificate, if that is not the host's.
    """

    base: str
    context: ssl.SSLContext | None = None
    server_name: str = ""
    assert_hostname: bool | str | None = None
    proxy: str = ""
    no_proxy: str = ""
    proxy_headers: Mapping[str, str] | None = None


def tls_context(
    verify: bool, *, ca_cert: str = "", client_cert: str = "", client_key: str = "", source: str
) -> ssl.SSLContext:
    """One context for all connections, as strict as kubectl's; the certificates and the key are paths of PEM files.

    Python 3.13's stricter X.509 checks, which refuse the authorities of many clusters, are off, and any given
    certificate may be the trust anchor. Raises ConfigError if a file cannot be used; `source` names its owner.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    what, file = "", ""
    try:
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif ca_cert:
            what, file = "certificate authority", ca_cert
            context.load_verify_locations(cafile=ca_cert)
        else:
            context.load_default_certs()
        if client_cert:
            what, file = "client certificate with its key", client_cert
            # A password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(client_cert, client_key or None, password="none")
    except (OSError, ValueError) as error:
        why = "not PEM, or a key that has a password or belongs to another certificate"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            why = f"{error.strerror} ({file})"
        message = f"the {what} of {source} cannot be used: {why}"
        raise errors.ConfigError(message, remedy="Give readable files in PEM format.") from None
    return context


def plain(url: str) -> str:
    """A URL without user and password."""
    scheme, mark, rest = url.rpartition("://")
    return scheme + mark + rest.rpartition("@")[2]


def address(url: str) -> str:
    """A server's URL with a scheme and without a trailing slash; raises ConfigError if it cannot be parsed."""
    url = url.strip().rstrip("/")
    url = url if "://" in url else f"https://{url}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise no_address(url)
    return url


def bypassed(url: str, no_proxy: str) -> bool:
    """Whether `no_proxy` (names, domains, addresses, networks or `*`, separated by commas) exempts a URL."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for entry in (word.strip().lower() for word in no_proxy.split(",")):
        if not entry:
            continue
        if entry == "*":
            return True
        with suppress(ValueError):
            if address is not None and address in ipaddress.ip_network(entry, strict=False):
                return True
        name = entry.lstrip(".")
        if host == name or host.endswith("." + name) or parts.netloc.lower() == name:
            return True
    return False


def no_address(url: str) -> errors.ConfigError:
    """What to raise for an address that cannot be parsed."""
    message = f"the address {plain(url)!r} of the API server is not usable"
    return errors.ConfigError(message, remedy="Give a URL such as https://api.example.org:6443.")
