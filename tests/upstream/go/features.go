// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	taptypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"upstream/tap"
)

// For each function:

// NAME notes whether a pod needs a node that declares the feature.
func (f *TYPE) NAME(info *taptypes.PodInfo) bool {
	needed := f.untappedNAME(info)
	if info.Spec != nil {
		tap.Note("NodeDeclaredFeatures", map[string]any{"feature": f.Name(), "spec": info.Spec, "needed": needed})
	}
	return needed
}
