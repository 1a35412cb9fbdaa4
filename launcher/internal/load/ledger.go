//go:build unix

package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A Ledger is what clients of a key-value server were told. Each write has a key of its own, so that one that was lost is
// not made up for by a later one. All methods may be called concurrently.
type Ledger struct {
	mu       sync.Mutex
	sent     int
	longest  time.Duration
	stored   map[string]string // acknowledged as being on disk
	taken    map[string]string // acknowledged as being on the way to it
	failures []error
}

// Async is the header of a request that does not want to wait for the disk.
const Async = "Prefer: respond-async"

// Again says whether a request that was begun at this time, and has not been answered, is sent again; nil never does.
type Again func(began time.Time, err error) bool

// errWrong is an answer that is not the right one, which sending the request again does not excuse.
var errWrong = errors.New("wrong answer")

// Write writes, and reads back what it has written, until ctx ends. Keys begin with name. Failed requests are taken down,
// unless they are sent again. The client is closed.
func (l *Ledger) Write(ctx context.Context, name string, c *Client, again Again, header ...string) {
	defer c.Close()
	for n := 0; ctx.Err() == nil; n++ {
		key, value := fmt.Sprintf("%s/%d", name, n), fmt.Sprintf("value %d of %s", n, name)
		var a Answer
		if !l.try(again, func() (err error) {
			a, err = c.Do(context.Background(), "PUT", "/kv/"+key, value, header...)
			if err == nil && a.Status != http.StatusNoContent && a.Status != http.StatusAccepted {
				err = fmt.Errorf("PUT %s: %w: %d %s", key, errWrong, a.Status, a.Body)
			}
			return err
		}) {
			continue
		}
		if a.Status == http.StatusAccepted {
			l.note(&l.taken, key, value)
			continue
		}
		l.note(&l.stored, key, value)
		l.try(again, func() error {
			a, err := c.Do(context.Background(), "GET", "/kv/"+key, "")
			if err == nil && (a.Status != http.StatusOK || a.Body != value) {
				err = fmt.Errorf("GET %s: %w: %d %q, want %q", key, errWrong, a.Status, a.Body, value)
			}
			return err
		})
	}
}

// Ask asks for / until ctx ends. The client is closed.
func (l *Ledger) Ask(ctx context.Context, c *Client, again Again) {
	defer c.Close()
	for ctx.Err() == nil {
		l.try(again, func() error {
			a, err := c.Do(context.Background(), "GET", "/", "")
			if err == nil && a.Status != http.StatusOK {
				err = fmt.Errorf("GET /: %w: %d %s", errWrong, a.Status, a.Body)
			}
			return err
		})
	}
}

func (l *Ledger) try(again Again, f func() error) bool {
	for {
		began := time.Now()
		err := f()
		l.mu.Lock()
		l.sent++
		l.longest = max(l.longest, time.Since(began))
		l.mu.Unlock()
		if err == nil {
			return true
		}
		if again == nil || errors.Is(err, errWrong) || !again(began, err) {
			l.fail(err)
			return false
		}
	}
}

func (l *Ledger) note(in *map[string]string, key, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *in == nil {
		*in = map[string]string{}
	}
	(*in)[key] = value
}

func (l *Ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, err)
}

// Sent returns how many requests have been sent so far, and the longest that one has taken.
func (l *Ledger) Sent() (requests int, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.longest
}

// Failures returns what has failed so far.
func (l *Ledger) Failures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

// Stored returns what was acknowledged as being on disk.
func (l *Ledger) Stored() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.stored)
}

// Taken returns what was acknowledged as being on the way to the disk.
func (l *Ledger) Taken() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.taken)
}
