# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The live MigrationController, read from koord-descheduler's configuration.

Read in the sources of koordinator v1.7.0 and v1.8.0: defaults in
``apis/config/v1alpha2/defaults.go``, limits in ``controllers/migration/util/util.go``, the object
limiter in ``controllers/migration/controller.go``, ``skipEvictionGates`` in
``controllers/migration/arbitrator/filter.go`` of v1.8.0.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    koordinator,
    profiles,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
)

PLUGIN = "MigrationController"
KIND = "DeschedulerConfiguration"


_WORDS: t.Mapping[tuple[type, ...], str] = {
    (bool,): "true or false",
    (str,): "a text",
    (int,): "a whole number",
    (list,): "a list",
    (dict,): "keys and values",
    (int, str): "a whole number or a percentage",
    (int, float, str): "a number",
}


class UnreadableError(ValueError):
    """No running koord-descheduler can have this configuration; the message names the key."""


class IdleError(UnreadableError):
    """The configuration can run, but nothing works on PodMigrationJobs then."""


def controller(config: t.Any) -> migration_controller.Controller:
    """The MigrationController of a ``DeschedulerConfiguration``,
    completed with the defaults of v1.7.0.

    Of several profiles the first with a MigrationController is read.

    Raises:
        UnreadableError: it is another document, has no MigrationController,
            or a value has the wrong type.
    """
    if not isinstance(config, dict) or config.get("kind") != KIND:
        given = config.get("kind") if isinstance(config, dict) else type(config).__name__
        raise UnreadableError(f"it is no {KIND} (its kind is {given})")
    found = profiles.profiles_of(config, koordinator.schema(koordinator.VERSIONS[-1]))
    raws = config.get("profiles") or [{}]
    active = [
        (raw, profile)
        for raw, profile in zip(raws, found, strict=False)
        if PLUGIN in profile.plugins
    ]
    if not active:
        raise IdleError(
            f"no profile has the plugin {PLUGIN}, so nothing carries out PodMigrationJobs"
        )
    names = tuple(str(raw.get("name") or "koord-descheduler") for raw, _profile in active)
    profile = active[0][1]
    return _controller(_Args(profile.args.get(PLUGIN, {}), profile.args_path(PLUGIN)), names)


def _controller(args: _Args, names: tuple[str, ...]) -> migration_controller.Controller:
    skipped = frozenset(args.texts("skipEvictionGates"))

    def unless(gate: str, value: t.Any, off: t.Any) -> t.Any:
        return off if gate in skipped else value

    namespaces, threshold = args.inner("namespaces"), args.inner("priorityThreshold")
    return migration_controller.Controller(
        profiles=names,
        default_job_mode=args.get("defaultJobMode", "ReservationFirst") or "ReservationFirst",
        include=unless("Namespaces", namespaces.texts("include"), ()),
        exclude=unless("Namespaces", namespaces.texts("exclude"), ()),
        label_selector=unless("LabelSelector", args.get("labelSelector", None, dict), None),
        evict_local_storage_pods=unless(
            "LocalStorage", args.get("evictLocalStoragePods", False), True
        ),
        evict_failed_bare_pods=unless("BarePods", args.get("evictFailedBarePods", False), True),
        evict_all_bare_pods=unless("BarePods", args.get("evictAllBarePods", False), True),
        evict_system_critical_pods=unless(
            "SystemCritical", args.get("evictSystemCriticalPods", False), True
        ),
        ignore_pvc_pods=unless("PVC", args.get("ignorePvcPods", False), False),
        priority_threshold=unless("PriorityThreshold", threshold.get("value", None, int), None),
        skip_check_expected_replicas=unless(
            "ExpectedReplicas", args.get("skipCheckExpectedReplicas", False), True
        ),
        max_migrating_globally=unless(
            "MaxMigratingGlobally", args.get("maxMigratingGlobally", 0), 0
        ),
        max_migrating_per_node=unless("MaxMigratingPerNode", args.get("maxMigratingPerNode", 2), 0),
        max_migrating_per_namespace=unless(
            "MaxMigratingPerNamespace", args.get("maxMigratingPerNamespace", 0), 0
        ),
        max_migrating_per_workload=args.amount("maxMigratingPerWorkload"),
        max_unavailable_per_workload=args.amount("maxUnavailablePerWorkload"),
        object_limiters=_limiters(args),
        eviction_policy=args.get("evictionPolicy", "Eviction") or "Eviction",
        evict_qps=args.number("evictQPS", 10.0),
        scheduler_names=args.texts("schedulerNames") or ("koord-scheduler",),
        skipped=skipped,
    )


def _limiters(args: _Args) -> t.Mapping[str, migration_controller.Limiter]:
    given = args.get("objectLimiters", {})
    if not given:
        return {"workload": migration_controller.Limiter(300.0)}
    found = {}
    for scope in ("workload", "namespace"):
        if scope in given:
            inner = args.inner("objectLimiters").inner(scope)
            # GetLimiterBurst: 0 means 1.
            found[scope] = migration_controller.Limiter(
                inner.duration("duration", 0.0),
                inner.amount("maxMigrating"),
                inner.get("burst", 1) or 1,
            )
    return found


@dataclass(frozen=True, slots=True)
class _Args:
    """A part of the arguments; reads values by type and names the path of one that has another."""

    raw: objects.Raw
    path: str

    def inner(self, name: str) -> _Args:
        return _Args(self.get(name, {}), f"{self.path}.{name}")

    def get(self, name: str, default: t.Any, *kinds: type) -> t.Any:
        """The value, of the default's type or of ``kinds``; the default if it is not set."""
        kinds = kinds or (type(default),)
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self._wrong(name, _WORDS[kinds])
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(map(str, self.get(name, [])))

    def number(self, name: str, default: float) -> float:
        value = self.get(name, default, int, float, str)
        try:
            return float(value)
        except ValueError:
            raise self._wrong(name, _WORDS[int, float, str]) from None

    def amount(self, name: str) -> migration_controller.Amount:
        value = self.get(name, None, int, str)
        if isinstance(value, str) and not value.removesuffix("%").isdigit():
            raise self._wrong(name, _WORDS[int, str])
        return t.cast("migration_controller.Amount", value)

    def duration(self, name: str, default: float) -> float:
        value = self.raw.get(name)
        if value is None:
            return default
        found = durations.go_seconds(value)
        if found is None:
            raise self._wrong(name, "a duration such as 5m")
        return found

    def _wrong(self, name: str, words: str) -> UnreadableError:
        return UnreadableError(f"{self.path}.{name} is {self.raw.get(name)!r} and not {words}")
