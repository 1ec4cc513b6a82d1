// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapruntime "k8s.io/apimachinery/pkg/runtime"

	"upstream/tap"
)

// For each function:

// NAME notes which arguments are refused.
func NAME(obj tapruntime.Object) error {
	args := obj.DeepCopyObject()
	err := untappedNAME(obj)
	tap.Note("sigs", map[string]any{"plugin": "PLUGIN", "args": args, "refused": err != nil})
	return err
}
