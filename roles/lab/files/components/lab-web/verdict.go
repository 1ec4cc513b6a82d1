// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// So many seconds and kinds of failures of a Service are listed; the others are only counted.
const listed = 200

type failureKey struct{ at, kind string }

// tally is what became of the requests to one target.
type tally struct {
	target
	mu       sync.Mutex
	sent     int
	failed   int
	last     time.Time // an answer came
	dark     time.Duration
	slowest  time.Duration
	failures map[failureKey]int
}

type verdict struct {
	Began    string    `json:"began"`
	Ended    string    `json:"ended"`
	Services []service `json:"services"`
}

type service struct {
	Service  string    `json:"service"`
	Via      string    `json:"via"`
	Kind     string    `json:"kind"`
	Sent     int       `json:"sent"`
	Failed   int       `json:"failed"`
	Dark     float64   `json:"dark"`    // the longest time without an answer, in seconds
	Slowest  float64   `json:"slowest"` // of the answers, in seconds
	Failures []failure `json:"failures"`
}

type failure struct {
	At    string `json:"at"` // when they were sent
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// note counts a request that was sent at a moment and has just been answered or failed.
func (t *tally) note(began time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent++
	if err == nil {
		now := time.Now()
		t.dark = max(t.dark, now.Sub(t.last))
		t.slowest = max(t.slowest, now.Sub(began))
		t.last = now
		return
	}
	t.failed++
	key := failureKey{second(began), failureKind(err)}
	if _, known := t.failures[key]; known || len(t.failures) < listed {
		t.failures[key]++
	}
}

func (t *tally) counts() (sent, failed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent, t.failed
}

// second is a moment's second by RFC 3339.
func second(moment time.Time) string {
	return moment.UTC().Format(time.RFC3339)
}

func seconds(duration time.Duration) float64 {
	return math.Round(duration.Seconds()*1000) / 1000
}

func judged(began, ended time.Time, all []*tally) verdict {
	found := verdict{Began: second(began), Ended: second(ended), Services: []service{}}
	for _, t := range all {
		found.Services = append(found.Services, t.judged(ended))
	}
	return found
}

func (t *tally) judged(ended time.Time) service {
	t.mu.Lock()
	defer t.mu.Unlock()
	failures := []failure{}
	for key, count := range t.failures {
		failures = append(failures, failure{key.at, key.kind, count})
	}
	slices.SortFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Kind, b.Kind))
	})
	return service{
		Service: t.Service, Via: t.Via, Kind: t.Kind, Sent: t.sent, Failed: t.failed,
		Dark: seconds(max(t.dark, ended.Sub(t.last))), Slowest: seconds(t.slowest), Failures: failures,
	}
}
