# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Waves by the room that is left: nodes whose pods fit nowhere while all of them are out leave in smaller waves.

Which nodes these are is found by forecasts: of a wave with a pod that fits nowhere now, but would if the nodes left one
after the other, at most half as many nodes share a wave, until all such pods fit or smaller waves do not help.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import pod_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import forecast
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import waves

Placed: t.TypeAlias = t.Mapping[str, forecast.Forecast]

WORDS = "with pods that need the same room"
MOST_FORECASTS = 8
"""How many waves are tried at most: halves of 256 nodes."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Waves with the forecast of each pod that moves, by UID."""

    formed: waves.Formed
    placed: Placed

    @property
    def lost(self) -> frozenset[str]:
        """The pods that fit nowhere."""
        return frozenset(uid for uid, one in self.placed.items() if one.fits is False)


class Shaping:
    """The waves of nodes with these pods; ``form`` gives them under further shares, ``foresee`` their forecast.

    ``together`` are nodes that share a wave.
    """

    def __init__(
        self,
        plans: t.Iterable[pod_plan.PodPlan],
        together: t.Iterable[t.Collection[str]],
        form: t.Callable[[tuple[waves.Share, ...]], waves.Formed],
        foresee: t.Callable[[t.Sequence[t.Collection[str]]], Placed],
    ) -> None:
        self._node = {plan.pod.uid: plan.pod.node for plan in plans}
        self._leader = {name: min(gang) for gang in together for name in gang}
        self._form, self._foresee = form, foresee

    def shaped(self, formed: waves.Formed) -> Foreseen:
        """The waves in which the fewest pods fit nowhere; these as they are if smaller ones do not help."""
        best = last = Foreseen(formed, self._foresee(formed.waves))
        helped = best.lost - self._lost_alone(best) if best.lost else frozenset()
        shares: tuple[waves.Share, ...] = ()
        for _number in range(MOST_FORECASTS):
            narrower = self._narrower(last, helped, shares)
            if narrower == shares:
                break
            shares = narrower
            formed = self._form(shares)
            last = Foreseen(formed, self._foresee(formed.waves))
            if len(last.lost) < len(best.lost):
                best = last
        return best

    def _narrower(
        self, seen: Foreseen, helped: frozenset[str], shares: tuple[waves.Share, ...]
    ) -> tuple[waves.Share, ...]:
        """For each wave with such pods that fit nowhere: half as many of its nodes, and of those they shared with."""
        hit = {self._node[uid] for uid in seen.lost & helped}
        for wave in seen.formed.waves:
            units = self._units(wave)
            if len(units) > 1 and hit.intersection(wave):
                takes = {unit[0]: 1 for unit in units}
                same = [share for share in shares if share.takes.keys() & takes.keys()]
                most = min([len(units) // 2, *(share.most for share in same)])
                for share in same:
                    takes.update(share.takes)
                others = (share for share in shares if share not in same)
                shares = (*others, waves.Share("room", most, takes, WORDS))
        return shares

    def _lost_alone(self, seen: Foreseen) -> frozenset[str]:
        """The pods that fit nowhere although the nodes of their wave leave one after the other."""
        hit = {self._node[uid] for uid in seen.lost}
        crowded = [wave for wave in seen.formed.waves if len(wave) > 1 and hit.intersection(wave)]
        apart = [unit for wave in crowded for unit in self._units(wave)]
        fits = {uid for uid, one in self._foresee(apart).items() if one.fits} if apart else frozenset()
        return seen.lost - fits

    def _units(self, wave: t.Iterable[str]) -> list[list[str]]:
        """Its nodes one by one, those that leave together as one."""
        units = collections.defaultdict[str, list[str]](list)
        for name in wave:
            units[self._leader.get(name, name)].append(name)
        return list(units.values())
