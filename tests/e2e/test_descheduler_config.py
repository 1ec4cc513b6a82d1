# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`descheduler_config` against real deschedulers: restarts that take, and mistakes that are taken back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import yaml
from support import descheduling, koordinator, rollouts, sampling
from support.arena import Arena
from support.jobs import JOBS
from support.lab import ROOT, Lab
from support.plays import Player
from support.rollouts import MODULE, call, journals, refused_class, roll, slower, state_of, the_pod
from support.waiting import until

LAYOUTS = ROOT / "roles" / "lab" / "files" / "deschedulers"
ACK = "/apis/apps/v1/namespaces/kube-system/deployments/ack-koord-descheduler"
ACK_CONFIG = "/api/v1/namespaces/kube-system/configmaps/koord-descheduler-config"
SIGS = "/apis/apps/v1/namespaces/kube-system/deployments/descheduler"
SIGS_CONFIG = "/api/v1/namespaces/kube-system/configmaps/descheduler-policy-configmap"
CRON = "/apis/batch/v1/namespaces/kube-system/cronjobs/descheduler"
AT_ONCE = "/apis/batch/v1/namespaces/kube-system/jobs/at-once"
SIGS_POLICY = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "default",
            "pluginConfig": [{"name": "DefaultEvictor", "args": {"nodeFit": True}}, {"name": "RemoveDuplicates"}],
            "plugins": {"balance": {"enabled": ["RemoveDuplicates"]}},
        }
    ],
}


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.fixture(scope="module")
def chart(lab: Lab) -> str:
    """The configuration that the lab brings."""
    text: str = lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
    return text


@pytest.fixture(autouse=True)
def as_found(lab: Lab, chart: str) -> Iterator[None]:
    with rollouts.as_found(lab, chart):
        yield


def test_a_configuration_is_rolled_out_once(lab: Lab, play: Player, chart: str) -> None:
    """Already right: nothing happens. New: one restart. In other words: written, no restart. Again: nothing."""
    first = the_pod(lab)
    same = roll(play, chart)
    assert (same["outcome"], same["changed"], same["proof"]) == ("unchanged", False, "configz"), same["actions"]
    new = slower(chart, 120)
    told = call(play, new, check=True, diff=True)
    assert told.answer["changed"]
    assert lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY] == chart
    assert '-        "deschedulingInterval: 10s"' in told.text
    assert '+        "deschedulingInterval: 120s"' in told.text
    done = roll(play, new)
    assert (done["outcome"], done["running_config_matches"], done["proof"]) == ("restarted", True, "configz")
    assert done["actions"] == told.answer["actions"]
    assert lab.api.get(koordinator.CONFIG)["data"] == {koordinator.KEY: new}
    second = the_pod(lab)
    assert second != first
    again = roll(play, new)
    assert (again["outcome"], again["changed"], again["proof"]) == ("unchanged", False, "configz")
    as_keys = roll(play, yaml.safe_load(new))
    assert as_keys["outcome"] == "unchanged", "keys and values mean the same as the text that is there"
    commented = roll(play, f"# slower\n{new}")
    assert (commented["outcome"], commented["restarted"]) == ("changed", False)
    assert the_pod(lab) == second
    forced = play.module(MODULE, state="restarted", timeout="60s").answer
    assert (forced["outcome"], forced["proof"]) == ("restarted", "configz")
    assert the_pod(lab) != second


@pytest.mark.whole
def test_what_is_wrong_by_the_schema_is_never_written(lab: Lab, play: Player, chart: str) -> None:
    before = state_of(lab)
    for words in (
        chart.replace("evictBurst: 1", "evictBurst: -1"),
        chart.replace("dryRun: false", "dryrun: false"),
        chart.replace("10s", "10"),
    ):
        for state in ("present", "validated"):
            run = play.module(MODULE, config=words, state=state)
            assert not run.ok
            assert run.answer["outcome"] == "invalid"
            assert [fault["severity"] for fault in run.answer["findings"]] == ["error"]
    assert state_of(lab) == before


@pytest.mark.parametrize("restart", sampling.first(1, ["rollout", "scale"]))
def test_what_crashes_at_its_start_is_taken_back(lab: Lab, play: Player, chart: str, restart: str) -> None:
    before = state_of(lab)
    bad = refused_class(chart)
    begun = time.monotonic()
    run = call(play, bad, restart=restart, timeout="12s")
    assert not run.ok
    answer = run.answer
    assert (answer["outcome"], answer["rolled_back"], answer["running_config_matches"]) == ("rolled_back", True, False)
    assert 'priorityclasses.scheduling.k8s.io "no-such-class" not found' in answer["reason"]
    assert answer["reason"] in answer["msg"]
    assert time.monotonic() - begun < 12 + 60
    after = state_of(lab)
    assert (after["data"], after["spec"]) == (before["data"], before["spec"])
    if restart == "rollout":
        assert after["pod"] == before["pod"], "the old pod ran all the time"
    assert roll(play, chart)["proof"] == "configz"


@pytest.mark.whole
def test_a_restart_by_scaling_that_is_killed_is_finished(lab: Lab, play: Player, chart: str) -> None:
    new = slower(chart, 90)
    running = play.module_start(MODULE, config=new, restart="scale", timeout="60s")
    until(lambda: not lab.api.get(koordinator.DEPLOYMENT)["spec"]["replicas"], 30, "it is scaled to 0")
    running.kill_all()
    assert lab.api.get(koordinator.DEPLOYMENT)["spec"]["replicas"] in (0, 1)
    done = roll(play, new, restart="scale")
    assert (done["outcome"] in ("restarted", "unchanged"), done["proof"]) == (True, "configz")
    assert lab.api.get(koordinator.DEPLOYMENT)["spec"]["replicas"] == 1
    assert roll(play, new)["outcome"] == "unchanged"


@pytest.mark.whole
def test_a_killed_rollout_of_a_bad_configuration_is_taken_back_by_the_next_call(
    lab: Lab, play: Player, chart: str
) -> None:
    before = state_of(lab)
    bad = refused_class(chart)
    running = play.module_start(MODULE, config=bad, timeout="60s")
    until(lambda: len(koordinator.descheduler_pods(lab)) == 2, 30, "the new pod is there")
    running.kill_all()
    assert journals(lab)
    answer = roll(play, bad, timeout="5s")
    assert answer["outcome"] == "rolled_back"
    assert state_of(lab) == before


@pytest.mark.whole
def test_running_jobs_are_waited_for_or_refused_and_deleted_once_their_process_is_gone(
    lab: Lab, play: Player, chart: str
) -> None:
    """A job of another process stays Running, as koord-descheduler ignores it."""
    before = state_of(lab)
    new = slower(chart, 80)
    pod = "/api/v1/namespaces/default/pods/waits"
    meta = {"name": "waits", "annotations": {"descheduler.alpha.kubernetes.io/evict": "true"}}
    container = {"name": "main", "image": "registry.invalid/app:1"}
    spec = {"schedulerName": "nobody", "containers": [container]}
    lab.api.create("/api/v1/namespaces/default/pods", {"kind": "Pod", "metadata": meta, "spec": spec})
    meta = {"name": "stranded", "annotations": {"koordinator.sh/job-created-by": "another"}}
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "metadata": meta}
    what = {"mode": "EvictDirectly", "podRef": {"namespace": "default", "name": "waits"}}
    lab.api.create(JOBS, {**body, "spec": what})
    try:
        lab.api.patch(f"{JOBS}/stranded/status", {"status": {"phase": "Running"}})
        refused = roll(play, new, running_jobs="refuse")
        assert refused["findings"][0]["code"] == "jobs_running"
        assert "stranded" in refused["msg"]
        late = roll(play, new, timeout="3s")
        assert late["findings"][0]["code"] == "jobs_running"
        assert state_of(lab) == before
        waiting = play.module_start(MODULE, config=new, timeout="90s")
        waiting.until_says("waiting for 1 PodMigrationJobs: stranded")
        assert state_of(lab) == before
        lab.api.delete(f"{koordinator.PODS}/{the_pod(lab)}")
        answer = waiting.wait().answer
        assert (answer["outcome"], answer["proof"]) == ("restarted", "configz")
        assert "stranded" not in [raw["metadata"]["name"] for raw in lab.api.items(JOBS)]
        assert "Delete PodMigrationJob stranded" in answer["actions"]
        assert "deletionTimestamp" not in lab.api.get(pod)["metadata"], "nobody moved what it was for"
    finally:
        lab.api.delete(f"{JOBS}/stranded")
        lab.api.delete(pod)


@pytest.mark.whole
def test_proofs_that_are_left_without_permissions(lab: Lab, play: Player, chart: str) -> None:
    """As somebody who may not forward ports the log is the proof; who may not read that has the lease."""
    for proof, core in {"log": ["pods/log"], "lease": []}.items():
        name, new = f"only-{proof}", slower(chart, 60 + len(proof))
        with rollouts.somebody(lab, name, *core):
            running = play.module_start(MODULE, env=play.impersonating(name), config=new, timeout="60s").wait()
            answer = running.answer
            assert (answer.get("outcome"), answer.get("proof")) == ("restarted", proof), running.text
            assert answer["running_config_matches"] is (True if proof == "log" else None)
            assert "pods/portforward" in answer["proof_note"]


def test_evictions_are_paused_and_given_back(lab: Lab, play: Player, chart: str) -> None:
    """By dryRun, so that jobs are still carried out; given back byte for byte, found without being named."""
    paused = play.module(MODULE, state="paused", timeout="60s").answer
    assert (paused["outcome"], paused["proof"]) == ("restarted", "configz")
    assert lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY] == chart.replace("dryRun: false", "dryRun: true")
    assert play.module(MODULE, state="paused", timeout="60s").answer["outcome"] == "unchanged"
    assert journals(lab)
    resumed = play.module(MODULE, state="resumed", timeout="60s").answer
    assert (resumed["outcome"], resumed["proof"]) == ("restarted", "configz")
    assert lab.api.get(koordinator.CONFIG)["data"] == {koordinator.KEY: chart}
    assert play.module(MODULE, state="resumed").answer["outcome"] == "unchanged"


def test_the_descheduler_of_sigs(lab: Lab, play: Player) -> None:
    """It shows its configuration nowhere; a policy that it refuses is taken back all the same."""
    assert lab.run_kubectl("apply", "--server-side", "-f", str(LAYOUTS / "sigs.yaml")).returncode == 0
    try:
        until(lambda: lab.api.get(SIGS)["status"].get("readyReplicas") == 1, 60, "it is ready")
        done = roll(play, SIGS_POLICY, flavor="sigs")
        assert (done["outcome"], done["proof"]) == ("restarted", "ready")
        assert roll(play, SIGS_POLICY, flavor="sigs")["outcome"] == "unchanged"
        before = lab.api.get(SIGS_CONFIG)["data"], lab.api.get(SIGS)["spec"]
        bad = json.loads(json.dumps(SIGS_POLICY))
        bad["profiles"][0]["pluginConfig"][0]["args"]["priorityThreshold"] = {"name": "no-such-class"}
        answer = roll(play, bad, flavor="sigs", timeout="12s")
        assert answer["outcome"] == "rolled_back"
        assert "no-such-class" in answer["reason"]
        assert (lab.api.get(SIGS_CONFIG)["data"], lab.api.get(SIGS)["spec"]) == before
    finally:
        lab.api.delete(SIGS)
        lab.api.delete(SIGS_CONFIG)


@pytest.mark.whole
def test_the_descheduler_of_sigs_as_a_cron_job(lab: Lab, play: Player) -> None:
    """Nothing is restarted, its next run reads what is there; paused it is suspended."""
    layout = yaml.safe_load((LAYOUTS / "sigs.yaml").read_text(encoding="utf-8"))["items"]
    template = next(item for item in layout if item["kind"] == "Deployment")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    container["args"] = ["--policy-config-file", "/policy-dir/policy.yaml", "--v", "3"]
    template["spec"]["restartPolicy"] = "Never"
    del container["livenessProbe"], template["spec"]["serviceAccountName"]
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"backoffLimit": 0, "template": template}}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "descheduler"}, "spec": spec}
    lab.api.create("/api/v1/namespaces/kube-system/configmaps", next(i for i in layout if i["kind"] == "ConfigMap"))
    lab.api.create("/apis/batch/v1/namespaces/kube-system/cronjobs", cron)
    try:
        done = roll(play, SIGS_POLICY, flavor="sigs")
        assert (done["outcome"], done["changed"], done["restarted"]) == ("changed", True, False)
        assert yaml.safe_load(lab.api.get(SIGS_CONFIG)["data"]["policy.yaml"]) == SIGS_POLICY
        assert roll(play, SIGS_POLICY, flavor="sigs")["outcome"] == "unchanged"
        assert play.module(MODULE, state="paused", flavor="sigs").answer["changed"]
        assert lab.api.get(CRON)["spec"]["suspend"]
        assert play.module(MODULE, state="resumed", flavor="sigs").answer["changed"]
        assert not lab.api.get(CRON)["spec"]["suspend"]
        made = lab.run_kubectl("-n", "kube-system", "create", "job", "at-once", "--from=cronjob/descheduler")
        assert made.returncode == 0, made.stderr
        until(lambda: lab.api.get(AT_ONCE)["status"].get("succeeded") == 1, 60, "its run with the new policy has ended")
    finally:
        lab.run_kubectl("-n", "kube-system", "delete", "job", "at-once", "--ignore-not-found")
        lab.api.delete(CRON)
        lab.api.delete(SIGS_CONFIG)


@pytest.mark.whole
def test_the_descheduler_of_ack(lab: Lab, play: Player) -> None:
    """As its documentation does it: the ConfigMap in kube-system, scaled to 0 and up again."""
    lab.api.patch(koordinator.DEPLOYMENT, {"spec": {"replicas": 0}})
    until(lambda: not koordinator.descheduler_pods(lab), 60, "the chart's descheduler is gone")
    assert lab.run_kubectl("apply", "--server-side", "-f", str(LAYOUTS / "ack.yaml")).returncode == 0
    try:
        until(lambda: lab.api.get(ACK)["status"].get("readyReplicas") == 1, 60, "it is ready")
        before, printed = lab.api.get(ACK_CONFIG)["data"], descheduling.PRINTED
        kept = roll(play, printed, flavor="ack", restart="scale", force_conflicts=False)
        assert [one["code"] for one in kept["findings"]] == ["field_conflict"]
        assert "kubectl applies data.koord-descheduler-config" in kept["msg"]
        assert lab.api.get(ACK_CONFIG)["data"] == before
        done = roll(play, printed, flavor="ack", restart="scale")
        assert (done["outcome"], done["proof"]) == ("restarted", "configz")
        assert {"left_out", "managed_by"} <= {one["rule"] for one in done["findings"]}
        assert lab.api.get(ACK_CONFIG)["data"] == descheduling.DOCUMENT["data"], "comments and all"
        assert roll(play, printed, flavor="ack", restart="scale")["outcome"] == "unchanged"
    finally:
        lab.api.delete(ACK)
        lab.api.delete(ACK_CONFIG)


@pytest.mark.whole
def test_one_play_from_cordon_to_the_new_configuration(lab: Lab, play: Player, arena: Arena, chart: str) -> None:
    """Evictions pause before the first node leaves; taint and configuration are there when the last one is back."""
    here, _there = arena.nodes(2)
    web = arena.deployment("web", 2, on=[here])
    arena.settle()
    new = yaml.safe_load(chart) | {"deschedulingInterval": "70s"}
    running = play.start(
        "maintain",
        maintain_nodes=[here],
        maintain_taints=["deschedule=not-allow:NoSchedule"],
        maintain_descheduler={"pause": True, "config": new, "timeout": "60s"},
    )
    until(lambda: "dryRun: true" in lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY], 60, "evictions pause")
    assert not (lab.api.get(f"/api/v1/nodes/{here}")["spec"].get("unschedulable"))
    run = running.wait()
    assert run.ok, run.text
    states_seen = [answer["outcome"] for answer in run.of(MODULE)]
    assert states_seen == ["restarted", "restarted"]
    assert run.of(MODULE)[-1]["proof"] == "configz"
    found = yaml.safe_load(lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY])
    assert found == new
    node = lab.api.get(f"/api/v1/nodes/{here}")["spec"]
    assert {"key": "deschedule", "value": "not-allow", "effect": "NoSchedule"} in node.get("taints", [])
    assert not node.get("unschedulable")
    assert all(pod["spec"]["nodeName"] != here for pod in web.pods())


@pytest.mark.whole
def test_release_gives_back_what_evacuate_paused(lab: Lab, play: Player, arena: Arena, chart: str) -> None:
    (here,) = arena.nodes(1)
    arena.settle()
    evacuated = play("evacuate", maintain_nodes=[here], maintain_descheduler={"pause": True, "timeout": "60s"})
    assert evacuated.ok, evacuated.text
    assert "dryRun: true" in lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
    left = play.module("maintenance_state", state="listed").answer["traces"]
    assert any("evictions by Deployment koordinator-system/koord-descheduler are paused" in x["what"] for x in left)
    released = play("release", maintain_nodes=[here])
    assert released.ok, released.text
    assert lab.api.get(koordinator.CONFIG)["data"] == {koordinator.KEY: chart}
    assert released.of(MODULE)[-1]["proof"] == "configz"


@pytest.mark.whole
def test_names_that_are_not_there(lab: Lab, play: Player, chart: str) -> None:
    before = state_of(lab)
    typo = roll(play, chart, deployment="koord-deschduler")
    assert typo["findings"][0]["code"] == "unknown_deployment"
    assert "Did you mean deployment: koord-descheduler?" in typo["msg"]
    other = roll(play, chart, config_map="koord-config")
    assert other["findings"][0]["code"] == "not_mounted"
    assert "koord-descheduler-config" in other["msg"]
    key = roll(play, chart, key="config.yaml")
    assert key["findings"][0]["code"] == "not_mounted"
    assert state_of(lab) == before
