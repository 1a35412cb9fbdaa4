package ctxshutdown

// Scopes: reports of the guards that are held, and the stacks of their goroutines.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
)

// A GuardReport lists the guards that are held in a scope and its descendants. It is a snapshot: a
// guard that is acquired or released while the report is made may be listed or not.
type GuardReport struct {
	entries []GuardEntry
	count   int
}

// A GuardEntry is a group of guards with the same scope path and, in traced scopes, the same site.
type GuardEntry struct {
	// Path has the names of the scopes from the root, as in "http/conn-42". It is empty if none of
	// them has a name.
	Path  string
	Count int // number of guards
	// Site is the line that acquired the guards, as in "file.go:12", or that made package eventloop,
	// graceful or httpdrain acquire them: a call of Post, say. For an HTTP request it has the method,
	// the route and the client's address instead. It is empty if the scope is not traced.
	Site   string
	Oldest time.Duration // age of the oldest guard; zero if the scope is not traced
}

// GuardReport returns a report of the guards held in the subtree. It takes time proportional to the
// number of scopes that hold guards, and in traced scopes to the number of guards. It does not
// block other operations, except that acquiring and releasing a traced guard waits while the guards
// of its scope are copied.
func (s *Swansong) GuardReport() GuardReport {
	s.parentContext()
	type key struct{ path, site string }
	groups := map[key]GuardEntry{}
	add := func(path, site string, n int, age time.Duration) {
		e := groups[key{path, site}]
		groups[key{path, site}] = GuardEntry{path, e.Count + n, site, max(e.Oldest, age)}
	}
	// The map names caches the text of each site: resolving a site is slow, and many guards have the same
	// one
	now, names := time.Now(), map[site]string{}
	s.node.Walk(func(o packed.Owner, guards int) {
		if guards == 0 {
			return
		}
		s := scopeOf(o)
		path := s.path()
		if s.trace == nil || !s.trace.traced { // then only the number of guards is known
			add(path, "", guards, 0)
			return
		}
		for _, a := range s.trace.snapshot() {
			name, ok := names[a.site]
			if a.name != nil {
				name = a.name.String()
			} else if !ok {
				name = a.site.String()
				names[a.site] = name
			}
			add(path, name, 1, now.Sub(s.trace.start)-a.at)
		}
	})
	var r GuardReport
	for _, e := range groups {
		r.entries = append(r.entries, e)
		r.count += e.Count
	}
	// The groups come from a map, whose order is random. Logs and golden files need the same order
	// each time.
	slices.SortFunc(r.entries, func(a, b GuardEntry) int {
		return cmp.Or(
			cmp.Compare(b.Oldest, a.Oldest),
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Site, b.Site))
	})
	return r
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

// unnamed stands for the path of a scope if no scope on the path has a name.
const unnamed = "(unnamed)"

// maxListed is the number of groups that String and LogValue list.
const maxListed = 10

// String returns one line for logs and errors, such as "3 guards: http/conn-42 ×2, flush ×1". It
// lists the first ten groups.
func (r GuardReport) String() string {
	if r.count == 0 {
		return "no guards"
	}
	return pluralize(r.count, "guard") + ": " + r.list()
}

// pluralize returns n and the noun, with an s unless n is 1.
func pluralize(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// list returns the first groups of guards, separated by commas.
func (r GuardReport) list() string {
	var b strings.Builder
	for i, e := range r.entries {
		if i == maxListed {
			fmt.Fprintf(&b, " and %s", pluralize(len(r.entries)-maxListed, "more group"))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s ×%d", cmp.Or(e.Path, unnamed), e.Count)
		if e.Site != "" {
			fmt.Fprintf(&b, " at %s for %v", e.Site, e.Oldest.Round(time.Millisecond))
		}
	}
	return b.String()
}

// LogValue returns the report as a slog group of the attributes "count" and "held", which lists the
// same groups as String.
func (r GuardReport) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Int("count", r.count)}
	if r.count > 0 {
		attrs = append(attrs, slog.String("held", r.list()))
	}
	return slog.GroupValue(attrs...)
}

// contextName returns the name of ctx as package context prints it.
func contextName(ctx context.Context) string {
	if s, ok := ctx.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", ctx)
}

// maxStacks is the number of different stacks in a DrainError.
const maxStacks = 50

// stacks returns the stacks of the goroutines that Go has started in the traced scopes of the
// report, in the format of a traceback. It finds them by their pprof label in a profile of all
// goroutines of the program, which takes a few microseconds for each goroutine.
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
	var profile, b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // writing to a Builder does not fail
	found := 0
	for group := range strings.SplitSeq(profile.String(), "\n\n") {
		path, ok := scopeLabel(group)
		if !ok || !traced[path] {
			continue
		}
		if found++; found <= maxStacks {
			writeStack(&b, path, group)
		}
	}
	if found > maxStacks {
		fmt.Fprintf(&b, "and %s\n", pluralize(found-maxStacks, "more stack"))
	}
	return b.String()
}

// scopeLabel returns the scope path in the labels of a group of goroutines of a profile, such as
//
//	2 @ 0x47d96e 0x45f146
//	# labels: {"swansong":"app/jobs"}
//	#	0x4dbf5d	main.work+0x9d	/src/main.go:15
func scopeLabel(group string) (path string, ok bool) {
	_, labels, _ := strings.Cut(group, "\n# labels: ")
	labels, _, _ = strings.Cut(labels, "\n")
	// The key cannot match within a value, where quotes are escaped.
	_, value, ok := strings.Cut(labels, strconv.Quote(labelKey)+":")
	if !ok {
		return "", false
	}
	value, err := strconv.QuotedPrefix(value)
	if err != nil {
		return "", false
	}
	path, err = strconv.Unquote(value)
	return path, err == nil
}

// writeStack writes the stack of a group of goroutines of a profile, without program counters and
// without the functions of this package that started the goroutines.
func writeStack(b *strings.Builder, path, group string) {
	head, _, _ := strings.Cut(group, " @ ")
	// The first group begins with the headline of the profile, which is not a part of the number.
	n, _ := strconv.Atoi(head[strings.LastIndexByte(head, '\n')+1:])
	fmt.Fprintf(b, "%s of %s:\n", pluralize(n, "goroutine"), cmp.Or(path, unnamed))
	for line := range strings.Lines(group) {
		frame := strings.Split(strings.TrimSpace(line), "\t")
		if len(frame) < 4 || frame[0] != "#" {
			continue
		}
		function := frame[2]
		if strings.HasPrefix(function, packagePath+"startGuarded.") || strings.HasPrefix(function, packagePath+"(*Group).start.") {
			continue
		}
		if i := strings.LastIndex(function, "+0x"); i > 0 {
			function = function[:i]
		}
		fmt.Fprintf(b, "\t%s\n\t\t%s\n", function, frame[len(frame)-1])
	}
}
