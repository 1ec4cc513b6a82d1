// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// target is a Service, one way to reach it and how it is asked.
type target struct {
	Service string  `json:"service"` // namespace/name
	Via     string  `json:"via"`     // words for whoever reads the verdict
	URL     string  `json:"url"`     // http://host:port/path, or only host:port
	Rate    float64 `json:"rate"`    // requests a second; for a stream how often a second it is opened again
	Kind    string  `json:"kind"`    // new: a connection each; keep: connections are used again; stream
}

// orders is what a load is given.
type orders struct {
	Targets []target `json:"targets"`
}

// load asks all targets at their rates and writes the verdict. A request that fails is not sent again.
func load(arguments []string) error {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	config := flags.String("config", "-", "a file with the orders; - is stdin")
	output := flags.String("output", "", "the file of the verdict, written each second; without one it is printed at the end")
	progress := flags.Bool("progress", false, "print a line with the counts when it begins, and each second")
	length := flags.Duration("for", 0, "how long; without it until SIGTERM")
	timeout := flags.Duration("timeout", 2*time.Second, "of a request")
	patience := flags.Duration("await", 0, "how long to wait at most until each target has answered; then it begins")
	tied := flags.Bool("tied", false, "end with standard input, too")
	forget := flags.Bool("forget", false, "first drop what this network namespace, which is the lab's own, knows of connections, and from then on what nobody answers")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	given, err := readOrders(*config)
	if err != nil {
		return err
	}
	if *forget {
		if err := forgetConnections(); err != nil {
			return fmt.Errorf("the tracked connections cannot be dropped: %w", err)
		}
	}
	ctx, stop := lifetime(*length, *tied)
	defer stop()
	// Whoever has just gone never answers: soon somebody else is asked.
	await(ctx, given.Targets, min(*timeout, time.Second), *patience)
	all := make([]*tally, len(given.Targets))
	began := time.Now()
	for i, t := range given.Targets {
		all[i] = &tally{target: t, last: began, failures: map[failureKey]int{}}
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for more := true; more; more = until(ctx, time.Now().Add(time.Second)) {
			if *progress {
				tell(all)
			}
			if *output != "" {
				_ = write(*output, judged(began, time.Now(), all))
			}
		}
	}()
	ended := drive(ctx, all, *timeout)
	<-told
	return write(*output, judged(began, ended, all))
}

// answeredWithin is after how many seconds the connection tracking drops a connection that nobody answers.
const answeredWithin = "10"

// forgetConnections empties the connection tracking of this network namespace. What was asked of a pod that was gone, or
// behind a cable that was unplugged, leads there for two minutes, and so would another connection from the same port.
func forgetConnections() error {
	const waits = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_syn_sent"
	if err := os.WriteFile(waits, []byte(answeredWithin), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	const deleteTracked = 1<<8 | 2 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE; without a tuple all of them
	message := make([]byte, syscall.NLMSG_HDRLEN+4)
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], deleteTracked)
	binary.NativeEndian.PutUint16(message[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	if err := syscall.Sendto(socket, message, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	if _, _, err := syscall.Recvfrom(socket, answer, 0); err != nil {
		return err
	}
	if status := int32(binary.NativeEndian.Uint32(answer[syscall.NLMSG_HDRLEN:])); status != 0 {
		return syscall.Errno(-status)
	}
	return nil
}

// lifetime ends at SIGTERM, after a duration if that is not 0, and, if it is tied, when standard input ends: then whoever
// started this process is gone.
func lifetime(length time.Duration, tied bool) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	if tied {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	if length == 0 {
		return ctx, stop
	}
	limited, cancel := context.WithTimeout(ctx, length)
	return limited, func() { cancel(); stop() }
}

func readOrders(path string) (orders, error) {
	var given orders
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return given, err
		}
		defer file.Close()
	}
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		return given, fmt.Errorf("the orders are not understood: %w", err)
	}
	if len(given.Targets) == 0 {
		return given, errors.New("the orders name no targets")
	}
	for _, t := range given.Targets {
		if t.Rate <= 0 {
			return given, fmt.Errorf("%s: the rate must be above 0", t.Service)
		}
		if t.Kind != "new" && t.Kind != "keep" && t.Kind != "stream" {
			return given, fmt.Errorf("%s: unknown kind %q, expected new, keep or stream", t.Service, t.Kind)
		}
		if _, _, err := t.place(); err != nil {
			return given, fmt.Errorf("%s: %w", t.Service, err)
		}
	}
	return given, nil
}

// place is where a target listens, and the path that is asked for.
func (t target) place() (address, path string, err error) {
	if !strings.Contains(t.URL, "://") {
		_, _, err = net.SplitHostPort(t.URL)
		return t.URL, "/", err
	}
	parsed, err := url.Parse(t.URL)
	if err != nil {
		return "", "", err
	}
	if parsed.Scheme != "http" || parsed.Hostname() == "" {
		return "", "", fmt.Errorf("%q is neither http://host:port/path nor host:port", t.URL)
	}
	port := parsed.Port()
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(parsed.Hostname(), port), parsed.RequestURI(), nil
}

// await returns once each target has answered, or the time is up.
func await(ctx context.Context, targets []target, timeout, patience time.Duration) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var waiting sync.WaitGroup
	for _, t := range targets {
		address, path, _ := t.place()
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			c := newClient(address, path, false, timeout)
			for limited.Err() == nil && c.answers() != nil {
				until(limited, time.Now().Add(100*time.Millisecond))
			}
		}()
	}
	waiting.Wait()
}

// drive asks until the context ends, then waits for the answers that are due. It returns when the asking ended.
func drive(ctx context.Context, all []*tally, timeout time.Duration) time.Time {
	var running sync.WaitGroup
	for i, t := range all {
		address, path, _ := t.place()
		c := newClient(address, path, t.Kind == "keep", timeout)
		step := time.Duration(float64(time.Second) / t.Rate)
		// Targets of one rate take turns.
		first := time.Now().Add(step * time.Duration(i) / time.Duration(len(all)))
		running.Add(1)
		go func() {
			defer running.Done()
			if t.Kind == "stream" {
				t.hold(ctx, c, first, step)
			} else {
				t.ask(ctx, c, first, step)
			}
		}()
	}
	<-ctx.Done()
	ended := time.Now()
	running.Wait()
	return ended
}

// until waits for a moment; false if the context ended before it.
func until(ctx context.Context, moment time.Time) bool {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ask sends requests at a fixed rate, whether or not the ones before were answered.
func (t *tally) ask(ctx context.Context, c *client, next time.Time, step time.Duration) {
	var running sync.WaitGroup
	for until(ctx, next) {
		running.Add(1)
		go func() {
			defer running.Done()
			began := time.Now()
			t.note(began, c.request())
		}()
		next = next.Add(step)
		// After a halt of the whole machine no flood.
		if time.Since(next) > time.Second {
			next = time.Now()
		}
	}
	running.Wait()
}

// hold keeps one stream open. Each line is an answer; a stream that its server ends properly is opened again.
func (t *tally) hold(ctx context.Context, c *client, next time.Time, step time.Duration) {
	for until(ctx, next) {
		began := time.Now()
		err := c.stream(ctx, func() {
			t.note(began, nil)
			began = time.Now()
		})
		if ctx.Err() == nil && err != nil {
			t.note(time.Now(), err)
		}
		next = time.Now().Add(step)
	}
}

func tell(all []*tally) {
	sent, failed := 0, 0
	for _, t := range all {
		s, f := t.counts()
		sent, failed = sent+s, failed+f
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"at": second(time.Now()), "sent": sent, "failed": failed})
}

// write prints the verdict, or puts it in place of a file in one step.
func write(path string, found verdict) error {
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if path == "" {
		_, err = os.Stdout.Write(text)
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(text)
	err = errors.Join(err, part.Chmod(0o644))
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}

// failureKind is a word for what came instead of an answer.
func failureKind(err error) string {
	var network net.Error
	var status statusError
	switch {
	case errors.Is(err, errBroken):
		return "stream_broken"
	case errors.As(err, &status):
		return "status"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no_route"
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	}
	return "other"
}
