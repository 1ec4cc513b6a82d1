// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapmeta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"upstream/tap"
)

// For each function:

// NAME notes what becomes of each pod of the node.
func (d *Helper) NAME(node string) (*PodDeleteList, []error) {
	list, failed := d.untappedNAME(node)
	if list == nil || len(d.AdditionalFilters) > 0 {
		return list, failed
	}
	for _, item := range list.items {
		there := false
		if owner := tapmeta.GetControllerOf(&item.Pod); owner != nil && isControllerRefDaemonSet(owner) {
			_, err := d.Client.AppsV1().DaemonSets(item.Pod.Namespace).Get(d.getContext(), owner.Name, tapmeta.GetOptions{})
			there = err == nil
		}
		tap.Note("drain", map[string]any{
			"pod": item.Pod, "there": there, "goes": item.Status.Delete, "status": item.Status.Reason,
			"force": d.Force, "ignore_daemonsets": d.IgnoreAllDaemonSets, "delete_emptydir_data": d.DeleteEmptyDirData,
			"timeout": d.SkipWaitForDeleteTimeoutSeconds,
		})
	}
	return list, failed
}
