# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubeconfig of an account: written where it is asked for, for its owner alone, and its token shown nowhere."""

from __future__ import annotations

import base64
import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_tokens
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.run_access import AccessOptions, install
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.run_tokens import PlaceError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

USER = f"system:serviceaccount:{names.NAMESPACE}:operator"
DAY = 24 * 3600


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.namespace(names.NAMESPACE)]) as made:
        yield made


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "new" / "operator.kubeconfig"


def called(world: World, dest: Path, *, check: bool = False, **options: t.Any) -> Raw:
    """The whole result of a call."""
    me = world.process("me")
    ctx = me.ctx(check=check)
    return me.run(lambda _ctx: install(ctx, AccessOptions(**options, dest=str(dest))).shaped(ctx))


def token(dest: Path) -> str:
    config = yaml.safe_load(dest.read_text())
    return str(config["users"][0]["user"]["token"])


def test_it_is_written_for_its_owner_alone_and_kept_while_it_serves(world: World, dest: Path) -> None:
    made = called(world, dest)
    assert made["kubeconfig"] == {
        "path": str(dest),
        "user": USER,
        "outcome": "created",
        "expires": "2026-01-02T00:00:06Z",
    }
    assert dest.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(dest.read_text())
    assert config["clusters"] == [{"name": "cluster", "cluster": {"server": "https://simulated:6443"}}]
    assert config["current-context"] == "operator"
    first = token(dest)
    assert first not in json.dumps(made)
    world.machine.run_for(DAY / 2 - 60)
    assert not called(world, dest)["changed"]
    assert token(dest) == first
    world.machine.run_for(120)
    assert called(world, dest)["kubeconfig"]["outcome"] == "changed"
    assert token(dest) != first


def test_check_mode_asks_for_no_token_and_writes_no_file(world: World, dest: Path) -> None:
    said = called(world, dest, check=True)
    assert said["changed"]
    assert not dest.parent.exists()
    assert [sent for sent in world.log if sent.request.resource.endswith("/token")] == []
    done = called(world, dest)
    assert said["actions"] == done["actions"]
    assert said["diff"] == done["diff"]


def test_a_file_that_others_may_read_is_written_anew(world: World, dest: Path) -> None:
    called(world, dest)
    first = token(dest)
    dest.chmod(0o644)
    assert called(world, dest)["changed"]
    assert dest.stat().st_mode & 0o777 == 0o600
    assert token(dest) != first


def test_the_token_of_an_account_that_was_made_anew_does_not_serve(world: World, dest: Path) -> None:
    called(world, dest)
    first = token(dest)
    world.delete(kinds.SERVICE_ACCOUNTS, "operator", names.NAMESPACE)
    called(world, dest)
    assert token(dest) != first


def test_the_file_goes_with_its_account_and_no_other_file(world: World, dest: Path) -> None:
    called(world, dest)
    other = dest.with_name("other")
    other.write_text("mine")
    assert called(world, other, state="absent", steps=())["kubeconfig"]["outcome"] == "already_absent"
    assert other.read_text() == "mine"
    assert called(world, dest, state="absent")["kubeconfig"]["outcome"] == "deleted"
    assert not dest.exists()


def test_a_lasting_token_is_taken_from_a_secret_only_if_asked(world: World, dest: Path) -> None:
    claims = {"sub": USER, "kubernetes.io/serviceaccount/service-account.uid": "u1"}
    lasting = f"a.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c"

    def fill() -> None:
        data = {"token": base64.b64encode(lasting.encode()).decode()}
        world.patch(kinds.SECRETS, "operator-token", {"data": data}, names.NAMESPACE)

    called(world, dest)
    assert world.find(kinds.SECRETS, "operator-token", names.NAMESPACE) is None
    with pytest.raises(CallAborted, match="got no token within 30 s"):
        called(world, dest, token="secret")
    fill()
    made = called(world, dest, token="secret")
    assert token(dest) == lasting
    assert lasting not in json.dumps(made)
    assert made["kubeconfig"]["expires"] == "never"
    gone = called(world, dest, token="secret", state="absent")
    assert "Secret" in [action.split()[1] for action in gone["actions"] if action.startswith("Delete")]
    assert world.find(kinds.SECRETS, "operator-token", names.NAMESPACE) is None


def test_a_secret_of_others_is_not_taken(world: World, dest: Path) -> None:
    meta = {"name": "operator-token", "namespace": names.NAMESPACE}
    world.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    with pytest.raises(CallAborted) as stopped:
        called(world, dest, token="secret")
    assert stopped.value.reason.code == "not_ours"


def test_a_place_that_cannot_be_written_is_named(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="file/kubeconfig cannot be"):
        called(world, tmp_path / "file" / "kubeconfig")


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a.e30.c", "a.W10.c"])
def test_what_is_no_token_says_nothing(text: str) -> None:
    assert run_tokens.parsed(text) is None
