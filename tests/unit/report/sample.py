# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results of a run that never was, in the shape the modules return, of any size."""

from __future__ import annotations

import collections
import datetime
import random
import typing as t

Json = dict[str, t.Any]

START = datetime.datetime(2025, 3, 14, 2, 58, 3, 120_000, tzinfo=datetime.UTC)
APPS = ("web", "api", "cart", "search", "mail", "auth", "queue", "feed", "media", "audit", "geo", "tax", "stock")
NAMESPACES = ("shop", "billing", "platform")
RUN = "r-7f3a91"
NONCE = "n0nce-must-not-show"
TOKEN = "sha256~token-must-not-show"
RULE = "Cannot evict: the disruption budget needs 2 healthy pods and has 2 currently"
STARTS = 5.0
"""Seconds that a new pod needs to be ready."""
PHASES = {
    "raised": "protecting",
    "ready": "protecting",
    "lowered": "draining",
    "refused": "draining",
    "evicted": "draining",
    "gone": "draining",
    "uncordoned": "back",
}
"""The phase that an event of this kind begins, where it is not called like the event."""


def at(seconds: float) -> str:
    """An instant of the sample run."""
    when = START + datetime.timedelta(seconds=seconds)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def phase_of(what: str) -> str:
    """The phase of a node after an event of this kind; empty where that begins none."""
    named = ("cordoned", "drained", "out", "returning", "parked")
    return what if what in named else PHASES.get(what, "")


class Sample:
    """A roll over some nodes, wave by wave; the same arguments give the same ``results``.

    Every sixth pod is a single replica and surged, every seventh is refused three times first.
    ``dark`` evicts the single replicas instead.
    """

    def __init__(
        self,
        nodes: int = 3,
        pods: int = 14,
        *,
        per_wave: int = 1,
        out: float = 95.0,
        fail_tasks: t.Collection[int] = (),
        dark: bool = False,
    ) -> None:
        self.random = random.Random(7)
        self.clock = 0.0
        self.out, self.dark, self.fail_tasks = out, dark, fail_tasks
        self.names = [f"worker-{n:02d}" for n in range(1, nodes + 1)]
        self.waves = [self.names[i : i + per_wave] for i in range(0, nodes, per_wave)]
        self.pods = {node: self._pods(node, index * pods, pods) for index, node in enumerate(self.names)}
        self.results: list[Json] = [self._plan()]
        for wave in self.waves:
            self._wave(wave)

    def _tag(self, length: int) -> str:
        return "".join(self.random.choices("bcdfghjklmnpqrstvwxz2456789", k=length))

    def _pods(self, node: str, first: int, amount: int) -> list[Json]:
        found = [
            self._pod(node, "kube-system", name, "skip", "daemonset", f"DaemonSet kube-system/{name}")
            for name in ("cni", "node-exporter")
        ]
        for n in range(amount):
            space, app = NAMESPACES[(first + n) % 3], APPS[(first + n) % 13]
            route, code = ("surge", "single_replica") if n % 6 == 1 and not self.dark else ("evict", "replicas")
            if n % 6 == 1:
                app, code = f"{app}-{first + n}", "interruption_allowed" if self.dark else code
            pod = self._pod(node, space, f"{app}-{self._tag(10)}", route, code, f"Deployment {space}/{app}")
            if n % 7 == 4:
                pod["budgets"] = [f"PodDisruptionBudget {space}/{app}"]
            found.append({**pod, "app": app, "single": n % 6 == 1})
        return found

    def _pod(self, node: str, space: str, name: str, route: str, code: str, owner: str) -> Json:
        name = f"{name}-{self._tag(5)}"
        place = {"namespace": space, "name": name, "uid": f"uid-{name}", "node": node}
        why = {"code": code, "reason": f"A sentence about {code}.", "remedy": ""}
        return {**place, "owner": owner, "route": route, **why}

    def _foreseen(self, index: int, pod: Json) -> Json:
        """What the forecast says of a pod on the node before the node of this index."""
        if pod["route"] == "skip":
            return {"fits": None, "target": None, "seconds": None}
        return {"fits": True, "target": self.names[index % len(self.names)], "seconds": 12.5 if pod["single"] else 6.0}

    def _plan(self) -> Json:
        pods = [
            {**{key: value for key, value in pod.items() if key not in ("app", "single")}, **self._foreseen(index, pod)}
            for index, found in enumerate(self.pods.values(), start=1)
            for pod in found
        ]
        warning = {
            "code": "cordoned_before",
            "severity": "warning",
            "object": "Node worker-02",
            "message": "It was cordoned before by somebody else and stays cordoned afterwards.",
            "remedy": "kubectl uncordon worker-02, if it is meant to take pods.",
        }
        info = {
            "code": "single_replica",
            "severity": "info",
            "object": "Deployment billing/api",
            "message": "It has one replica: a second one is started before the first one ends.",
            "remedy": "",
        }
        return {
            "changed": False,
            "failed": False,
            "feasible": True,
            "findings": [info, warning],
            "pods": pods,
            "waves": self.waves,
            "nodes": [{"name": n, "outcome": "planned", "failed": False, "message": ""} for n in self.names],
            "estimate_seconds": 11.0 * len(self.waves),
            "actions": [],
            "invocation": {"module_args": {"api_key": TOKEN}},
        }

    def _event(self, node: str, what: str, message: str, space: str = "", name: str = "") -> Json:
        place = {"node": node, "namespace": space, "name": name}
        return {"at": at(self.clock), **place, "what": what, "message": message, "phase": phase_of(what)}

    def _add(self, events: t.Iterable[Json], **more: t.Any) -> None:
        timeline = sorted(events, key=lambda event: event["at"])
        actions = [event["message"] for event in timeline if event["what"] in ("evicted", "raised", "lowered")]
        self.results.append({"changed": True, "failed": False, "timeline": timeline, "actions": actions, **more})

    def _step(self, nodes: list[str], state: str, message: str) -> None:
        events, shown = [], []
        for node in nodes:
            events.append(self._event(node, state, f"{message} {node}"))
            self.clock += 0.02
            kept = ["it was cordoned before and stays so"] if node == "worker-02" else []
            record = {"run": RUN, "by": "mira@bastion", "reason": "kernel 6.12.9, CHG-4711", "step": state}
            shown.append(
                {"name": node, "outcome": state, "failed": False, "message": "", "kept": kept, "record": record}
            )
        self._add(events, nodes=shown, run=f"{RUN}/{NONCE}")

    def _wave(self, wave: list[str]) -> None:
        self._step(wave, "cordoned", "Cordon")
        self.clock += 0.8
        self._protect(wave)
        self.clock += 0.6
        self._drain(wave)
        self.clock += 1.1
        self._step(wave, "out", "Hand over to the tasks:")
        self.clock += self.out * self.random.uniform(0.9, 1.15)
        failed = [node for node in wave if self.names.index(node) in self.fail_tasks]
        if failed:
            message = f"apt-get: dpkg was interrupted. Run the same command again, or release run {RUN}."
            self.results.append({"nodes": [{"name": n, "outcome": "failed_tasks", "message": message} for n in failed]})
            self._step(failed, "parked", "Keep out of service:")
        good = [node for node in wave if node not in failed]
        self._step(good, "returning", "Lift our taint from")
        self.clock += self.random.uniform(3, 8)
        self._step(good, "uncordoned", "Give back")
        self.clock += 1.4

    def _protect(self, wave: list[str]) -> None:
        events, workloads = [], []
        singles = [pod for node in wave for pod in self.pods[node] if pod["route"] == "surge"]
        for pod in singles:
            place = {"namespace": pod["namespace"], "name": pod["app"]}
            events.append(self._event(pod["node"], "raised", "1 to 2 replicas", *place.values()))
            self.clock += 0.05
            counts = {"replicas_before": 1, "replicas_during": 2, "budget": ""}
            workloads.append({"kind": "Deployment", **place, **counts, "outcome": "surged"})
        self.clock += STARTS
        for pod in singles:
            events.append(self._event(pod["node"], "ready", "newcomer serves", pod["namespace"], pod["app"]))
            self.clock += 0.15
        self._add(events, workloads=workloads)

    def _drain(self, wave: list[str]) -> None:
        begin = self.clock
        events: list[Json] = []
        shown: dict[str, list[Json]] = {node: [] for node in wave}
        turns: dict[tuple[str, str], list[tuple[float, int]]] = collections.defaultdict(list)
        refusals, latest = 0, begin
        for node in wave:
            for n, pod in enumerate(self.pods[node]):
                entry = {key: pod[key] for key in ("namespace", "name", "uid", "route", "reason")}
                shown[node].append({**entry, "outcome": "daemonset", "waited_seconds": 0.0})
                if pod["route"] == "skip":
                    continue
                place = (pod["namespace"], pod["name"])
                self.clock = begin + 0.1 + n * 0.12
                for _unused in range(3 if "budgets" in pod else 0):
                    events.append(self._event(node, "refused", RULE, *place))
                    refusals += 1
                    self.clock += self.random.uniform(0.8, 1.6)
                service = (pod["namespace"], pod["app"])
                what = (node, "evicted", f"Evict Pod {place[0]}/{place[1]} from node {node}", *place)
                if pod["route"] == "surge":
                    what = (node, "lowered", f"Scale Deployment {'/'.join(service)} from 2 to 1", *service)
                events.append(self._event(*what))
                turns[service].append((self.clock, -1))
                if pod["route"] == "evict":
                    turns[service].append((self.clock + STARTS * (1 if pod["single"] else 0.7), 1))
                self.clock += self.random.uniform(1.0, 4.5)
                outcome = "surged" if pod["route"] == "surge" else "evicted"
                events.append(self._event(node, "gone", outcome, *place))
                shown[node][-1] |= {"outcome": outcome, "waited_seconds": round(self.clock - begin, 3)}
                latest = max(latest, self.clock, *(when for when, _step in turns[service]))
        self.clock = latest + 0.9
        events += [self._event(node, "drained", f"Node {node} is drained.") for node in wave]
        outcomes = collections.Counter(pod["outcome"] for node in wave for pod in shown[node])
        self._add(
            events,
            nodes=[{"name": n, "outcome": "drained", "message": "", "kept": [], "pods": shown[n]} for n in wave],
            summary={
                "evicted": outcomes["evicted"],
                "migrated": outcomes["surged"],
                "skipped": outcomes["daemonset"],
                "failed": 0,
                "refusals": refusals,
                "requests": outcomes["evicted"] + refusals + 18 + 2 * len(wave),
                "seconds": round(self.clock - begin, 3),
            },
            services=[
                {"namespace": space, "name": app, "samples": self._samples(begin, (space, app), steps)}
                for (space, app), steps in sorted(turns.items())
            ],
        )

    def _samples(self, begin: float, service: tuple[str, str], steps: list[tuple[float, int]]) -> list[list[t.Any]]:
        single = service[1][-1].isdigit()
        ready = (1 if self.dark else 2) if single else 3
        found: list[list[t.Any]] = [[at(begin), ready]]
        for when, step in sorted(steps):
            ready += step
            found.append([at(when), ready])
        return [*found, [at(self.clock), ready]]
