// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapcontext "context"

	tapcore "k8s.io/api/core/v1"
	tappolicy "k8s.io/api/policy/v1"
	tapfwk "k8s.io/kube-scheduler/framework"
	tapframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"upstream/tap"
)

// For each function:

// NAME notes which pods of a node are preempted, and by which filters the scheduler looks at it.
func (pl *DefaultPreemption) NAME(ctx tapcontext.Context, state tapfwk.CycleState, pod *tapcore.Pod, info tapfwk.NodeInfo, budgets []*tappolicy.PodDisruptionBudget) ([]*tapcore.Pod, int, *tapfwk.Status) {
	places := tap.Places(info, pl.fh.SnapshotSharedLister())
	victims, against, status := pl.untappedNAME(ctx, state, pod, info, budgets)
	filters := []string{}
	if known, ok := pl.fh.(tapframework.Framework); ok {
		for _, one := range known.ListPlugins().Filter.Enabled {
			filters = append(filters, one.Name)
		}
	}
	names := []string{}
	for _, victim := range victims {
		names = append(names, victim.Name)
	}
	tap.Note("DefaultPreemption", map[string]any{
		"pod": pod, "places": places, "budgets": budgets, "filters": filters, "victims": names, "against": against,
	})
	return victims, against, status
}
