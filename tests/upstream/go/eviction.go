// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package PACKAGE

import (
	tapcontext "context"

	tapv1 "k8s.io/api/core/v1"
	tapmeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	tapruntime "k8s.io/apimachinery/pkg/runtime"
	taprest "k8s.io/apiserver/pkg/registry/rest"
	tapcore "k8s.io/kubernetes/pkg/apis/core"
	tapcorev1 "k8s.io/kubernetes/pkg/apis/core/v1"

	"upstream/tap"
)

// For each function:

// NAME notes what an eviction is answered.
func (r *EvictionREST) NAME(ctx tapcontext.Context, name string, obj tapruntime.Object, check taprest.ValidateObjectFunc, options *tapmeta.CreateOptions) (tapruntime.Object, error) {
	look := func() *tapv1.Pod {
		found, err := r.store.Get(ctx, name, &tapmeta.GetOptions{})
		if err != nil {
			return nil
		}
		raw := &tapv1.Pod{}
		if err := tapcorev1.Convert_core_Pod_To_v1_Pod(found.(*tapcore.Pod).DeepCopy(), raw, nil); err != nil {
			panic(err)
		}
		return raw
	}
	pod := look()
	asked := obj.DeepCopyObject()
	budgets, err := r.podDisruptionBudgetClient.PodDisruptionBudgets("").List(ctx, tapmeta.ListOptions{})
	if err != nil {
		panic(err)
	}
	answer, failed := r.untappedNAME(ctx, name, obj, check, options)
	if pod != nil {
		tap.Note("eviction", map[string]any{
			"pod": pod, "after": look(), "budgets": budgets.Items, "asked": asked, "dry": options.DryRun,
			"answer": answer, "failed": failed,
		})
	}
	return answer, failed
}
