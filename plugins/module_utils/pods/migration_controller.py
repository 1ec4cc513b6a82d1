# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The live MigrationController of koord-descheduler: its arguments,
and how much it lets migrate at once.

Read in the sources of koordinator v1.7.0 and v1.8.0: limits in
``controllers/migration/util/util.go``, the object limiter in
``controllers/migration/controller.go``.
"""

from __future__ import annotations

import math
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects

Amount: t.TypeAlias = "int | str | None"
"""A number, a percentage such as ``10%``, or nothing (then it is derived from the replicas)."""


@dataclass(frozen=True, slots=True)
class Limiter:
    """An object limiter: a token bucket of ``burst`` tokens,
    filled with ``maximum`` in ``seconds``.

    It counts evictions by its own process and forgets them at a restart. ``maximum`` ``None`` means
    the limit per workload (scope workload) or no limiter at all (scope namespace).
    """

    seconds: float
    maximum: Amount = None
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Controller:
    """The arguments of the MigrationController, named as in the configuration; times in seconds.

    A limit of 0 means none. What ``skipEvictionGates`` of v1.8.0 disables is disabled here too;
    ``skipped`` has the gates' names. ``profiles`` are the names of all profiles with a
    MigrationController: each of them works on every job that was created by hand.
    """

    profiles: tuple[str, ...] = ("koord-descheduler",)
    default_job_mode: str = "ReservationFirst"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    label_selector: objects.Raw | None = None
    evict_local_storage_pods: bool = False
    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    priority_threshold: int | None = None
    skip_check_expected_replicas: bool = False
    max_migrating_globally: int = 0
    max_migrating_per_node: int = 2
    max_migrating_per_namespace: int = 0
    max_migrating_per_workload: Amount = None
    max_unavailable_per_workload: Amount = None
    object_limiters: t.Mapping[str, Limiter] = field(
        default_factory=lambda: {"workload": Limiter(300.0)}
    )
    eviction_policy: str = "Eviction"
    evict_qps: float = 10.0
    scheduler_names: tuple[str, ...] = ("koord-scheduler",)
    skipped: frozenset[str] = frozenset()


def argument(field_name: str) -> str:
    """The configuration's name of a field of ``Controller``."""
    return re.sub("_(.)", lambda found: found[1].upper(), field_name)


def several(controller: Controller) -> str:
    """A note if more than one profile has a MigrationController; else empty."""
    if len(controller.profiles) < 2:
        return ""
    have = f"The profiles {', '.join(controller.profiles)} each have a MigrationController"
    return f"{have}: each works on every job, and each can refuse it."


def per_workload(controller: Controller, replicas: int) -> tuple[int, int]:
    """How many of its pods may migrate, and be unavailable, at once (``GetMaxUnavailable``)."""
    limits = (controller.max_migrating_per_workload, controller.max_unavailable_per_workload)
    return scaled(limits[0], replicas), scaled(limits[1], replicas)


def scaled(amount: Amount, replicas: int) -> int:
    """A percentage is rounded down, at least 1 and at most ``replicas``; ``None`` is derived."""
    if amount is None and replicas > 10:
        amount = "10%"
    elif amount is None:
        amount = 2 if replicas >= 4 else 1
    if isinstance(amount, str):
        amount = math.floor(replicas * int(amount.rstrip("%")) / 100)
    return min(amount or 1, replicas)


def interval(controller: Controller, scope: str, replicas: int) -> tuple[float, int]:
    """Seconds between two evictions of an object once its ``burst`` is used up,
    and that burst; (0, 0) without.

    Scopes are ``workload`` (a pod's controller: of a Deployment each ReplicaSet counts
    alone) and ``namespace``.
    """
    limiter = controller.object_limiters.get(scope)
    if limiter is None or limiter.seconds <= 0:
        return 0.0, 0
    maximum = limiter.maximum
    if scope == "namespace":
        # A percentage is read as 0 here, and 0 as no limiter (trackEvictedPod).
        rate = maximum if isinstance(maximum, int) else 0
    else:
        most = controller.max_migrating_per_workload if maximum is None else maximum
        rate = scaled(most, replicas)
    return (limiter.seconds / rate, limiter.burst) if rate else (0.0, 0)
