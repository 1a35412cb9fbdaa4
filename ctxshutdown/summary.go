package ctxshutdown

// Scopes: reports in ordinary words.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
)

// A workList is what the guards of a report stand for.
type workList struct {
	kinds    map[workKind]int   // the numbers of requests, jobs and so on
	waiting  map[workKind]int   // guards that only wait for other guards; listed if no other guard is held
	aged     map[string]bool    // paths of scopes whose guards are in named or waiting, so that their ages in a trace are ignored
	named    []ctxkey.NamedWork // the oldest requests, whose age is known without tracing
	nameable int                // the number of all requests
}

// A workKind is a kind of work, such as "request", or, if that is not known, the path of a scope.
type workKind struct{ noun, path string }

func (k workKind) count(n int) string {
	if k.noun != "" {
		return pluralize(n, k.noun)
	}
	return fmt.Sprintf("%s ×%d", cmp.Or(k.path, unnamed), n)
}

// add adds the guards of the scope s. It returns the number of guards that the report counts. If
// one guard stands for several pieces of work, the report counts each piece as a guard.
func (l *workList) add(s *Swansong, path string, guards int) (counted int) {
	d, ok := s.Value(ctxkey.Describer{}).(*ctxkey.WorkDescriber)
	if !ok || d.Scope != any(s) {
		l.kinds[workKind{path: path}] += guards
		return guards
	}
	w := d.Describe(guards)
	if w.Extra > 0 {
		l.kinds[workKind{path: path}] += w.Extra
		if guards -= w.Extra; guards == 0 {
			return w.Extra
		}
	}
	if counted = guards; w.Shared {
		counted = max(w.Count, 1)
	}
	counted += w.Extra
	if w.Count == 0 || len(w.Named) > 0 {
		l.aged[path] = true
	}
	if w.Count == 0 {
		l.waiting[workKind{path: path}] += guards
		return counted
	}
	l.kinds[workKind{noun: w.Noun}] += w.Count
	if len(w.Named) > 0 {
		l.nameable += w.Count
		l.named = append(l.named, w.Named...)
		slices.SortStableFunc(l.named, func(a, b ctxkey.NamedWork) int { return cmp.Compare(b.Age, a.Age) })
		l.named = l.named[:min(len(l.named), ctxkey.MaxNamed)]
	}
	return counted
}

// Summary says in ordinary words what the guards stand for, as in
//
//	3 requests, 1 job and mail ×2, oldest 12 s: GET /export from 192.0.2.1:4711
//
// Guards of httpdrain and eventloop are requests, connections, callbacks, jobs, offloads and handles. Other
// guards are named by the path of their scope. The function that graceful.Run runs, and the Serve of
// package httpdrain, are only named if nothing else is held. The oldest guard is known in traced
// scopes, and among HTTP requests. Summary returns "nothing" if no guard is held.
func (r GuardReport) Summary() string {
	counts := r.work.kinds
	if len(counts) == 0 {
		counts = r.work.waiting
	}
	if len(counts) == 0 {
		return "nothing"
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b workKind) int {
		// Work of a known kind comes before paths of scopes, which have no noun.
		return cmp.Or(cmp.Compare(min(len(b.noun), 1), min(len(a.noun), 1)),
			cmp.Compare(counts[b], counts[a]), cmp.Compare(a.noun, b.noun), cmp.Compare(a.path, b.path))
	})
	const maxKinds = 5
	var names []string
	for i, k := range kinds {
		if i == maxKinds {
			names = append(names, "others")
			break
		}
		names = append(names, k.count(counts[k]))
	}
	last := len(names) - 1
	text := names[last]
	if last > 0 {
		text = strings.Join(names[:last], ", ") + " and " + text
	}
	oldest, age := "", time.Duration(0)
	if len(r.work.named) > 0 {
		oldest, age = r.work.named[0].Name, r.work.named[0].Age
	}
	for _, e := range r.entries {
		if e.Oldest > age && !r.work.aged[e.Path] {
			oldest, age = e.Site, e.Oldest
		}
	}
	if oldest != "" {
		text += fmt.Sprintf(", oldest %d s: %s", (age+time.Second-1)/time.Second, oldest)
	}
	return text
}
