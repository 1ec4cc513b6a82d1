// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The operator of CloudNativePG, unchanged, but for the addresses that it listens on: only loopback.
//
// Its webhook server has no option for that, and cannot be switched off. So its command is started from here instead
// of from its own cmd/manager. This module is named below the operator's path, because that imports internal packages.
package main

import (
	"net"
	"os"

	"github.com/cloudnative-pg/machinery/pkg/log"
	"github.com/spf13/cobra"

	"github.com/cloudnative-pg/cloudnative-pg/internal/cmd/manager/controller"
	"github.com/cloudnative-pg/cloudnative-pg/internal/cmd/versions"
)

func main() {
	// What package net listens on where an address names no host.
	net.IPv4zero = net.IPv4(127, 0, 0, 1)
	net.IPv6zero = net.IPv6loopback

	logFlags := &log.Flags{}
	cmd := &cobra.Command{
		Use:          "manager [cmd]",
		SilenceUsage: true,
		PersistentPreRun: func(_ *cobra.Command, _ []string) {
			logFlags.ConfigureLogging()
		},
	}
	logFlags.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(controller.NewCmd(), versions.NewCmd())
	if cmd.Execute() != nil {
		os.Exit(1)
	}
}
