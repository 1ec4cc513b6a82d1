# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results of a run that never was, in the shape the modules return, of any size."""

from __future__ import annotations

import datetime
import itertools
import random
import typing as t

Json = dict[str, t.Any]

START = datetime.datetime(2025, 3, 14, 2, 58, 3, 120_000, tzinfo=datetime.UTC)
APPS = ("web", "api", "cart", "search", "mail", "auth", "queue", "feed", "media", "audit")
NAMESPACES = ("shop", "billing", "platform", "ml")
RUN = "r-7f3a91"
NONCE = "n0nce-must-not-show"
BUDGET_RULE = "needs 2 ready pods (minAvailable: 2), has 2: no disruption allowed now"


def at(seconds: float) -> str:
    """An instant of the sample run."""
    when = START + datetime.timedelta(seconds=seconds)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Sample:
    """A roll over some nodes, wave by wave; the same seed gives the same results."""

    def __init__(
        self,
        nodes: int = 3,
        pods: int = 14,
        *,
        per_wave: int = 1,
        out: float = 95.0,
        fail_tasks: t.Collection[int] = (),
        dark: bool = False,
        seed: int = 7,
    ) -> None:
        self.random = random.Random(seed)
        self.clock = 0.0
        self.out = out
        self.dark = dark
        self.fail_tasks = fail_tasks
        self.names = [f"worker-{n:02d}" for n in range(1, nodes + 1)]
        self.waves = [self.names[i : i + per_wave] for i in range(0, nodes, per_wave)]
        self.pods = {node: self._pods(node, index, pods) for index, node in enumerate(self.names)}
        self.ready: dict[tuple[str, str], int] = {}
        for pod in itertools.chain(*self.pods.values()):
            if pod["app"]:
                key = (pod["namespace"], pod["app"])
                self.ready[key] = 1 if pod["route"] == "swap" else 3
        self.results: list[Json] = [self._plan()]
        for index, wave in enumerate(self.waves):
            self._wave(index, wave)

    def _pods(self, node: str, index: int, amount: int) -> list[Json]:
        found = [
            self._pod(node, "kube-system", f"{ds}-{self._tag()}", "skip", "daemonset")
            for ds in ("cni", "node-exporter")
        ]
        for n in range(amount):
            number = index * amount + n
            app = APPS[number % len(APPS)] + ("" if number < 40 else f"-{number // 40}")
            namespace = NAMESPACES[(number // 3) % len(NAMESPACES)]
            route = "swap" if n % 6 == 1 else "evict"
            pod = self._pod(
                node,
                namespace,
                f"{app}-{self._tag(10)}-{self._tag()}",
                route,
                "single_replica" if route == "swap" else "replicas",
            )
            found.append({**pod, "app": app, "owner": f"Deployment {namespace}/{app}"})
        return found

    def _tag(self, length: int = 5) -> str:
        return "".join(self.random.choices("bcdfghjklmnpqrstvwxz2456789", k=length))

    def _pod(self, node: str, namespace: str, name: str, route: str, reason: str) -> Json:
        return {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{name}",
            "node": node,
            "owner": "DaemonSet kube-system/cni",
            "route": route,
            "reason": reason,
            "app": "",
        }

    def _plan(self) -> Json:
        pods = [
            {k: v for k, v in pod.items() if k != "app"} | {"fits": None, "target": None}
            for pod in itertools.chain(*self.pods.values())
        ]
        findings = [
            {
                "code": "single_replica",
                "severity": "info",
                "object": "Deployment shop/api",
                "message": "It has one replica; a second one is started before the first one ends.",
                "remedy": "",
            },
            {
                "code": "cordoned_before",
                "severity": "warning",
                "object": "Node worker-02",
                "message": "It was cordoned before by somebody else and stays cordoned afterwards.",
                "remedy": "kubectl uncordon worker-02, if it is meant to take pods.",
            },
        ]
        return {
            "changed": False,
            "feasible": True,
            "findings": findings,
            "pods": pods,
            "waves": self.waves,
            "estimate_seconds": 11.0 * len(self.waves),
            "actions": [],
            "invocation": {"module_args": {"api_key": "sha256~secret-token"}},
        }

    def _event(self, node: str, what: str, message: str, ns: str = "", name: str = "") -> Json:
        return {"at": at(self.clock), "node": node, "namespace": ns, "name": name, "what": what, "message": message}

    def _nodes(self, wave: list[str], outcome: str) -> list[Json]:
        record = {
            "run": RUN,
            "by": "mira@bastion",
            "reason": "kernel 6.12.9, CHG-4711",
            "since": at(0),
            "step": outcome,
        }
        return [{"name": n, "outcome": outcome, "message": "", "record": record} for n in wave]

    def _add(self, events: list[Json], **more: t.Any) -> None:
        self.results.append({"changed": True, "run": f"{RUN}/{NONCE}", "timeline": events, **more})

    def _step(self, wave: list[str], what: str, message: str, outcome: str = "") -> None:
        events = []
        for node in wave:
            events.append(self._event(node, what, message))
            self.clock += 0.02
        self._add(events, nodes=self._nodes(wave, outcome or what))

    def _wave(self, index: int, wave: list[str]) -> None:
        self._step(wave, "cordoned", "cordoned and held by our taint")
        self.clock += 0.8
        self._protect(wave)
        self.clock += 0.6
        self._drain(wave)
        self.clock += 1.1
        self._step(wave, "out", "proof checked, the tasks may run")
        self.clock += self.out * self.random.uniform(0.9, 1.15)
        failed = [n for n in wave if self.names.index(n) in self.fail_tasks]
        good = [n for n in wave if n not in failed]
        if failed:
            self.results.append(
                {
                    "nodes": [
                        {
                            "name": n,
                            "outcome": "failed_tasks",
                            "message": "apt-get: dpkg was interrupted. The node stays out of service; run the "
                            f"same command again, or release with -e maintain_run={RUN}.",
                        }
                        for n in failed
                    ]
                }
            )
            self._step(failed, "parked", "stays out of service, lock released")
        if good:
            self._step(good, "returning", "our taint lifted, gates follow")
            self.clock += self.random.uniform(3, 8)
            events = [self._event(n, "given_back", "taint and cordon removed as recorded") for n in good]
            if index == 1:
                events.append(self._event(good[0], "kept", "cordoned before us: stays cordoned"))
            self._add(events, nodes=self._nodes(good, "returning"))
            self._step(good, "uncordoned", "back in service")
        self.clock += 1.4

    def _protect(self, wave: list[str]) -> None:
        events, workloads = [], []
        singles = [p for node in wave for p in self.pods[node] if p["route"] == "swap"]
        for pod in singles:
            events.append(self._event(pod["node"], "raised", "1 to 2 replicas", pod["namespace"], pod["app"]))
            self.clock += 0.05
        self.clock += self.random.uniform(3.5, 5.5)
        for pod in singles:
            events.append(self._event(pod["node"], "ready", "newcomer ready elsewhere", pod["namespace"], pod["app"]))
            self.clock += 0.15
            workloads.append(
                {
                    "kind": "Deployment",
                    "namespace": pod["namespace"],
                    "name": pod["app"],
                    "replicas_before": 1,
                    "replicas_during": 2,
                    "budget": "",
                    "outcome": "surged",
                }
            )
        guarded = sorted({(p["namespace"], p["app"]) for n in wave for p in self.pods[n] if p["route"] == "evict"})
        for ns, app in guarded[:2]:
            workloads.append(
                {
                    "kind": "Deployment",
                    "namespace": ns,
                    "name": app,
                    "replicas_before": 3,
                    "replicas_during": 3,
                    "budget": f"kubeops-guard-{app}",
                    "outcome": "guarded",
                }
            )
        self._add(events, workloads=workloads)

    def _drain(self, wave: list[str]) -> None:
        begin = self.clock
        events: list[Json] = []
        samples = {key: [[at(begin), n]] for key, n in self.ready.items()}
        entries: dict[str, list[Json]] = {node: [] for node in wave}
        refused = 0
        timed: list[tuple[float, Json]] = []
        for node in wave:
            for n, pod in enumerate(self.pods[node]):
                entry = {k: v for k, v in pod.items() if k != "app"} | {"outcome": "skipped", "waited_seconds": 0.0}
                entries[node].append(entry)
                if pod["route"] == "skip":
                    continue
                now = begin + 0.1 + n * 0.12
                place = (pod["namespace"], pod["app"])

                def tell(when: float, what: str, message: str, pod: Json = pod) -> None:
                    self.clock = when
                    timed.append((when, self._event(pod["node"], what, message, pod["namespace"], pod["name"])))

                if n % 7 == 4:
                    for _ in range(3):
                        tell(now, "refused", BUDGET_RULE)
                        refused += 1
                        now += self.random.uniform(0.8, 1.6)
                    entry["blocked_by"] = {
                        "kind": "PodDisruptionBudget",
                        "namespace": pod["namespace"],
                        "name": pod["app"],
                        "message": BUDGET_RULE,
                    }
                else:
                    tell(now - 0.05, "waiting", "its turn comes")
                ended = now + self.random.uniform(1.0, 4.5)
                tell(now, "lowered" if pod["route"] == "swap" else "evicted", "told to end")
                tell(ended, "gone", "ended; replacement ready")
                entry |= {
                    "outcome": "swapped" if pod["route"] == "swap" else "evicted",
                    "waited_seconds": round(now - begin, 1),
                }
                if pod["route"] == "evict":
                    back = now + self.random.uniform(2, 5)
                    samples[place] += [[at(now), 2], [at(back), 3]]
                elif self.dark and pod["app"] == "api":
                    samples[place] += [[at(now), 0], [at(now + 5.02), 1]]
                    ended = max(ended, now + 5.02)
        timed.sort(key=lambda pair: pair[0])
        events = [event for _when, event in timed]
        self.clock = max([when for when, _event in timed], default=begin) + 0.9
        for found in samples.values():
            found.sort()
            last = found[-1][1]
            found.append([at(self.clock), last])
        drained = [self._event(node, "drained", "nothing left that had to go") for node in wave]
        evicted = sum(p["outcome"] == "evicted" for node in wave for p in entries[node])
        self._add(
            events + drained,
            nodes=[{"name": n, "outcome": "drained", "message": "", "pods": entries[n]} for n in wave],
            summary={
                "evicted": evicted,
                "migrated": 0,
                "skipped": 2 * len(wave),
                "failed": 0,
                "requests": evicted + refused + 15 + 2 * len(wave),
                "seconds": round(self.clock - begin, 1),
            },
            services=[
                {"namespace": ns, "name": app, "desired": self.ready[ns, app], "samples": found}
                for (ns, app), found in samples.items()
            ],
        )
