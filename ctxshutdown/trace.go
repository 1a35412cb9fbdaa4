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

	"github.com/swansong-go/swansong/internal/probe"
)

// A scopeTrace is what a scope remembers for debugging: the sites and ages of its guards.
type scopeTrace struct {
	traced bool // false: only hands the logger down to scopes that are
	logger *slog.Logger
	probe  probe.Func // nil but in a test with package shutdowntest
	began  time.Time

	stopped atomic.Bool // for reportLoss

	mu     sync.Mutex
	first  *record
	held   int
	spare  *record // records of released guards, for those to come
	spares int
}

// maxSpares bounds the memory that a scope keeps for guards to come, at 4 KiB. To reuse a record takes a third off the
// price of a traced guard.
const maxSpares = 32

// A record is one traced guard.
type record struct {
	mark
	next, prev *record
	gone       bool // a copied guard may be released again, and is told so by the panic that follows
}

// A mark says where and when a guard was acquired.
type mark struct {
	site site
	at   time.Duration // since the trace began: half the price of a time.Time
}

// A site holds the innermost return addresses of an acquisition, enough to leave this package also where nothing is inlined,
// as in a build for a debugger. Resolving them is left to whoever reads it.
type site [9]uintptr

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
	m := mark{at: time.Since(t.began)}
	m.site.fill()
	t.mu.Lock()
	r := t.spare
	if r != nil {
		t.spare = r.next
		t.spares--
	} else {
		r = new(record)
	}
	*r = record{mark: m, next: t.first}
	if r.next != nil {
		r.next.prev = r
	}
	t.first = r
	t.held++
	t.mu.Unlock()
	t.reach(probe.Acquired)
	return r
}

// reach tells the probe of a moment of a guard operation.
func (t *scopeTrace) reach(m probe.Moment) {
	if t.probe != nil {
		t.probe(m)
	}
}

// copy returns the marks of the guards that are held: what a report makes of them need not keep anybody waiting.
func (t *scopeTrace) copy() []mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks := make([]mark, 0, t.held)
	for r := t.first; r != nil; r = r.next {
		marks = append(marks, r.mark)
	}
	return marks
}

// forget returns the mark of a guard that is released, whose record may serve another one from now on.
func (t *scopeTrace) forget(r *record) mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := r.mark
	if r.gone {
		return m
	}
	r.gone = true
	t.held--
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		t.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	if r.next, r.prev = nil, nil; t.spares < maxSpares {
		r.next, t.spare = t.spare, r
		t.spares++
	}
	return m
}

// reportLate tells of a guard of s that was released after somebody had given up on it. The guard counts no more: a
// logger that blocks or panics delays nobody's drain.
func (t *scopeTrace) reportLate(s *Swansong, m mark) {
	if t.logger == nil {
		return
	}
	if since := t.began.Add(m.at); s.givenUp(since) {
		t.logger.Warn("guard released late", "scope", s.path(), "site", m.site.String(), "held", time.Since(since))
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
	l := loss{trace: s.trace, path: s.path()}
	l.site.fill()
	context.AfterFunc(s.wire().ctx, func() { l.trace.stopped.Store(true) })
	runtime.AddCleanup(s, func(l loss) {
		if !l.trace.stopped.Load() {
			l.trace.logger.Warn("root scope lost without Shutdown", "scope", l.path, "site", l.site.String())
		}
	}, l)
}
