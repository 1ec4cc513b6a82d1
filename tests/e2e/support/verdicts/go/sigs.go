// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"reflect"

	"sigs.k8s.io/descheduler/pkg/api/v1alpha2"
	"sigs.k8s.io/descheduler/pkg/descheduler"
	"sigs.k8s.io/descheduler/pkg/descheduler/scheme"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
)

// What the scheme registers as a policy, and the arguments in the registry of plugins.
func roots() map[string]any {
	found := map[string]any{}
	for kind, known := range scheme.Scheme.KnownTypes(v1alpha2.SchemeGroupVersion) {
		found[kind] = reflect.New(known).Interface()
	}
	descheduler.SetupPlugins()
	for name, plugin := range pluginregistry.PluginRegistry {
		found[name] = plugin.PluginArgInstance
	}
	return found
}
