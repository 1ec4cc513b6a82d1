# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The connection options; names and environment variables are those of ``kubernetes.core``."""

    DOCUMENTATION = r"""
requirements:
  - kubernetes >= 24.2.0
options:
  kubeconfig:
    description:
      - Path of a kubeconfig file, several paths joined by V(:), or the content of a kubeconfig as a dictionary.
      - Without this and without O(host), the file that E(KUBECONFIG) names is used, then the service account of the
        pod in which this runs, then V(~/.kube/config).
      - Environment variable E(K8S_AUTH_KUBECONFIG).
    type: raw
  context:
    description:
      - Name of a context of the kubeconfig. Defaults to the current context.
      - Environment variable E(K8S_AUTH_CONTEXT).
    type: str
  host:
    description:
      - URL of the API server.
      - Environment variable E(K8S_AUTH_HOST).
    type: str
  api_key:
    description:
      - Bearer token.
      - Environment variable E(K8S_AUTH_API_KEY).
    type: str
  username:
    description:
      - User for HTTP basic authentication, if a proxy in front of the API server requires it.
      - Environment variable E(K8S_AUTH_USERNAME).
    type: str
  password:
    description:
      - Password of O(username).
      - Environment variable E(K8S_AUTH_PASSWORD).
    type: str
  validate_certs:
    description:
      - Whether the API server's certificate must be valid.
      - Environment variable E(K8S_AUTH_VERIFY_SSL).
    type: bool
    aliases: [verify_ssl]
  ca_cert:
    description:
      - Path of the certificate authority's certificate.
      - Environment variable E(K8S_AUTH_SSL_CA_CERT).
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - Path of a client certificate.
      - Environment variable E(K8S_AUTH_CERT_FILE).
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path of the key of O(client_cert).
      - Environment variable E(K8S_AUTH_KEY_FILE).
    type: path
    aliases: [key_file]
  proxy:
    description:
      - URL of an HTTP proxy.
      - Environment variable E(K8S_AUTH_PROXY).
    type: str
  no_proxy:
    description:
      - Hosts, domains and networks, separated by commas, that are reached without O(proxy).
      - Environment variable E(K8S_AUTH_NO_PROXY).
    type: str
  proxy_headers:
    description: Headers for the proxy.
    type: dict
    suboptions:
      proxy_basic_auth:
        description:
          - User and password for the proxy, separated by a colon.
          - Environment variable E(K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH).
        type: str
      basic_auth:
        description:
          - User and password, separated by a colon.
          - Environment variable E(K8S_AUTH_PROXY_HEADERS_BASIC_AUTH).
        type: str
      user_agent:
        description:
          - The user agent that the proxy sees.
          - Environment variable E(K8S_AUTH_PROXY_HEADERS_USER_AGENT).
        type: str
  persist_config:
    description:
      - Whether a refreshed token is written back to the kubeconfig.
      - Environment variable E(K8S_AUTH_PERSIST_CONFIG).
    type: bool
  impersonate_user:
    description:
      - User to act as.
      - Environment variable E(K8S_AUTH_IMPERSONATE_USER).
    type: str
  impersonate_groups:
    description:
      - Groups to act as.
      - Environment variable E(K8S_AUTH_IMPERSONATE_GROUPS), separated by commas.
    type: list
    elements: str
notes:
  - A connection option in a task, or in C(module_defaults), discards every E(K8S_AUTH_*) variable of the
    environment. Otherwise a task for one cluster of a fleet could silently reach the one in E(K8S_AUTH_HOST).
  - A credential plugin of the kubeconfig (C(exec)) runs without a terminal and may take 60 seconds; then it is killed
    and the error names it. A token that expires soon is renewed while it is still in use; if a login hangs, requests
    that can use the current token continue. If an interactive login is needed, log in beforehand.
  - Credentials are read again when they expire or are refused, from the same context and for the same server as
    at the start. A kubeconfig that points to another server by then is refused.
  - An API server that has just started refuses requests that it will allow a moment later. So requests that it allowed
    before are retried for up to 30 seconds, watches for up to 60; anything else is retried once after half a second.
  - On a local connection without C(become) the work is done inside the controller's process, which shows progress
    while it waits. Otherwise the module itself runs, with the same result but without progress messages.
"""
