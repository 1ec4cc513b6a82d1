# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `descheduler_config` writes, in which order, and that a call killed at any request is finished by the next.

The cluster is in memory. Its Deployment makes pods that run what the ConfigMap held when they started; a pod whose
configuration names `no-such-class` ends again and again. What real ones do is shown on the lab.
"""

from __future__ import annotations

import contextlib
import copy
import json
import typing as t
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    UnknownOutcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.kinds import Kind
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.descheduler import FACE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.rollout import DIGEST
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.call import stopped
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, StopRun

Raw = dict[str, t.Any]
NAMESPACE = "koordinator-system"
OURS = "kubeops-node-maintenance"
HEAD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\nleaderElection: {leaderElect: false}\n"
OLD = f"{HEAD}# as it was\ndeschedulingInterval: 10s\n"
NEW = f"{HEAD}deschedulingInterval: 60s\n"
BAD = f"""{NEW}profiles:
- name: koord-descheduler
  pluginConfig:
  - name: MigrationController
    args: {{priorityThreshold: {{name: no-such-class}}}}
"""
MIGRATION = {"Enabled": [{"Name": "MigrationController"}]}


class Killed(BaseException):
    """The process is gone: nothing of it may run any more."""


def deployment(replicas: int = 1, **annotations: str) -> Raw:
    meta: Raw = {"labels": {"app": "d"}}
    if annotations:
        meta["annotations"] = annotations
    volume = {"name": "config", "configMap": {"name": "koord-descheduler-config"}}
    return {
        "metadata": {"name": "koord-descheduler", "namespace": NAMESPACE, "uid": "u1", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": meta, "spec": {"containers": [{"name": "descheduler"}], "volumes": [volume]}},
        },
    }


def cron_job() -> Raw:
    made = deployment()
    template = made["spec"].pop("template")
    template["spec"]["volumes"][0]["configMap"]["name"] = "descheduler-policy-configmap"
    made["metadata"]["name"] = "descheduler"
    return {**made, "spec": {"suspend": False, "jobTemplate": {"spec": {"template": template}}}}


@dataclass
class World:
    """Objects by path, and the controllers that act whenever somebody looks or waits."""

    objects: dict[str, Raw] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    writes: int = 0
    dies_before: int = 0
    dies_after: int = 0
    blind: tuple[str, ...] = ()
    jobs: list[Raw] = field(default_factory=list)
    pods: list[Raw] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    made: int = 0
    frail: int = 0
    looks: dict[str, int] = field(default_factory=dict)

    def put(self, path: str, raw: Raw) -> None:
        raw.setdefault("metadata", {})["resourceVersion"] = str(len(self.asked) + 1)
        self.objects[path] = raw

    def config_map(self) -> Raw:
        return self.objects[f"/api/v1/namespaces/{NAMESPACE}/configmaps/koord-descheduler-config"]

    def config_text(self) -> str:
        text: str = self.config_map()["data"]["koord-descheduler-config"]
        return text

    def workload(self) -> Raw:
        return self.objects[f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/koord-descheduler"]

    def journals(self) -> list[str]:
        return [path for path in self.objects if "/descheduler-u1" in path]

    def write_text(self, text: str) -> None:
        self.config_map()["data"]["koord-descheduler-config"] = text

    def tick(self) -> None:
        """The Deployment's controller: as many pods of its template as asked for, the old ones until new are ready."""
        try:
            raw = self.workload()
        except KeyError:
            return
        spec = raw["spec"]
        marks = spec["template"]["metadata"].get("annotations") or {}
        mine = [pod for pod in self.pods if pod["metadata"]["annotations"] == marks]
        for _each in range(spec["replicas"] - len(mine)):
            mine.append(self.pod(marks))
        mine = mine[: spec["replicas"]]
        for pod in mine:
            self.looks[pod["metadata"]["name"]] = seen = self.looks.get(pod["metadata"]["name"], 0) + 1
            if self.frail and seen > self.frail and self.runs[pod["metadata"]["name"]] != OLD:
                pod["status"] = self.status(crashes=True)
        ready = sum(pod["status"]["conditions"][0]["status"] == "True" for pod in mine)
        old = [] if ready >= spec["replicas"] else [pod for pod in self.pods if pod["metadata"]["annotations"] != marks]
        self.pods = mine + old
        counts = dict.fromkeys(("updatedReplicas", "readyReplicas", "availableReplicas"), len(mine))
        raw["status"] = {
            **counts,
            "availableReplicas": ready + len(old),
            "replicas": len(self.pods),
            "observedGeneration": raw["metadata"]["generation"],
        }

    def pod(self, marks: Raw) -> Raw:
        self.made += 1
        name, text = f"koord-descheduler-{self.made}", self.config_text()
        self.runs[name] = text
        status = self.status(crashes="no-such-class" in text)
        meta = {"name": name, "namespace": NAMESPACE, "annotations": dict(marks), "labels": {"app": "d"}}
        return {"metadata": meta, "spec": {"containers": [{"name": "descheduler"}]}, "status": status}

    def status(self, *, crashes: bool) -> Raw:
        status: Raw = {"conditions": [{"type": "Ready", "status": str(not crashes)}], "phase": "Running"}
        if crashes:
            ended = {"terminated": {"exitCode": 1, "message": "Usage:\n\nno-such-class not found\n"}}
            loop = {"waiting": {"reason": "CrashLoopBackOff"}}
            status["containerStatuses"] = [
                {"name": "descheduler", "restartCount": 3, "state": loop, "lastState": ended}
            ]
        return status

    def items(self, kind: Kind, *, namespace: str = "", labels: str = "", **_options: t.Any) -> Listing:
        self.tick()
        if kind.kind == "Pod":
            return Listing(copy.deepcopy(self.pods), "1")
        if kind.kind == "PodMigrationJob":
            found = copy.deepcopy(self.jobs)
            self.jobs = self.jobs[1:]
            return Listing(found, "1")
        stem = f"/namespaces/{namespace}/{kind.plural}/"
        key, _equals, value = labels.partition("=")
        return Listing(
            [
                copy.deepcopy(raw)
                for path, raw in self.objects.items()
                if stem in path and (not key or (raw["metadata"].get("labels") or {}).get(key) == value)
            ],
            "1",
        )

    def page(self, request: Request, path: str, **_options: t.Any) -> Raw:
        del path
        if "pods/portforward" in self.blind:
            raise Forbidden("no pods/portforward", request=request, status=403)
        return {"componentconfig": self.running(request.name)}

    def running(self, pod: str) -> Raw:
        config = means(self.runs[pod])
        points = {"Evict": MIGRATION, "Filter": MIGRATION, "Deschedule": {}, "Balance": {}}
        return {**config, "Profiles": [{"Name": "koord-descheduler", "Plugins": points}]}

    def text(self, request: Request, **_options: t.Any) -> str:
        """A container's log."""
        if "pods/log" in self.blind:
            raise Forbidden("no pods/log", request=request, status=403)
        running = json.dumps(self.running(request.name))
        return f'I1121 configfile.go:93] "Using component config" config={json.dumps(running)}\n'

    def send(self, request: Request, **_options: t.Any) -> Raw:
        self.asked.append(f"{request.verb} {request.resource} {request.name}")
        self.tick()
        if request.resource.startswith("selfsubjectaccessreviews"):
            asked = (request.body or {})["spec"]["resourceAttributes"]
            words = f"{asked['verb']} {asked['resource']} {asked['namespace']}"
            return {"status": {"allowed": words not in self.blind}}
        if not request.writes:
            return copy.deepcopy(self.found(request))
        self.writes += 1
        if self.writes == self.dies_before:
            raise Killed
        answer = copy.deepcopy(self.write(request))
        self.tick()
        if self.writes == self.dies_after:
            raise Killed
        return answer

    def found(self, request: Request) -> Raw:
        if request.path not in self.objects:
            raise NotFound("not there", request=request, status=404)
        return self.objects[request.path]

    def write(self, request: Request) -> Raw:
        body: Raw = copy.deepcopy(dict(request.body or {}))
        if request.verb == "create":
            path = f"{request.path}/{request.name}"
            if path in self.objects:
                raise AlreadyExists("there", request=request, status=409)
            if request.namespace and f"/api/v1/namespaces/{request.namespace}" not in self.objects:
                raise NotFound("no such namespace", request=request, status=404)
            self.put(path, body)
            return body
        found = self.found(request)
        version = (body.get("metadata") or {}).get("resourceVersion")
        version = version or (body.get("preconditions") or {}).get("resourceVersion")
        if version and version != found["metadata"]["resourceVersion"]:
            raise Conflict("changed", request=request, status=409)
        if request.verb == "delete":
            gone: Raw = self.objects.pop(request.path)
            return gone
        merged: Raw = merge(found, body)
        merged["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
        merged["metadata"]["generation"] = found["metadata"].get("generation", 0) + 1
        self.objects[request.path] = merged
        return merged


def means(text: str) -> t.Any:
    own = FACE.prepare(FACE.converted({**DEFAULTS, "config": text}), {})
    return own["means"](text)


def merge(found: t.Any, patch: t.Any) -> t.Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(found) if isinstance(found, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


DEFAULTS: Raw = {name: spec.get("default") for name, spec in FACE.options.items()}


@dataclass
class Hurried(Clock):
    """Waiting costs nothing."""

    time: float = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def world(text: str | None = OLD, *, replicas: int = 1, namespace: bool = True, **annotations: str) -> World:
    made = World()
    if namespace:
        made.put(f"/api/v1/namespaces/{OURS}", {})
    made.put(f"/api/v1/namespaces/{NAMESPACE}", {})
    made.put(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/koord-descheduler", deployment(replicas, **annotations))
    if text is not None:
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/koord-descheduler-config"
        made.put(path, {"data": {"koord-descheduler-config": text}})
        made.tick()
    made.asked.clear()
    return made


def roll(on: World, config: object = NEW, *, check: bool = False, **more: t.Any) -> Raw:
    ctx = Context(t.cast("t.Any", on), check=check, by="ann@desk", clock=Hurried())
    own = FACE.prepare(FACE.converted({**DEFAULTS, "config": config, **more}), {})
    try:
        return FACE.engine(ctx, own).shaped(ctx)
    except StopRun as stop:
        return stopped(stop).shaped(ctx)


def kept(on: World) -> tuple[object, ...]:
    return (copy.deepcopy(on.config_map()["data"]), copy.deepcopy(on.workload()["spec"]))


def test_the_order_of_writes_and_a_second_run_without_any() -> None:
    on = world(namespace=False)
    done = roll(on)
    assert (done["outcome"], done["proof"], done["changed"]) == ("restarted", "configz", True)
    changing = ("create configmaps", "create namespaces", "patch", "delete")
    writes = [line for line in on.asked if line.startswith(changing)]
    assert [line.split()[:2] for line in writes] == [
        ["create", "configmaps"],
        ["create", "namespaces"],
        ["create", "configmaps"],
        ["patch", "configmaps"],
        ["patch", "deployments.apps"],
        ["delete", "configmaps"],
    ]
    assert on.config_text() == NEW
    on.asked.clear()
    again = roll(on)
    assert (again["outcome"], again["changed"], again["proof"]) == ("unchanged", False, "configz")
    assert not any(line.startswith(changing) for line in on.asked)


def test_without_a_digest_the_pods_are_asked() -> None:
    assert roll(world(NEW))["outcome"] == "unchanged"
    foreign = world(NEW)
    foreign.runs["koord-descheduler-1"] = f"{NEW}maxNoOfPodsToEvictTotal: 3\n"
    assert roll(foreign)["outcome"] == "restarted", "something runs that nobody asks for"


def test_a_digest_that_lies_is_found_out() -> None:
    on = world()
    assert roll(on)["outcome"] == "restarted"
    (name,) = (pod["metadata"]["name"] for pod in on.pods)
    on.runs[name] = OLD
    done = roll(on)
    assert done["outcome"] == "restarted"
    assert "deschedulingInterval" in done["actions"][0]
    assert done["proof"] == "configz"


def test_text_is_written_as_text_and_keys_by_their_meaning() -> None:
    on = world()
    roll(on)
    assert roll(on, {**means(NEW), "profiles": None})["outcome"] == "unchanged"
    comment = roll(on, f"# why\n{NEW}")
    assert (comment["outcome"], comment["restarted"]) == ("changed", False)
    assert on.config_text() == f"# why\n{NEW}"


def test_check_mode_says_what_a_real_run_does_and_writes_nothing() -> None:
    on = world()
    before = kept(on)
    told = roll(on, check=True)
    assert (kept(on), on.journals(), on.writes) == (before, [], 0)
    assert told["actions"] == roll(on)["actions"]
    assert told["restarted"]
    assert told["running_config_matches"] is None


@pytest.mark.parametrize("restart", ["rollout", "scale"])
def test_what_does_not_run_is_taken_back(restart: str) -> None:
    on = world()
    before = kept(on)
    done = roll(on, BAD, restart=restart)
    assert (done["failed"], done["outcome"], done["rolled_back"]) == (True, "rolled_back", True)
    assert done["reason"] == "no-such-class not found"
    assert (kept(on), on.journals()) == (before, [])


def test_without_rollback_it_is_left_and_the_next_call_still_knows_what_was_before() -> None:
    on = world()
    before = kept(on)
    assert roll(on, BAD, rollback=False)["outcome"] == "failed"
    assert on.config_text() == BAD
    assert roll(on, BAD)["outcome"] == "rolled_back"
    assert (kept(on), on.journals()) == (before, [])


def test_a_config_map_that_was_made_goes_again() -> None:
    on = world(None)
    on.workload()["spec"]["replicas"] = 0
    done = roll(on)
    assert done["outcome"] == "changed"
    assert on.config_text() == NEW
    assert on.journals() == []


@pytest.mark.parametrize("wanted", [NEW, BAD], ids=["good", "bad"])
@pytest.mark.parametrize("restart", ["rollout", "scale"])
@pytest.mark.parametrize("when", ["dies_before", "dies_after"])
@pytest.mark.parametrize("write", range(1, 9))
def test_a_call_killed_at_any_write_is_finished_by_the_next(when: str, write: int, restart: str, wanted: str) -> None:
    on = world(replicas=2)
    before = kept(on)
    setattr(on, when, write)
    try:
        roll(on, wanted, restart=restart)
    except Killed:
        pass
    else:
        assert on.writes < write
        return
    on.dies_before = on.dies_after = 0
    done = roll(on, wanted, restart=restart)
    assert on.journals() == []
    assert on.workload()["spec"]["replicas"] == 2
    if wanted == NEW:
        assert (done["failed"], done["proof"], on.config_text()) == (False, "configz", NEW)
        assert roll(on, wanted)["outcome"] == "unchanged"
    else:
        assert done["outcome"] == "rolled_back"
        assert kept(on) == before


def test_a_killed_rollout_is_given_up_for_another_one() -> None:
    """What is gone back to is what ran before both, not what the killed one wrote."""
    on = world()
    before = kept(on)
    on.dies_after = 3
    with pytest.raises(Killed):
        roll(on, NEW)
    on.dies_after = 0
    assert roll(on, BAD)["outcome"] == "rolled_back"
    assert kept(on) == before


def test_somebody_elses_write_is_neither_overwritten_nor_taken_back() -> None:
    on = world()
    send = on.send

    def faster(request: Request, **options: t.Any) -> Raw:
        if request.verb == "patch" and request.resource == "configmaps" and on.config_text() == OLD:
            on.write_text("theirs: 1\n")
            on.config_map()["metadata"]["resourceVersion"] = "99"
        return send(request, **options)

    on.send = faster  # type: ignore[method-assign]
    done = roll(on)
    assert done["findings"][0]["code"] == "changed_meanwhile"
    assert on.config_text() == "theirs: 1\n"


def test_an_answer_that_is_lost_is_looked_up() -> None:
    on = world()
    send, lost = on.send, []

    def losing(request: Request, **options: t.Any) -> Raw:
        answer = send(request, **options)
        if request.verb == "patch" and request.resource not in lost:
            lost.append(request.resource)
            raise UnknownOutcome("cut", request=request)
        return answer

    on.send = losing  # type: ignore[method-assign]
    done = roll(on)
    assert (done["outcome"], len(done["actions"])) == ("restarted", 2)
    assert lost == ["configmaps", "deployments.apps"]


def test_jobs_that_run_are_waited_for_before_the_first_write() -> None:
    job = {"metadata": {"name": "j"}, "spec": {"podRef": {}}, "status": {"phase": "Running"}}
    on = world()
    on.jobs = [job, job]
    assert roll(on, running_jobs="refuse")["findings"][0]["code"] == "jobs_running"
    assert on.writes == 0
    assert roll(on)["outcome"] == "restarted"
    on = world()
    on.jobs = [job] * 900
    assert roll(on, timeout="60s")["findings"][0]["code"] == "jobs_running"
    assert on.writes == 0
    assert roll(on, running_jobs="ignore")["outcome"] == "restarted"


def test_a_deployment_without_pods_gets_the_configuration_and_no_restart() -> None:
    on = world(replicas=0)
    done = roll(on)
    assert (done["outcome"], done["running_config_matches"]) == ("changed", None)
    assert on.workload()["spec"]["replicas"] == 0
    assert DIGEST in on.workload()["spec"]["template"]["metadata"]["annotations"]
    assert roll(on)["outcome"] == "unchanged"


def test_a_restart_that_is_not_wanted() -> None:
    on = world()
    done = roll(on, restart="none")
    assert (done["outcome"], done["running_config_matches"]) == ("changed", None)
    assert roll(on)["outcome"] == "restarted", "the next call without it sees what is missing"


def test_evictions_are_paused_and_given_back() -> None:
    on = world()
    before = on.config_text()
    assert roll(on, None, state="paused")["outcome"] == "restarted"
    assert on.config_text() == f"{OLD}dryRun: true\n"
    assert roll(on, None, state="paused")["outcome"] == "unchanged"
    assert on.journals()
    assert roll(on, None, state="resumed")["outcome"] == "restarted"
    assert (on.config_text(), on.journals()) == (before, [])
    assert roll(on, None, state="resumed")["outcome"] == "unchanged"


@pytest.mark.parametrize("write", range(1, 6))
def test_a_pause_and_its_end_killed_at_any_write(write: int) -> None:
    for state, number in (("paused", write), ("resumed", 100 + write)):
        on = world()
        if state == "resumed":
            roll(on, None, state="paused")
            number = on.writes + write
        on.dies_after = number
        with contextlib.suppress(Killed):
            roll(on, None, state=state)
        on.dies_after = 0
        roll(on, None, state=state)
        if state == "paused":
            assert "dryRun: true" in on.config_text()
            roll(on, None, state="resumed")
        assert (on.config_text(), on.journals()) == (OLD, [])


def test_a_new_configuration_ends_a_pause() -> None:
    on = world()
    roll(on, None, state="paused")
    assert roll(on)["outcome"] == "restarted"
    assert (on.config_text(), on.journals()) == (NEW, [])
    assert roll(on, None, state="resumed")["outcome"] == "unchanged"
    assert on.config_text() == NEW


def test_what_somebody_configured_during_a_pause_is_kept() -> None:
    on = world()
    roll(on, None, state="paused")
    on.write_text(NEW)
    assert "kept" in roll(on, None, state="resumed")["msg"]
    assert (on.config_text(), on.journals()) == (NEW, [])


def test_a_cron_job_is_never_restarted_and_paused_by_suspending() -> None:
    on = World()
    policy = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: []\n"
    on.put(f"/api/v1/namespaces/{OURS}", {})
    on.put("/apis/batch/v1/namespaces/kube-system/cronjobs/descheduler", cron_job())
    path = "/api/v1/namespaces/kube-system/configmaps/descheduler-policy-configmap"
    on.put(path, {"data": {"policy.yaml": policy}})
    done = roll(on, f"# new\n{policy}", flavor="sigs")
    assert (done["outcome"], done["restarted"], done["failed"]) == ("changed", False, False)
    assert "next run" in done["msg"]
    assert roll(on, f"# new\n{policy}", flavor="sigs")["outcome"] == "unchanged"
    assert roll(on, None, flavor="sigs", state="paused")["outcome"] == "changed"
    spec = on.objects["/apis/batch/v1/namespaces/kube-system/cronjobs/descheduler"]["spec"]
    assert spec["suspend"] is True
    assert roll(on, None, state="resumed")["outcome"] == "changed"
    spec = on.objects["/apis/batch/v1/namespaces/kube-system/cronjobs/descheduler"]["spec"]
    assert spec["suspend"] is False
    assert on.journals() == []


def test_nobody_may_see_the_pods_configuration() -> None:
    on = world()
    on.blind = ("pods/portforward",)
    assert roll(on)["proof"] == "log"
    on.blind = ("pods/portforward", "pods/log")
    done = roll(on, NEW.replace("60s", "61s"))
    assert done["proof"] == "ready"
    assert "pods/log" in done["proof_note"]


@pytest.mark.parametrize(
    "refused",
    [
        f"patch configmaps {NAMESPACE}",
        f"patch deployments {NAMESPACE}",
        f"create configmaps {OURS}",
        f"delete configmaps {OURS}",
        f"patch configmaps {OURS}",
    ],
)
def test_a_permission_that_is_missing_stops_before_the_first_write(refused: str) -> None:
    on = world()
    on.blind = (refused,)
    done = roll(on)
    assert done["findings"][0]["code"] == "missing_permission"
    assert on.writes == 0
    assert roll(on, OLD)["outcome"] == "unchanged", "who has nothing to write needs no right to"


def test_permissions_that_are_missing_are_named_together() -> None:
    on = world()
    on.blind = (f"patch deployments {NAMESPACE}", f"create configmaps {OURS}")
    done = roll(on)
    assert f"may not patch deployments.apps in namespace {NAMESPACE}" in done["msg"]
    assert f"may not create configmaps in namespace {OURS}" in done["msg"]


def test_what_cannot_be_written_or_restarted_stops_before_the_first_write() -> None:
    on = world()
    on.config_map()["immutable"] = True
    assert roll(on)["findings"][0]["code"] == "immutable"
    on = world()
    on.workload()["spec"]["paused"] = True
    assert roll(on)["findings"][0]["code"] == "deployment_paused"
    assert on.writes == 0
    assert roll(on, restart="none")["outcome"] == "changed"


def test_pods_that_are_ready_for_a_moment_prove_nothing() -> None:
    """Where nobody can read what runs; the descheduler of sigs.k8s.io looks at some of its policy later."""
    on = world()
    on.blind = ("pods/portforward", "pods/log")
    on.frail = 12
    before = kept(on)
    done = roll(on)
    assert done["outcome"] == "rolled_back"
    assert done["reason"] == "no-such-class not found"
    assert kept(on) == before


def test_names_that_are_not_there() -> None:
    on = world()
    typo = roll(on, deployment="koord-desheduler")
    assert typo["findings"][0]["code"] == "unknown_deployment"
    assert "Did you mean deployment: koord-descheduler?" in typo["msg"]
    assert "Did you mean config_map: koord-descheduler-config?" in roll(on, config_map="koord-config")["msg"]
    assert on.writes == 0
