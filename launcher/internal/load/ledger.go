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

// A Ledger records the answers of a server. Each write of a key-value server has a key of its own,
// so that a later write does not hide a lost one. All methods may be called concurrently.
type Ledger struct {
	mu       sync.Mutex
	sent     int
	longest  time.Duration
	stored   map[string]string // writes acknowledged as being on disk
	accepted map[string]string // writes acknowledged before they are on disk
	failures []error
}

// Async is the header of a request that does not wait for the disk.
const Async = "Prefer: respond-async"

// A Retry reports whether a request that began at the given time and failed with err is to be sent
// again. With a nil Retry, no request is sent again.
type Retry func(began time.Time, err error) bool

// errWrong is the error of a request whose answer was wrong. Such a request is not sent again.
var errWrong = errors.New("wrong answer")

// Write writes values and reads them back until ctx ends. The keys begin with name. Write records
// requests that failed and are not to be sent again. At its end it closes the client.
func (l *Ledger) Write(ctx context.Context, name string, c *Client, retry Retry, header ...string) {
	defer c.Close()
	for n := 0; ctx.Err() == nil; n++ {
		key, value := fmt.Sprintf("%s/%d", name, n), fmt.Sprintf("value %d of %s", n, name)
		var a Answer
		if !l.do(retry, func() (err error) {
			a, err = c.Do(context.Background(), "PUT", "/kv/"+key, value, header...)
			if err == nil && a.Status != http.StatusNoContent && a.Status != http.StatusAccepted {
				err = fmt.Errorf("PUT %s: %w: %d %s", key, errWrong, a.Status, a.Body)
			}
			return err
		}) {
			continue
		}
		if a.Status == http.StatusAccepted {
			l.record(&l.accepted, key, value)
			continue
		}
		l.record(&l.stored, key, value)
		l.do(retry, func() error {
			a, err := c.Do(context.Background(), "GET", "/kv/"+key, "")
			if err == nil && (a.Status != http.StatusOK || a.Body != value) {
				err = fmt.Errorf("GET %s: %w: %d %q, want %q", key, errWrong, a.Status, a.Body, value)
			}
			return err
		})
	}
}

// Ask requests the path / again and again until ctx ends. At its end it closes the client.
func (l *Ledger) Ask(ctx context.Context, c *Client, retry Retry) {
	defer c.Close()
	for ctx.Err() == nil {
		l.do(retry, func() error {
			a, err := c.Do(context.Background(), "GET", "/", "")
			if err == nil && a.Status != http.StatusOK {
				err = fmt.Errorf("GET /: %w: %d %s", errWrong, a.Status, a.Body)
			}
			return err
		})
	}
}

func (l *Ledger) do(retry Retry, f func() error) bool {
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
		if retry == nil || errors.Is(err, errWrong) || !retry(began, err) {
			l.fail(err)
			return false
		}
	}
}

func (l *Ledger) record(in *map[string]string, key, value string) {
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

// Sent returns the number of requests so far, and how long the longest of them took.
func (l *Ledger) Sent() (requests int, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.longest
}

// Failures returns the errors so far.
func (l *Ledger) Failures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

// Stored returns the writes that were acknowledged as being on disk.
func (l *Ledger) Stored() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.stored)
}

// Accepted returns the writes that were acknowledged before they were on disk.
func (l *Ledger) Accepted() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.accepted)
}
