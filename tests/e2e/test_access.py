# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An account that the playbook `access` made, with its kubeconfig and its policies: it does all of `maintain`.

And whoever steals its token does nothing else: each hostile action is one that RBAC allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import hostile, rights
from support.ablation import calling
from support.arena import Arena
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.invariants import Foreign
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import arguments as access
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import roles

STEPS = "read,locks,runs,nodes,conditions,evict,guard,surge,hooks,announce,kubelets,delete-pods"

BOUNDS = {"taints": ["dedicated", hostile.ADMITTED], "replicas": hostile.REPLICAS}


def called(lab: Lab, **arguments: Any) -> Json:
    """The module `maintenance_access` as administrator, in this process."""
    told = {"service_account": "bounded", "steps": STEPS.split(","), "policies": True, **BOUNDS, **arguments}
    return calling.call(access.SPEC, str(lab.kubeconfig), **told)


@pytest.fixture
def bounded(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an account `bounded` with every right of `maintain`, and with the policies."""
    dest = tmp_path / "bounded.kubeconfig"
    made = called(lab, dest=str(dest))
    assert not made["failed"], made["msg"]
    yield dest
    gone = called(lab, dest=str(dest), state="absent", fence=True)
    assert not gone["failed"], gone["msg"]
    assert not dest.exists()


def test_the_playbook_makes_the_account_and_its_token_is_in_the_file_alone(
    lab: Lab, play: Player, tmp_path: Path
) -> None:
    as_admin = {"K8S_AUTH_KUBECONFIG": str(lab.kubeconfig)}
    dest = tmp_path / "account.kubeconfig"
    told: Json = {"access_service_account": "account", "access_dest": str(dest)}
    made = play("access", args=("-vvvv",), diff=True, env=as_admin, **told)
    assert made.ok, made.text
    rights.holds_its_own_token_alone(dest, "account")
    assert not rights.may(dest, "list", "", "secrets")
    assert rights.token(dest) not in made.text
    # One in a Secret, in this process; then all of it is gone.
    lasting = {"service_account": "account", "steps": list(roles.MAINTAIN), "policies": False, "token": "secret"}
    second = tmp_path / "second.kubeconfig"
    assert not called(lab, **lasting, dest=str(second))["failed"]
    assert rights.may(second, "patch", "", "nodes")
    assert not called(lab, **lasting, dest=str(second), state="absent")["failed"]
    gone = play("access", env=as_admin, **told, access_state="absent")
    assert gone.ok, gone.text
    assert not dest.exists()
    left = lab.api.items("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")
    assert [one["metadata"]["name"] for one in left if one["metadata"]["name"].endswith(".account")] == []


@pytest.mark.whole
def test_maintain_does_all_it_does_under_the_policies(
    bounded: Path, arena: Arena, play: Player, watching: Watch
) -> None:
    """Surge, replacement, guard, eviction, Events, conditions, marks, taints: never dark, and all is given back."""
    here, there = arena.nodes(2)
    with arena.placing(here):
        arena.deployment("single", start="1s")
        arena.deployment("many", 3, budget={"maxUnavailable": 1}, service=False)
        arena.deployment("bare", 2, service=False)
        notes = {"maintenance.kubeops.io/method": "replace"}
        arena.deployment("replaced", 2, start="1s", budget={"maxUnavailable": 0}, service=False, notes=notes)
    with watching() as seen:
        run = play(
            "maintain",
            env={"K8S_AUTH_KUBECONFIG": str(bounded)},
            maintain_nodes=[here],
            maintain_node_conditions=True,
            maintain_announce_events=True,
            maintain_taints="dedicated=gpu:NoSchedule",
        )
    assert run.ok, run.text
    refused = [one for one in run.findings if one["code"] == "webhook_refuses"]
    assert refused == [], "what is tried before is what the account may do"
    # The one change that was asked for.
    asked = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    seen.all_held(foreign=[Foreign("Node", "", here, ("spec", "taints"), asked)])
    assert arena.record(here) is None
    assert not arena.is_cordoned(here)
    assert {pod["spec"]["nodeName"] for pod in arena.pods()} == {there}


@pytest.mark.whole
def test_a_stolen_token_is_refused_what_maintenance_never_does(
    lab: Lab, bounded: Path, arena: Arena, tmp_path: Path
) -> None:
    """Each action is a dry run, which RBAC allows: the same rights without the policies do them all."""
    scene = hostile.Scene(lab.api, arena)
    lab.api.patch(hostile.FENCE, {"held": scene.held})
    open_account = rights.granted(lab.api, tmp_path / "open", "unbounded", STEPS.split(","))
    try:
        until(lambda: rights.may(open_account, "list", "", "nodes"), 10, "its roles are known")
        forbidden = scene.actions()["evict all by any taint"]
        until(lambda: hostile.attempt(bounded, forbidden), 30, "the policies are in force")
        allowed = {name: hostile.attempt(open_account, action) for name, action in scene.actions().items()}
        assert {name: said for name, said in allowed.items() if said} == {}, "without the policies"
        refused = {name: hostile.attempt(bounded, action) for name, action in scene.actions().items()}
        assert {name: said for name, said in refused.items() if "bounds of bounded: " not in said} == {}
        assert len(refused) >= 150
        beyond = {name: hostile.attempt(open_account, action) for name, action in scene.beyond().items()}
        assert {name: said for name, said in beyond.items() if "cannot" not in said} == {}, "with no policy at all"
        assert "the lock node-invented is held by nobody" in hostile.attempt(bounded, scene.invented())
        assert f"the lock node-{scene.node} is held by thief" in hostile.attempt(bounded, scene.invented_holder())
        harmless = {name: hostile.attempt(bounded, action) for name, action in scene.harmless().items()}
        assert {name: said for name, said in harmless.items() if said} == {}
    finally:
        rights.revoke(lab.api, "unbounded")
