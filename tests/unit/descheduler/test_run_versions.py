# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose version's rules apply: the image's, unless the option overrides it; and which versions are too old."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import judged, numbers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import (
    HOME,
    NAME,
    NEW,
    OLD,
    Cluster,
)

# Only 1.8.0 has this argument.
ONLY_LATER = f"""{NEW}profiles:
- name: koord-descheduler
  pluginConfig:
  - name: MigrationController
    args: {{skipEvictionGates: [ExpectedReplicas]}}
"""


@pytest.fixture
def on() -> t.Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.world.close()


def runs(on: Cluster, tag: str) -> None:
    """The descheduler's image has this tag, as a user installed it."""
    container = {"name": "c", "image": f"registry.example:5000/koordinator-sh/koord-descheduler{tag}"}
    spec = {
        "template": {
            "spec": {"containers": [{**on.workload()["spec"]["template"]["spec"]["containers"][0], **container}]}
        }
    }
    on.world.patch(kinds.DEPLOYMENTS, NAME, {"spec": spec}, HOME)
    on.world.settle()


def codes(done: Raw) -> list[tuple[str, str]]:
    return [(found["rule"], found["severity"]) for found in done["findings"] if found["path"] == "version"]


def test_the_rules_are_those_of_the_image(on: Cluster) -> None:
    runs(on, ":v1.8.0")
    done = on.roll(ONLY_LATER, check=True)
    assert (done["outcome"], done["version"], done["image_version"]) == ("restarted", "1.8.0", "1.8.0")
    assert codes(done) == []
    runs(on, ":v1.7.0")
    done = on.roll(ONLY_LATER)
    assert (done["outcome"], done["version"], done["findings"][0]["rule"]) == ("invalid", "1.7.0", "too_new")


def test_the_option_overrides_and_a_mismatch_is_a_finding(on: Cluster) -> None:
    runs(on, ":v1.7.0")
    done = on.roll(ONLY_LATER, version="1.8.0", check=True)
    assert (done["version"], done["image_version"]) == ("1.8.0", "1.7.0")
    assert codes(done) == [("version_mismatch", "warning")]
    (found,) = done["findings"]
    assert found["message"].endswith("koord-descheduler:v1.7.0, but the rules of 1.8.0 apply.")
    assert found["remedy"].startswith("Set version to one of 1.7.0, 1.8.0")


@pytest.mark.parametrize("tag", ["", ":latest", ":2024-06", "@sha256:0123"])
def test_an_image_that_names_no_version_gets_the_default_rules(on: Cluster, tag: str) -> None:
    runs(on, tag)
    done = on.roll()
    assert (done["version"], done["image_version"], codes(done)) == ("1.7.0", "", [])


def test_a_version_without_rules_gets_the_closest(on: Cluster) -> None:
    for tag, rules in ((":v1.9.2", "1.8.0"), (":v1.6.0", "1.7.0")):
        runs(on, tag)
        done = on.roll(check=True)
        assert (done["version"], codes(done)) == (rules, [("unknown_version", "warning")])
        assert [found["remedy"] for found in done["findings"]] == [""]
    runs(on, ":v1.7.3")
    done = on.roll(check=True)
    assert (done["version"], codes(done)) == ("1.7.0", [])


def test_what_is_older_than_the_documents_allow_stops_before_the_first_write(on: Cluster) -> None:
    runs(on, ":v0.5.0")
    done = on.roll()
    assert (done["outcome"], codes(done), on.asked()) == ("invalid", [("too_old", "error")], [])
    assert on.text() == OLD
    done = on.roll(version="1.7.0", check=True)
    assert codes(done) == [("too_old", "warning")], "the option says that the tag does not tell the version"
    runs(on, ":v1.7.0")
    on.world.server.git_version = "v1.17.9"
    done = on.roll()
    assert (done["outcome"], codes(done), on.asked()) == ("invalid", [("too_old", "error")], [])


def test_paused_and_resumed_follow_the_image_too(on: Cluster) -> None:
    runs(on, ":v1.8.0")
    for state in ("paused", "resumed"):
        assert on.roll(None, state=state)["version"] == "1.8.0"


@pytest.mark.parametrize(
    ("flavor", "image", "expected"),
    [
        ("ack", "registry/acs/koord-descheduler:v1.2.0-ack.1", ["too_old"]),
        ("ack", "registry/acs/koord-descheduler:v1.2.0-ack.2", []),
        ("ack", "registry/acs/koord-descheduler:v1.2.0-ack1.6", []),
        ("ack", "registry/acs/koord-descheduler:v1.1.1-ack.9", ["too_old"]),
        ("ack", "registry/acs/koord-descheduler:v1.5.0-ack1.14", []),
        ("koordinator", "koordinatorsh/koord-descheduler:v0.6.0", ["unknown_version"]),
        ("sigs", "registry.k8s.io/descheduler/descheduler:v0.36.0", []),
        ("sigs", "registry.k8s.io/descheduler/descheduler:v0.33.0", ["unknown_version"]),
    ],
)
def test_the_versions_of_each_flavor(flavor: t.Any, image: str, expected: list[str]) -> None:
    assert [fault.code for fault in judged(flavor, "", image, "v1.36.3").faults] == expected


@pytest.mark.parametrize(("tag", "expected"), [("v1.8.0-rc.1", (1, 8, 0)), ("1.2", ()), ("v1.2.0-ack.2", (1, 2, 0, 2))])
def test_tags(tag: str, expected: tuple[int, ...]) -> None:
    assert numbers(tag) == expected
