// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// forward accepts connections at the listening socket that this process has inherited as its standard input, and
// connects each to an address. The socket may belong to another network namespace than this process.
func forward(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("forward needs one address: lab-web forward HOST:PORT")
	}
	listener, err := net.FileListener(os.Stdin)
	if err != nil {
		return fmt.Errorf("standard input is no listening socket: %w", err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go join(connection, arguments[0])
	}
}

// join connects to an address, and copies in both directions until both have ended.
func join(accepted net.Conn, address string) {
	defer accepted.Close()
	dialed, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer dialed.Close()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{accepted, dialed}, {dialed, accepted}} {
		both.Add(1)
		go func() {
			defer both.Done()
			io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(*net.TCPConn); ok {
				half.CloseWrite()
			}
		}()
	}
	both.Wait()
}
