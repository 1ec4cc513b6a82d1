// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// How long a server that ends waits for the requests that it has accepted.
const finishing = 30 * time.Second

// server is an HTTP server with the manners that its flags give it.
type server struct {
	work    time.Duration
	flap    time.Duration
	drain   bool
	began   time.Time
	leaving atomic.Bool
	ended   chan struct{} // closed when streams have to end
}

// serve answers requests. Without -stop it dies at once on SIGTERM, and what it was doing is lost.
func serve(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	address := flags.String("addr", ":8080", "where it listens")
	start := flags.Duration("start", 0, "time before it listens")
	stop := flags.Duration("stop", 0, "time it goes on after SIGTERM; then it finishes what it has accepted")
	ignore := flags.Bool("ignore", false, "ignore SIGTERM")
	drain := flags.Bool("drain", false, "after SIGTERM fail /ready, end streams and close each connection after its answer")
	work := flags.Duration("work", 0, "time of a request")
	flap := flags.Duration("flap", 0, "/ready succeeds for this long, then fails for this long, and so on")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *ignore {
		signal.Ignore(syscall.SIGTERM)
	}
	stopped := make(chan os.Signal, 1)
	if !*ignore {
		signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	}
	select {
	case <-time.After(*start):
	case <-stopped:
		return nil
	}
	s := &server{work: *work, flap: *flap, drain: *drain, began: time.Now(), ended: make(chan struct{})}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	fmt.Printf("serving %s\n", listener.Addr())
	web := &http.Server{Handler: s.handler()}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-stopped:
	}
	fmt.Println("stopping")
	s.leaving.Store(true)
	if *stop == 0 {
		return nil
	}
	if *drain {
		close(s.ended)
	}
	time.Sleep(*stop)
	if !*drain {
		close(s.ended)
	}
	limit, cancel := context.WithTimeout(context.Background(), finishing)
	defer cancel()
	return web.Shutdown(limit)
}

func (s *server) handler() http.Handler {
	host, _ := os.Hostname()
	routes := http.NewServeMux()
	routes.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(s.work)
		s.close(w)
		fmt.Fprintln(w, host)
	})
	routes.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		s.close(w)
		if !s.ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	routes.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) { s.stream(w, r, host) })
	return routes
}

// close tells the client not to send its next request over this connection.
func (s *server) close(w http.ResponseWriter) {
	if s.drain && s.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
}

func (s *server) ready() bool {
	if s.drain && s.leaving.Load() {
		return false
	}
	return s.flap == 0 || time.Since(s.began)/s.flap%2 == 0
}

// stream sends a line a second until the client leaves or the server ends.
func (s *server) stream(w http.ResponseWriter, r *http.Request, host string) {
	s.close(w)
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	for {
		if _, err := fmt.Fprintln(w, host); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-s.ended:
			return
		case <-seconds.C:
		}
	}
}
