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
FEATURED = ("inplacepodresize", "restartallcontainers", "usernamespaceshostnetwork")
FILTER = r"^func \(\w+ \*(?P<TYPE>\w+)\) (?P<NAME>Filter)\("
FEATURES = "k8s.io/component-helpers/nodedeclaredfeatures/features"
FEATURE = r"^func \(\w+ \*(?P<TYPE>\w+)\) (?P<NAME>InferForScheduling)\("
DEVICES = "k8s.io/dynamic-resource-allocation/structured"
ALLOCATE = r"^func \(a \*Allocator\) (?P<NAME>Allocate)\("
PREEMPTION = "k8s.io/kubernetes/pkg/scheduler/framework/preemption"
POD_STORAGE = "k8s.io/kubernetes/pkg/registry/core/pod/storage"

KUBERNETES = Source(
    "kubernetes-1.36",
    [
        *(Tap(f"{PLUGINS}/{name}", FILTER, "filter.go") for name in FILTERS),
        Tap(
            f"{PLUGINS}/defaultpreemption",
            r"^func \(pl \*\w+\) (?P<NAME>SelectVictimsOnNode)\(",
            "victims.go",
            (PREEMPTION,),
        ),
        Tap(PREEMPTION, r"^func (?P<NAME>pickOneNodeForPreemption)\(", "candidates.go"),
        *(Tap(f"{FEATURES}/{name}", FEATURE, "features.go") for name in FEATURED),
        Tap(DEVICES, uses=(DEVICES,)),
        Tap(f"{DEVICES}/internal/incubating", ALLOCATE, "devices.go"),
        Tap("k8s.io/kubectl/pkg/drain", r"^func \(d \*Helper\) (?P<NAME>GetPodsForDeletion)\(", "drain.go"),
        Tap("k8s.io/kubectl/pkg/cmd/drain", uses=("k8s.io/kubectl/pkg/drain",)),
        Tap(POD_STORAGE, r"^func \(r \*EvictionREST\) (?P<NAME>Create)\(", "eviction.go"),
    ],
    {
        "DefaultPreemption": 110,
        "InterPodAffinity": 60,
        "NodeAffinity": 25,
        "NodeDeclaredFeatures": 5,
        "NodePorts": 12,
        "NodeResourcesFit": 60,
        "NodeUnschedulable": 3,
        "NodeVolumeLimits": 35,
        "PodTopologySpread": 130,
        "TaintToleration": 20,
        "VolumeBinding": 30,
        "VolumeRestrictions": 10,
        "VolumeZone": 24,
        "candidates": 13,
        "devices": 200,
        "drain": 13,
        "eviction": 60,
    },
    ("tap.go", "places.go"),
    run="Affinity|Ports|Requests|Restartable|Unschedulable|Limit|Constraint|Toleration|VolumeBinding$|Zone|WithBinding"
    "|Conflicts|Drain|Eviction|Preempt|BestCandidate|PostFilter|InferForScheduling|Allocator",
)
"""The scheduler's filters, preemption and allocation of devices, `kubectl drain`, and the handler of evictions."""

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
        component,
        [
            Tap(_VALIDATION, _TYPED, "koordinator.go"),
            Tap(_VALIDATION, r"^func (?P<NAME>ValidateDeschedulerConfiguration)\(", "document.go"),
        ],
        {"koordinator": 45, "document": 6},
        run="Validate",
        version=version,
    )
    for component, version in (("koordinator", "1.7.0"), ("koordinator-next", "1.8.0"))
]
"""What the deschedulers refuse."""

ALL = (KUBERNETES, SIGS, *KOORDINATORS)
