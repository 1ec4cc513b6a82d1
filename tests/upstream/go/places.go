// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package tap

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Filter notes what a plugin of the scheduler says of a pod on a node, and the cluster around them.
func Filter(plugin fwk.Plugin, lister fwk.SharedLister, pod *v1.Pod, here fwk.NodeInfo, status *fwk.Status) {
	reasons := []string{}
	if !status.IsSuccess() {
		reasons = status.Reasons()
	}
	Note(plugin.Name(), map[string]any{
		"pod": pod, "places": Places(here, lister), "fields": Fields(plugin), "objects": Listed(plugin, map[string][]any{}),
		"fits": status.IsSuccess(), "reasons": reasons,
	})
}

// Places are a node and the others that the scheduler knows, with their pods.
func Places(here fwk.NodeInfo, lister fwk.SharedLister) []any {
	places := []any{place(here)}
	if lister != nil {
		all, _ := lister.NodeInfos().List()
		for _, other := range all {
			if here.Node() != nil && other.Node() != nil && other.Node().Name != here.Node().Name {
				places = append(places, place(other))
			}
		}
	}
	return places
}

func place(info fwk.NodeInfo) map[string]any {
	pods := []any{}
	for _, pod := range info.GetPods() {
		pods = append(pods, pod.GetPod())
	}
	node := info.Node()
	if node == nil {
		node = &v1.Node{}
	}
	return map[string]any{"node": node, "pods": pods}
}
