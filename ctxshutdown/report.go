package ctxshutdown

// Scopes: reports of the guards that are held, and the stacks of their goroutines.
//
// A report shows the same guards in three forms:
//
//	Entries    guards by scope path and line, for logs, errors and programs
//	Requests   HTTP requests by method, route and client
//	Summary    one sentence in ordinary words, for people who do not know what a guard is
//
// For an untraced scope, a report has the number of guards and, if a package of this module has
// created the scope, what the guards stand for; see ctxkey.WorkDescriber. For a traced scope,
// there is also a record of each guard; see trace.go.
//
// The scopes keep running while a report is made. So the numbers of different scopes do not belong
// to exactly the same moment, but each guard that is held all the time is in the report once.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/packed"
	"github.com/swansong-go/swansong/internal/stacks"
	"github.com/swansong-go/swansong/internal/worktext"
)

// A GuardReport lists the guards that are held in a scope and its descendants. It is a snapshot: a
// guard that is acquired or released while the report is made may be listed or not.
//
// All jobs of an eventloop.Pool share one guard, and so do all callbacks of an eventloop.Loop. In a
// scope that is not traced, a report counts each job or callback instead of that guard. Each other
// guard counts as one.
type GuardReport struct {
	entries []GuardEntry  // sorted; see Entries
	count   int           // the sum of the counts of the entries
	work    worktext.List // what the guards stand for, where it is known: for Requests and Summary
}

// A GuardEntry is a group of guards with the same scope path and, in traced scopes, the same site.
type GuardEntry struct {
	// Path has the names of the scopes from the root, as in "http/conn-42". It is empty if none of
	// them has a name.
	Path  string
	Count int // number of guards in the group
	// Site is the line that acquired the guards, as in "file.go:12". If package eventloop, graceful
	// or httpdrain acquired them, Site is the line that called that package, such as a call of
	// Post. For an HTTP request it has the method, the route and the client's address instead. It
	// is empty if the scope is not traced.
	Site   string
	Oldest time.Duration // age of the oldest guard; zero if the scope is not traced
}

// GuardReport returns a report of the guards held in the subtree. It takes time proportional to the
// number of scopes that hold guards, and in traced scopes to the number of guards. It does not
// block other operations, except that acquiring and releasing a traced guard waits while the guards
// of its scope are copied.
func (s *Swansong) GuardReport() GuardReport {
	s.parentContext()
	// A server has thousands of guards of the same kind. They are counted by path and site here, so
	// that the report has an entry for each kind and not one for each guard.
	type key struct{ path, site string }
	groups := map[key]GuardEntry{}
	add := func(path, site string, n int, age time.Duration) {
		e := groups[key{path, site}]
		groups[key{path, site}] = GuardEntry{path, e.Count + n, site, max(e.Oldest, age)}
	}
	// The map names caches the text of each site: resolving a site is slow, and many guards have
	// the same one.
	now, names := time.Now(), map[stacks.Site]string{}
	var r GuardReport
	s.node.Walk(func(o packed.Owner, guards int) {
		if guards == 0 {
			return
		}
		s := scopeOf(o)
		path := s.path()
		counted, agesMatter := r.work.Add(s.describer(), path, guards)
		if s.trace == nil || !s.trace.traced { // of an untraced scope, only the number of guards is known
			add(path, "", counted, 0)
			return
		}
		// Of a traced scope, the records are counted and not the guards. A guard that is being
		// acquired may have no record yet.
		for _, g := range s.trace.snapshot(guards) {
			name, ok := names[g.site]
			if g.name != nil {
				name = g.name.String()
			} else if !ok {
				name = g.site.String()
				names[g.site] = name
			}
			age := now.Sub(s.trace.start) - g.at
			add(path, name, 1, age)
			if _, shared := g.name.(ctxkey.SharedSite); agesMatter && !shared {
				r.work.AddTraced(name, age)
			}
		}
	})
	for _, e := range groups {
		r.entries = append(r.entries, e)
		r.count += e.Count
	}
	// The entries come from a map and so have a random order. They are sorted so that logs and
	// golden files are the same each time.
	slices.SortFunc(r.entries, func(a, b GuardEntry) int {
		return cmp.Or(
			cmp.Compare(b.Oldest, a.Oldest),
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Site, b.Site))
	})
	return r
}

// describer returns the value that says what the guards of s stand for: requests, say. It returns
// nil if that is not known.
func (s *Swansong) describer() *ctxkey.WorkDescriber {
	if d, ok := s.Value(ctxkey.Describer{}).(*ctxkey.WorkDescriber); ok && d.Scope == any(s) {
		return d
	}
	return nil
}

// path returns the names from the root to s, joined by slashes.
func (s *Swansong) path() string {
	var names []string
	for ; s != nil; s = s.parentScope() {
		if s.name != "" {
			names = append(names, s.name)
		}
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// Count returns the number of guards in the report.
func (r GuardReport) Count() int { return r.count }

// Entries returns the groups of guards. Groups with the oldest guards come first. Groups whose age
// is the same or unknown are sorted by the number of guards, the largest first.
func (r GuardReport) Entries() []GuardEntry { return slices.Clone(r.entries) }

// A RequestEntry is an HTTP request in a report.
type RequestEntry struct {
	Request string // the method, the route and the client, as in "GET /orders/{id} from 192.0.2.1:4711"
	Age     time.Duration
}

// Requests returns the requests of package httpdrain for which the scope waits, even if the scope
// is not traced. The oldest come first, and there are 20 at most. Requests that an entry names by
// its Site, as in traced scopes, are left out.
func (r GuardReport) Requests() (requests []RequestEntry) {
	for _, w := range r.work.Named {
		if !slices.ContainsFunc(r.entries, func(e GuardEntry) bool { return e.Site == w.Name }) {
			requests = append(requests, RequestEntry{w.Name, w.Age})
		}
	}
	return requests
}

// maxListed is the number of groups that String and LogValue list, and of requests that String
// lists.
const maxListed = 10

// String returns one line for logs and errors, such as "3 guards: http ×2, flush ×1; requests: GET
// / from 192.0.2.1:4711 for 2s". It lists the first ten groups, and the oldest ten of what Requests
// returns.
func (r GuardReport) String() string {
	if r.count == 0 {
		return "no guards"
	}
	text := worktext.Pluralize(r.count, "guard") + ": " + r.list()
	if requests := r.listRequests(maxListed); requests != "" {
		text += "; requests: " + requests
	}
	return text
}

// list returns the first groups of guards, separated by commas.
func (r GuardReport) list() string {
	var groups []string
	for _, e := range r.entries[:min(len(r.entries), maxListed)] {
		text := fmt.Sprintf("%s ×%d", worktext.PathOr(e.Path), e.Count)
		if e.Site != "" {
			text += fmt.Sprintf(" at %s for %v", e.Site, e.Oldest.Round(time.Millisecond))
		}
		groups = append(groups, text)
	}
	list := strings.Join(groups, ", ")
	if more := len(r.entries) - len(groups); more > 0 {
		list += " and " + worktext.Pluralize(more, "more group")
	}
	return list
}

// listRequests returns the oldest requests of r.Requests, separated by commas, at most limit.
func (r GuardReport) listRequests(limit int) string {
	var requests []string
	for _, q := range r.Requests() {
		requests = append(requests, fmt.Sprintf("%s for %v", q.Request, q.Age.Round(time.Millisecond)))
	}
	if len(requests) <= limit {
		return strings.Join(requests, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(requests[:limit], ", "), r.work.Nameable-limit)
}

// LogValue implements [slog.LogValuer], so that a report can be passed to a logger, which asks for
// the value only if it logs the record. It returns the report as a slog group of the attributes
// "count", "held", which lists the same groups as String, and "requests", which lists the oldest
// three of what Requests returns.
func (r GuardReport) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Int("count", r.count)}
	if r.count > 0 {
		attrs = append(attrs, slog.String("held", r.list()))
		if requests := r.listRequests(3); requests != "" {
			attrs = append(attrs, slog.String("requests", requests))
		}
	}
	return slog.GroupValue(attrs...)
}

// Summary says in ordinary words what the guards stand for, as in
//
//	3 requests, 1 job and mail ×2, oldest 12 s: GET /export from 192.0.2.1:4711
//
// Guards of httpdrain and eventloop are requests, connections, callbacks, jobs, offloads and
// handles. Other guards are named by the path of their scope, or are unnamed work if it is empty.
// The function that graceful.Run runs, and the Serve of package httpdrain, are only named if
// nothing else is held. The oldest guard is known in traced scopes, and among HTTP requests.
// Summary returns "nothing" if no guard is held.
func (r GuardReport) Summary() string { return r.work.Summary() }

// contextName returns the name of ctx as package context prints it.
func contextName(ctx context.Context) string {
	if s, ok := ctx.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", ctx)
}

// stacks returns the stacks of the goroutines that Go has started in the traced scopes of the
// report, in the format of a traceback. It finds the goroutines in a profile of all goroutines, by
// the pprof label that Go has set.
func (r GuardReport) stacks() string {
	traced := map[string]bool{}
	for _, e := range r.entries {
		if e.Site != "" {
			traced[e.Path] = true
		}
	}
	if len(traced) == 0 {
		return ""
	}
	return stacks.OfScopes(labelKey, traced, startsGoroutine)
}

// startsGoroutine reports whether function is the name of a function of this package in which a
// goroutine started by Go begins. The stacks in a report leave out such frames.
func startsGoroutine(function string) bool {
	name, found := strings.CutPrefix(function, packagePath)
	return found && (name == "runGuarded" || name == "(*Group).run")
}
