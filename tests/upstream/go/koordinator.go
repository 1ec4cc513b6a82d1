// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapfield "k8s.io/apimachinery/pkg/util/validation/field"

	tapconfig "github.com/koordinator-sh/koordinator/pkg/descheduler/apis/config"
	tapv1alpha2 "github.com/koordinator-sh/koordinator/pkg/descheduler/apis/config/v1alpha2"

	"upstream/tap"
)

// For each function:

// NAME notes which arguments are refused, as somebody would write them.
func NAME(path *tapfield.Path, args *tapconfig.PLUGINArgs) error {
	written := &tapv1alpha2.PLUGINArgs{}
	if err := tapv1alpha2.Convert_config_PLUGINArgs_To_v1alpha2_PLUGINArgs(args.DeepCopy(), written, nil); err != nil {
		panic(err)
	}
	err := untappedNAME(path, args)
	tap.Note("koordinator", map[string]any{"plugin": "PLUGIN", "args": written, "refused": err != nil})
	return err
}
