// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"reflect"
	"strings"

	"github.com/koordinator-sh/koordinator/apis/scheduling/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/descheduler/apis/config/scheme"
	"github.com/koordinator-sh/koordinator/pkg/descheduler/apis/config/v1alpha2"
	"github.com/koordinator-sh/koordinator/pkg/descheduler/framework/plugins"
	"github.com/koordinator-sh/koordinator/pkg/descheduler/framework/plugins/kubernetes"
	"github.com/koordinator-sh/koordinator/pkg/descheduler/framework/plugins/kubernetes/defaultevictor"
)

// What the scheme registers, Koordinator's own plugins among it, what each ported plugin decodes, and what a
// PodMigrationJob may hold.
func roots() map[string]any {
	found := map[string]any{
		defaultevictor.PluginName: &defaultevictor.DefaultEvictorArgs{},
		"PodMigrationJobSpec":     &v1alpha1.PodMigrationJobSpec{},
	}
	for kind, known := range scheme.Scheme.KnownTypes(v1alpha2.SchemeGroupVersion) {
		found[strings.TrimSuffix(kind, "Args")] = reflect.New(known).Interface()
	}
	for _, plugin := range kubernetes.Plugins {
		found[plugin.Name] = plugin.ArgsPrototype
	}
	for name := range plugins.NewInTreeRegistry() {
		if _, known := found[name]; !known {
			panic("no arguments are known of " + name)
		}
	}
	return found
}
