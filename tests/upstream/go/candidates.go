// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapklog "k8s.io/klog/v2"
	tapextender "k8s.io/kube-scheduler/extender/v1"

	"upstream/tap"
)

// For each function:

// NAME notes on which node pods are preempted, where that helps on several.
func NAME(logger tapklog.Logger, found map[string]*tapextender.Victims, scores []func(node string) int64) string {
	chosen := untappedNAME(logger, found, scores)
	if len(scores) == 0 && len(found) > 0 {
		tap.Note("candidates", map[string]any{"found": found, "chosen": chosen})
	}
	return chosen
}
