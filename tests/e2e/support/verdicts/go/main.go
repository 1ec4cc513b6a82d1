// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Prints the Go types of a descheduler's configuration as JSON: {document or plugin: {path: {go, type}}}.
//
// A path is made of the JSON names, with [] for the elements of a list and .* for those of a map. The type is what a
// JSON decoder makes of it: object, list, map, a kind such as int32, or the Go type where it decodes itself.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
)

type field struct {
	Go   string `json:"go"`
	Type string `json:"type"`
}

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

func walk(given reflect.Type, path string, found map[string]field) {
	bare := given
	for bare.Kind() == reflect.Pointer {
		bare = bare.Elem()
	}
	is := bare.Kind().String()
	switch {
	case reflect.PointerTo(bare).Implements(unmarshaler):
		is = bare.String()
	case bare.Kind() == reflect.Struct:
		is = "object"
		fields(bare, path, found)
	case bare.Kind() == reflect.Slice:
		is = "list"
		walk(bare.Elem(), path+"[]", found)
	case bare.Kind() == reflect.Map:
		is = "map"
		walk(bare.Elem(), path+".*", found)
	}
	found[path] = field{given.String(), is}
}

func fields(bare reflect.Type, path string, found map[string]field) {
	for index := 0; index < bare.NumField(); index++ {
		one := bare.Field(index)
		name, _, _ := strings.Cut(one.Tag.Get("json"), ",")
		switch {
		case name == "-" || !one.IsExported():
		case name == "" && one.Anonymous:
			fields(one.Type, path, found)
		case name == "":
			walk(one.Type, strings.TrimPrefix(path+"."+one.Name, "."), found)
		default:
			walk(one.Type, strings.TrimPrefix(path+"."+name, "."), found)
		}
	}
}

func main() {
	all := map[string]map[string]field{}
	for name, given := range roots() {
		all[name] = map[string]field{}
		fields(reflect.TypeOf(given).Elem(), "", all[name])
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		panic(err)
	}
}
