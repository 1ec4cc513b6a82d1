// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// balancer hands each connection to a random ready endpoint of a Service; turns would fall in step with a load. It learns of
// changes only some time after they were made, as balancers outside of a cluster do, and leaves alone what is connected.
type balancer struct {
	service string // namespace/name
	port    string // its name; empty for the first
	lag     time.Duration
	listen  net.Listener
	changes chan change
	targets atomic.Pointer[[]string]
}

type change struct {
	due     time.Time
	targets []string
}

// balance runs a balancer for each argument: namespace/service=address or namespace/service:port=address.
func balance(arguments []string) error {
	flags := flag.NewFlagSet("balance", flag.ExitOnError)
	var api apiServer
	flags.StringVar(&api.url, "server", "", "the URL of the API server")
	flags.StringVar(&api.ca, "ca", "", "the file of its certificate authority")
	flags.StringVar(&api.cert, "cert", "", "the file of a client certificate")
	flags.StringVar(&api.key, "key", "", "the file of its key")
	flags.StringVar(&api.token, "token", "", "the file of a token")
	lag := flags.Duration("lag", 0, "how long after a change it is followed")
	tied := flags.Bool("tied", false, "end with standard input, too")
	length := flags.Duration("for", 0, "how long; without it until SIGTERM")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("balance needs namespace/service=address")
	}
	var all []*balancer
	for _, argument := range flags.Args() {
		b, err := newBalancer(argument, *lag)
		if err != nil {
			return err
		}
		all = append(all, b)
	}
	ctx, stop := lifetime(*length, *tied)
	defer stop()
	client, err := api.client()
	if err != nil {
		return err
	}
	known := false
	follow(ctx, client, api, func(found endpointSlices) {
		now := time.Now()
		for _, b := range all {
			b.learn(found.ready(b.service, b.port), now, known)
		}
		known = true
	})
	return nil
}

func newBalancer(argument string, lag time.Duration) (*balancer, error) {
	service, address, found := strings.Cut(argument, "=")
	name, port, _ := strings.Cut(service, ":")
	if !found || strings.Count(name, "/") != 1 {
		return nil, fmt.Errorf("%q is not namespace/service=address", argument)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &balancer{service: name, port: port, lag: lag, listen: listener, changes: make(chan change, 1024)}, nil
}

// learn takes the first state at once and each later one after the lag.
func (b *balancer) learn(targets []string, now time.Time, later bool) {
	if later {
		b.changes <- change{now.Add(b.lag), targets}
		return
	}
	b.targets.Store(&targets)
	go func() {
		for next := range b.changes {
			time.Sleep(time.Until(next.due))
			b.targets.Store(&next.targets)
		}
	}()
	go b.run()
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(map[string]string{"service": b.service, "address": b.listen.Addr().String()})
}

func (b *balancer) run() {
	for {
		client, err := b.listen.Accept()
		if err != nil {
			return
		}
		go b.connect(client.(*net.TCPConn))
	}
}

func (b *balancer) connect(client *net.TCPConn) {
	targets := *b.targets.Load()
	if len(targets) == 0 {
		reset(client)
		return
	}
	dialed, err := net.DialTimeout("tcp", targets[rand.IntN(len(targets))], 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	server := dialed.(*net.TCPConn)
	sent := make(chan error, 1)
	go func() { sent <- pass(server, client) }()
	err = pass(client, server)
	if err = errors.Join(err, <-sent); err != nil {
		reset(client)
		reset(server)
		return
	}
	client.Close()
	server.Close()
}

// pass hands on what one side sends, and that it has nothing more to send.
func pass(to, from *net.TCPConn) error {
	if _, err := io.Copy(to, from); err != nil {
		// The other direction ends, too.
		_ = to.SetDeadline(time.Now())
		_ = from.SetDeadline(time.Now())
		return err
	}
	return to.CloseWrite()
}

func reset(connection *net.TCPConn) {
	_ = connection.SetLinger(0)
	connection.Close()
}

// endpointSlices are the slices of all Services by namespace/name.
type endpointSlices map[string]endpointSlice

type endpointSlice struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	Endpoints []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready *bool `json:"ready"`
		} `json:"conditions"`
	} `json:"endpoints"`
	Ports []struct {
		Name string `json:"name"`
		Port int    `json:"port"`
	} `json:"ports"`
}

func (e endpointSlice) key() string { return e.Metadata.Namespace + "/" + e.Metadata.Name }

func (e endpointSlice) service() string {
	return e.Metadata.Namespace + "/" + e.Metadata.Labels["kubernetes.io/service-name"]
}

func (all endpointSlices) ready(service, port string) []string {
	var found []string
	for _, slice := range all {
		if slice.service() != service {
			continue
		}
		for _, at := range slice.Ports {
			if port != "" && at.Name != port {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if ready := endpoint.Conditions.Ready; len(endpoint.Addresses) > 0 && (ready == nil || *ready) {
					found = append(found, net.JoinHostPort(endpoint.Addresses[0], fmt.Sprint(at.Port)))
				}
			}
			break
		}
	}
	return found
}

// follow tells the endpoints of all Services now and after each change, until the context ends.
func follow(ctx context.Context, client *http.Client, api apiServer, tell func(endpointSlices)) {
	for ctx.Err() == nil {
		if err := watch(ctx, client, api, tell); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
		}
		until(ctx, time.Now().Add(500*time.Millisecond))
	}
}

func watch(ctx context.Context, client *http.Client, api apiServer, tell func(endpointSlices)) error {
	body, err := api.get(ctx, client, "")
	if err != nil {
		return err
	}
	defer body.Close()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []endpointSlice `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return err
	}
	known := endpointSlices{}
	for _, item := range list.Items {
		known[item.key()] = item
	}
	tell(known)
	events, err := api.get(ctx, client, "?watch=1&resourceVersion="+list.Metadata.ResourceVersion)
	if err != nil {
		return err
	}
	defer events.Close()
	for decoder := json.NewDecoder(events); ; {
		var event struct {
			Type   string        `json:"type"`
			Object endpointSlice `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			known[event.Object.key()] = event.Object
		case "DELETED":
			delete(known, event.Object.key())
		default:
			return fmt.Errorf("the watch ended: %s", event.Type)
		}
		tell(known)
	}
}
