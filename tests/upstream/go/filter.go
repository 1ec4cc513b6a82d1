// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapcontext "context"

	tapcore "k8s.io/api/core/v1"
	tapfwk "k8s.io/kube-scheduler/framework"

	"upstream/tap"
)

// For each function:

// NAME notes what the plugin says.
func (pl *TYPE) NAME(ctx tapcontext.Context, cs tapfwk.CycleState, pod *tapcore.Pod, info tapfwk.NodeInfo) *tapfwk.Status {
	status := pl.untappedNAME(ctx, cs, pod, info)
	tap.Filter(pl, LISTER, pod, info, status)
	return status
}
