// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Package tap writes down what upstream's own tests ask of a function, and what it answers.
package tap

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

var one sync.Mutex

// Note appends a line of JSON to the file TAP.
func Note(kind string, parts map[string]any) {
	parts["kind"], parts["test"] = kind, test()
	line, err := json.Marshal(parts)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", kind, err))
	}
	one.Lock()
	defer one.Unlock()
	file, err := os.OpenFile(os.Getenv("TAP"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// test is the name of the test function that called, as far as the stack knows it.
func test() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for {
		frame, more := frames.Next()
		for _, part := range strings.Split(frame.Function, ".") {
			if strings.HasPrefix(part, "Test") {
				return part
			}
		}
		if !more {
			return ""
		}
	}
}

// Fields are the plain ones of a plugin: what it was configured with.
func Fields(holder any) map[string]string {
	found := map[string]string{}
	each(holder, func(name string, field reflect.Value) {
		switch field.Kind() {
		case reflect.Bool, reflect.String, reflect.Map, reflect.Slice, reflect.Struct:
			if !field.IsZero() {
				found[name] = fmt.Sprintf("%v", field.Interface())
			}
		case reflect.Pointer:
			if !field.IsNil() && strings.HasPrefix(name, "added") {
				found[name] = "set"
			}
		}
	})
	return found
}

// Listed are the objects that the listers in a value know, by their type; volumes are those of its client.
func Listed(holder any, found map[string][]any) map[string][]any {
	each(holder, func(name string, field reflect.Value) {
		if field.Kind() != reflect.Interface && field.Kind() != reflect.Pointer || field.IsNil() {
			return
		}
		if client, ok := field.Interface().(kubernetes.Interface); ok {
			volumes, _ := client.CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
			for _, volume := range volumes.Items {
				found["PersistentVolume"] = append(found["PersistentVolume"], volume)
			}
		} else if items, ok := list(field); ok {
			for i := 0; i < items.Len(); i++ {
				item := items.Index(i)
				for item.Kind() == reflect.Interface || item.Kind() == reflect.Pointer {
					item = item.Elem()
				}
				found[item.Type().Name()] = append(found[item.Type().Name()], item.Interface())
			}
		} else if strings.HasPrefix(name, "csi") || name == "Binder" {
			Listed(field.Interface(), found)
		}
	})
	return found
}

// list calls List of a lister or an index. Those of tests that cannot are slices of what they know.
func list(lister reflect.Value) (items reflect.Value, ok bool) {
	if index, ok := lister.Interface().(cache.Indexer); ok {
		return reflect.ValueOf(index.List()), true
	}
	method := lister.MethodByName("List")
	if !method.IsValid() || method.Type().NumIn() != 1 || method.Type().In(0) != reflect.TypeFor[labels.Selector]() {
		return reflect.Value{}, false
	}
	if inner := lister.Elem(); lister.Kind() == reflect.Interface && inner.Kind() == reflect.Slice {
		return inner, true
	}
	answer := method.Call([]reflect.Value{reflect.ValueOf(labels.Everything())})
	return answer[0], true
}

func each(holder any, visit func(string, reflect.Value)) {
	value := reflect.Indirect(reflect.ValueOf(holder))
	if value.Kind() != reflect.Struct || !value.CanAddr() {
		return
	}
	for i := 0; i < value.NumField(); i++ {
		field := value.Field(i)
		visit(value.Type().Field(i).Name, reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem())
	}
}
