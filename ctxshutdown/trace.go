package ctxshutdown

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A scopeTrace is what a scope remembers for debugging: the sites and ages of its guards.
type scopeTrace struct {
	traced bool // false: only hands the logger down to scopes that are
	logger *slog.Logger

	stopped atomic.Bool // for reportLoss

	mu    sync.Mutex
	first *record
}

// A record is one traced guard.
type record struct {
	site       site
	since      time.Time
	next, prev *record
}

// A site holds the innermost return addresses of an acquisition, enough to leave this package.
type site [5]uintptr

// callers records the stack from the caller's caller on: resolving it is left to whoever reads it.
func callers() (at site) {
	runtime.Callers(4, at[:])
	return at
}

const packagePath = "github.com/swansong-go/swansong/ctxshutdown."

// String returns "file.go:12" for the first frame outside of this package.
func (at site) String() string {
	n := 0
	for n < len(at) && at[n] != 0 {
		n++
	}
	frames := runtime.CallersFrames(at[:n])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, packagePath) || !more {
			return filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
	}
}

// acquired records a guard and returns nil where guards are not traced.
func (t *scopeTrace) acquired() *record {
	if !t.traced {
		return nil
	}
	r := &record{site: callers(), since: time.Now()}
	t.mu.Lock()
	r.next = t.first
	if r.next != nil {
		r.next.prev = r
	}
	t.first = r
	t.mu.Unlock()
	return r
}

func (t *scopeTrace) forget(r *record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		t.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
}

// reportLate tells of a guard of s that was released after somebody had given up on it. The guard counts no more: a
// logger that blocks or panics delays nobody's drain.
func (t *scopeTrace) reportLate(s *Swansong, r *record) {
	if t.logger != nil && s.givenUp(r.since) {
		t.logger.Warn("guard released late", "scope", s.path(), "site", r.site.String(), "held", time.Since(r.since))
	}
}

// givenUp reports whether somebody has given up on a guard acquired at that time.
func (s *Swansong) givenUp(acquired time.Time) bool {
	for up := s; up != nil; up = up.up() {
		if late := up.late.Load(); late != nil && !acquired.After(*late) {
			return true
		}
	}
	return s.forceCause() != nil
}

// reportLoss has a traced root tell when it is collected without having been stopped. It never stops it, and looks
// at nothing but a flag: a cleanup runs outside of every synctest bubble and may not touch a context's channel.
func (s *Swansong) reportLoss() {
	if s.trace == nil || !s.trace.traced || s.trace.logger == nil {
		return
	}
	type loss struct {
		trace *scopeTrace // does not lead back to the scope, or it would never be collected
		path  string
		site  site
	}
	l := loss{s.trace, s.path(), callers()}
	context.AfterFunc(s.wire().ctx, func() { l.trace.stopped.Store(true) })
	runtime.AddCleanup(s, func(l loss) {
		if !l.trace.stopped.Load() {
			l.trace.logger.Warn("root scope lost without Shutdown", "scope", l.path, "site", l.site.String())
		}
	}, l)
}
