// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

var errBroken = errors.New("the stream broke off")

type statusError int

func (status statusError) Error() string { return fmt.Sprintf("status %d", int(status)) }

// client sends each request once. The one of package net/http sends some again if a kept connection was closed, which would
// hide what a client without that sees.
type client struct {
	address string
	text    string // of a request
	keep    bool
	timeout time.Duration
	mu      sync.Mutex
	open    int
	idle    []*connection // the one that has been idle for longest first
}

// So many connections are kept at least, and take turns, because a single one would only ever ask one server.
const kept = 8

type connection struct {
	*net.TCPConn
	reader *bufio.Reader
}

func newClient(address, path string, keep bool, timeout time.Duration) *client {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", path, address)
	if !keep {
		text += "Connection: close\r\n"
	}
	return &client{address: address, text: text + "\r\n", keep: keep, timeout: timeout}
}

func (c *client) request() error {
	deadline := time.Now().Add(c.timeout)
	used, response, err := c.send(deadline)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err != nil || response.Close || !c.keep {
		c.close(used)
	} else {
		c.mu.Lock()
		c.idle = append(c.idle, used)
		c.mu.Unlock()
	}
	return err
}

// answers tells whether an answer begins, of whatever length.
func (c *client) answers() error {
	used, _, err := c.send(time.Now().Add(c.timeout))
	if err == nil {
		c.close(used)
	}
	return err
}

func (c *client) close(used *connection) {
	c.mu.Lock()
	c.open--
	c.mu.Unlock()
	used.Close()
}

// stream calls line for each line until the stream ends. Only a proper end is no error.
func (c *client) stream(ctx context.Context, line func()) error {
	used, response, err := c.send(time.Now().Add(c.timeout))
	if err != nil {
		return err
	}
	defer c.close(used)
	defer context.AfterFunc(ctx, func() { used.Close() })()
	lines := bufio.NewScanner(response.Body)
	for {
		// A line a second is due.
		_ = used.SetDeadline(time.Now().Add(time.Second + c.timeout))
		if !lines.Scan() {
			break
		}
		line()
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// send returns the connection with a response whose body is still to be read.
func (c *client) send(deadline time.Time) (*connection, *http.Response, error) {
	used, err := c.connect(deadline)
	if err != nil {
		return nil, nil, err
	}
	_ = used.SetDeadline(deadline)
	var response *http.Response
	if _, err = io.WriteString(used, c.text); err == nil {
		response, err = http.ReadResponse(used.reader, nil)
	}
	if err == nil && response.StatusCode != http.StatusOK {
		err = statusError(response.StatusCode)
	}
	if err != nil {
		c.close(used)
		return nil, nil, err
	}
	return used, response, nil
}

// connect takes an idle connection that its server has not closed, or a new one.
func (c *client) connect(deadline time.Time) (*connection, error) {
	for idle := c.take(); idle != nil; idle = c.take() {
		if idle.quiet() {
			return idle, nil
		}
		c.close(idle)
	}
	dialed, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", c.address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.open++
	c.mu.Unlock()
	return &connection{dialed.(*net.TCPConn), bufio.NewReader(dialed)}, nil
}

func (c *client) take() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 || c.open < kept {
		return nil
	}
	first := c.idle[0]
	c.idle = c.idle[1:]
	return first
}

// quiet tells whether nothing came over an idle connection; whatever came is its end.
func (c *connection) quiet() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var came error
	err = raw.Read(func(file uintptr) bool {
		_, _, came = syscall.Recvfrom(int(file), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && errors.Is(came, syscall.EAGAIN)
}
