// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// What runs in the pods of a lab with real nodes, and what asks them: one static binary, so one image is enough.
package main

import (
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The version that the lab compares with the one of vars/main.yml.
const version = "v1.0.0"

// Each gets the arguments after its name. An error is one line on stderr and exit code 1.
var commands = map[string]func([]string) error{
	"balance": balance,
	"forward": forward,
	"keys":    keys,
	"load":    load,
	"pause":   pause,
	"serve":   serve,
	"sleep":   sleep,
	"version": func([]string) error { _, err := fmt.Println(version); return err },
}

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 0 { // a pod's sandbox
		arguments = []string{"pause"}
	}
	command, known := commands[arguments[0]]
	if !known {
		names := strings.Join(slices.Sorted(maps.Keys(commands)), ", ")
		fmt.Fprintf(os.Stderr, "unknown command %q, expected one of %s\n", arguments[0], names)
		os.Exit(2)
	}
	if err := command(arguments[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// terminated delivers SIGTERM and SIGINT, which the first process of a namespace otherwise never gets.
func terminated() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	return signals
}

func pause([]string) error {
	<-terminated()
	return nil
}

// sleep is a Job that ends, or a preStop hook.
func sleep(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("sleep needs one duration, such as 5s")
	}
	duration, err := time.ParseDuration(arguments[0])
	if err == nil {
		time.Sleep(duration)
	}
	return err
}
