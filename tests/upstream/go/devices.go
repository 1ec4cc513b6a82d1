// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapcontext "context"

	tapcore "k8s.io/api/core/v1"
	tapresource "k8s.io/api/resource/v1"

	"upstream/tap"
)

// For each function:

// NAME notes whether claims get devices on a node, and which are taken.
func (a *Allocator) NAME(ctx tapcontext.Context, node *tapcore.Node, claims []*tapresource.ResourceClaim) ([]tapresource.AllocationResult, error) {
	results, err := a.untappedNAME(ctx, node, claims)
	classes, _ := a.classLister.List()
	taken := [][]string{}
	for one := range a.allocatedState.AllocatedDevices {
		taken = append(taken, []string{one.Driver.String(), one.Pool.String(), one.Device.String()})
	}
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	tap.Note("devices", map[string]any{
		"node": node, "claims": claims, "classes": classes, "slices": a.allSlices, "taken": taken, "features": a.features,
		"partly": len(a.allocatedState.AllocatedSharedDeviceIDs) > 0, "got": len(results), "failed": failed,
	})
	return results, err
}
