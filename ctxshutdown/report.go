package ctxshutdown

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
)

// A GuardReport says who holds guards: a snapshot, which guards that come and go meanwhile may blur.
type GuardReport struct {
	entries []GuardEntry
	count   int
}

// A GuardEntry is a group of guards with the same scope path and, where traced, the same site.
type GuardEntry struct {
	Path   string        // names from the root, as in "http/conn-42"; empty where no scope up to the root has a name
	Count  int           // guards held
	Site   string        // where they were acquired, as in "file.go:12"; only where traced
	Oldest time.Duration // age of the oldest of them; only where traced
}

// GuardReport returns who in the subtree holds guards. It takes time proportional to the number of scopes that hold
// guards, or of guards where traced, and stops nobody from acquiring any but traced ones, for the time it takes to copy
// those of one scope.
func (s *Swansong) GuardReport() GuardReport {
	s.from()
	type key struct{ path, site string }
	groups := map[key]GuardEntry{}
	add := func(path, site string, n int, age time.Duration) {
		e := groups[key{path, site}]
		groups[key{path, site}] = GuardEntry{path, e.Count + n, site, max(e.Oldest, age)}
	}
	now, names := time.Now(), map[site]string{}
	s.node.Walk(func(o packed.Owner, guards int) {
		if guards == 0 {
			return
		}
		s := scopeOf(o)
		path := s.path()
		if s.trace == nil || !s.trace.traced {
			add(path, "", guards, 0)
			return
		}
		for _, r := range s.trace.copy() {
			name, ok := names[r.site]
			if !ok {
				name = r.site.String()
				names[r.site] = name
			}
			add(path, name, 1, now.Sub(s.trace.began)-r.at)
		}
	})
	var r GuardReport
	for _, e := range groups {
		r.entries = append(r.entries, e)
		r.count += e.Count
	}
	slices.SortFunc(r.entries, func(a, b GuardEntry) int {
		return cmp.Or(
			cmp.Compare(b.Oldest, a.Oldest),
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Site, b.Site))
	})
	return r
}

// path returns the names from the root down to s.
func (s *Swansong) path() string {
	var names []string
	for ; s != nil; s = s.up() {
		if s.name != "" {
			names = append(names, s.name)
		}
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// Count returns the number of guards in the report.
func (r GuardReport) Count() int { return r.count }

// Entries returns the groups of guards: most guards first, and where traced, oldest first.
func (r GuardReport) Entries() []GuardEntry { return slices.Clone(r.entries) }

const unnamed = "(unnamed)"

// shown is how many groups String and LogValue spell out. A report is part of errors and log lines.
const shown = 10

// String returns one line for logs and errors, such as "3 guards: http/conn-42 ×2, flush ×1".
func (r GuardReport) String() string {
	if r.count == 0 {
		return "no guards"
	}
	return many(r.count, "guard") + ": " + r.list()
}

func many(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

func (r GuardReport) list() string {
	var b strings.Builder
	for i, e := range r.entries {
		if i == shown {
			fmt.Fprintf(&b, " and %s", many(len(r.entries)-shown, "more group"))
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

// LogValue returns the report as a group: the count, and the first groups of guards as strings.
func (r GuardReport) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Int("count", r.count)}
	if r.count > 0 {
		attrs = append(attrs, slog.String("held", r.list()))
	}
	return slog.GroupValue(attrs...)
}

// contextName is how package context would name ctx.
func contextName(ctx context.Context) string {
	if s, ok := ctx.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", ctx)
}
