# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which functions of upstream are asked what the collection decides too."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.tests.upstream.tapped import Source, Tap

PLUGINS = "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
FILTERS = (
    "interpodaffinity",
    "nodeaffinity",
    "nodeports",
    "noderesources",
    "nodeunschedulable",
    "nodevolumelimits",
    "podtopologyspread",
    "tainttoleration",
    "volumebinding",
    "volumerestrictions",
    "volumezone",
)
FILTER = r"^func \(\w+ \*(?P<TYPE>\w+)\) (?P<NAME>Filter)\("
POD_STORAGE = "k8s.io/kubernetes/pkg/registry/core/pod/storage"

KUBERNETES = Source(
    "kubernetes-1.36",
    [
        *(Tap(f"{PLUGINS}/{name}", FILTER, "filter.go") for name in FILTERS),
        Tap("k8s.io/kubectl/pkg/drain", r"^func \(d \*Helper\) (?P<NAME>GetPodsForDeletion)\(", "drain.go"),
        Tap("k8s.io/kubectl/pkg/cmd/drain"),
        Tap(POD_STORAGE, r"^func \(r \*EvictionREST\) (?P<NAME>Create)\(", "eviction.go"),
    ],
    {
        "InterPodAffinity": 60,
        "NodeAffinity": 25,
        "NodePorts": 12,
        "NodeResourcesFit": 60,
        "NodeUnschedulable": 3,
        "NodeVolumeLimits": 35,
        "PodTopologySpread": 130,
        "TaintToleration": 20,
        "VolumeBinding": 30,
        "VolumeRestrictions": 10,
        "VolumeZone": 24,
        "drain": 13,
        "eviction": 60,
    },
    ("tap.go", "places.go"),
    run="Affinity|Ports|Requests|Restartable|Unschedulable|Limit|Constraint|Toleration|VolumeBinding$|Zone|WithBinding"
    "|Conflicts|Drain|Eviction",
)
"""The filters of the scheduler, of `kubectl drain`, and the handler of evictions."""

ARGUMENTS = r"^func (?P<NAME>Validate(?P<PLUGIN>\w+)Args)\(obj runtime\.Object\) error"
SIGS_PLUGINS = (
    "defaultevictor",
    "nodeutilization",
    "podlifetime",
    "removeduplicates",
    "removefailedpods",
    "removepodshavingtoomanyrestarts",
    "removepodsviolatinginterpodantiaffinity",
    "removepodsviolatingnodeaffinity",
    "removepodsviolatingnodetaints",
    "removepodsviolatingtopologyspreadconstraint",
)
SIGS = Source(
    "descheduler",
    [Tap(f"sigs.k8s.io/descheduler/pkg/framework/plugins/{name}", ARGUMENTS, "arguments.go") for name in SIGS_PLUGINS],
    {"sigs": 75},
    run="Validate",
    version="0.36.0",
)
_TYPED = r"^func (?P<NAME>Validate\w+)\(path \*field\.Path, args \*deschedulerconfig\.(?P<PLUGIN>\w+)Args\)"
_VALIDATION = "github.com/koordinator-sh/koordinator/pkg/descheduler/apis/config/validation"
KOORDINATORS = [
    Source(
        component, [Tap(_VALIDATION, _TYPED, "koordinator.go")], {"koordinator": 45}, run="Validate", version=version
    )
    for component, version in (("koordinator", "1.7.0"), ("koordinator-next", "1.8.0"))
]
"""What the deschedulers refuse."""

ALL = (KUBERNETES, SIGS, *KOORDINATORS)
