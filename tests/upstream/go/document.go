// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	taperrors "k8s.io/apimachinery/pkg/util/errors"

	tapconfig "github.com/koordinator-sh/koordinator/pkg/descheduler/apis/config"
	tapv1alpha2 "github.com/koordinator-sh/koordinator/pkg/descheduler/apis/config/v1alpha2"

	"upstream/tap"
)

// For each function:

// NAME notes which documents are refused, as somebody would write them.
func NAME(document *tapconfig.DeschedulerConfiguration) taperrors.Aggregate {
	written := &tapv1alpha2.DeschedulerConfiguration{}
	if err := tapv1alpha2.Convert_config_DeschedulerConfiguration_To_v1alpha2_DeschedulerConfiguration(document.DeepCopy(), written, nil); err != nil {
		panic(err)
	}
	err := untappedNAME(document)
	tap.Note("document", map[string]any{"document": written, "refused": err != nil})
	return err
}
