# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import connection_options
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.option_values import BadOption

ENVIRON = {
    "K8S_AUTH_HOST": "https://from-environment",
    "K8S_AUTH_API_KEY": "environment-token",
    "K8S_AUTH_VERIFY_SSL": "false",
    "K8S_AUTH_SSL_CA_CERT": "~/ca.pem",
    "K8S_AUTH_IMPERSONATE_GROUPS": "admins, viewers",
    "K8S_AUTH_PROXY_HEADERS_BASIC_AUTH": "user:secret",
    "K8S_AUTH_CONTEXT": "",
}


def connection(environ: dict[str, str] | None = None, **params: Any) -> dict[str, Any]:
    return connection_options.connection(params, environ if environ is not None else ENVIRON)


def test_the_environment_is_read_in_its_final_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/mira")
    assert connection() == {
        "host": "https://from-environment",
        "api_key": "environment-token",
        "validate_certs": False,
        "ca_cert": "/home/mira/ca.pem",
        "impersonate_groups": ("admins", "viewers"),
        "proxy_headers": {"basic_auth": "user:secret"},
    }


@pytest.mark.parametrize(
    "given",
    [{"host": "https://other"}, {"context": "other"}, {"validate_certs": False}, {"impersonate_user": "mira"}],
)
def test_one_option_of_the_task_discards_the_whole_environment(given: dict[str, Any]) -> None:
    assert connection(**given) == given


def test_options_that_are_none_do_not_count_as_given() -> None:
    assert connection(host=None, kubeconfig=None)["host"] == "https://from-environment"


def test_kubeconfig_of_kubectl_is_the_default_file() -> None:
    environ = {"KUBECONFIG": "/one:/two"}
    assert connection(environ) == {"kubeconfig": "/one:/two"}
    assert connection(environ, context="blue") == {"kubeconfig": "/one:/two", "context": "blue"}


def test_kubeconfig_of_kubectl_never_wins_over_an_option() -> None:
    environ = {"KUBECONFIG": "/one"}
    assert connection(environ, kubeconfig="/two") == {"kubeconfig": "/two"}
    assert connection(environ, host="https://a", api_key="t") == {"host": "https://a", "api_key": "t"}
    assert connection({**environ, "K8S_AUTH_KUBECONFIG": "/three"}) == {"kubeconfig": "/three"}


def test_a_variable_that_is_no_truth_value_is_named() -> None:
    with pytest.raises(BadOption, match=r"K8S_AUTH_VERIFY_SSL.*'maybe'"):
        connection({"K8S_AUTH_VERIFY_SSL": "maybe"})


def test_secrets_are_found_wherever_they_come_from() -> None:
    kubeconfig = {
        "users": [{"name": "me", "user": {"token": "inline-token", "client-key-data": "inline-key"}}],
        "clusters": [{"cluster": {"server": "https://shown"}}],
    }
    params = {"kubeconfig": kubeconfig, "password": "task-password", "run": "ab12/the-nonce"}
    assert connection_options.secrets(params, ENVIRON) == {
        "inline-token",
        "inline-key",
        "task-password",
        "the-nonce",
        "environment-token",
        "user:secret",
    }


def test_the_id_of_a_run_is_no_secret() -> None:
    assert connection_options.secrets({"run": "ab12"}, {}) == set()
