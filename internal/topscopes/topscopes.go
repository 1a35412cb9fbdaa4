// Package topscopes makes the few series of a metric out of a report of guards.
package topscopes

import (
	"cmp"
	"slices"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// DefaultTop is how many scope paths get a series of their own where nobody has said how many.
const DefaultTop = 20

// In parentheses, as the reports have it: scopes are seldom named so.
const (
	Other   = "(other)"   // the sum of what gets no series of its own
	Unnamed = "(unnamed)" // a scope without a path
)

// A Group is a series: the guards of a path, or of several.
type Group struct {
	Path   string
	Count  int
	Traced bool
	Oldest time.Duration // where traced
}

func (g Group) with(o Group) Group {
	return Group{g.Path, g.Count + o.Count, g.Traced || o.Traced, max(g.Oldest, o.Oldest)}
}

// Of returns the top paths with the most guards, cut to their first depth segments if that is not 0, and the sum of the
// others, which is always there: a series that comes and goes cannot be alerted on.
func Of(r ctxshutdown.GuardReport, top, depth int) []Group {
	byPath := map[string]Group{}
	for _, e := range r.Entries() {
		path := cut(cmp.Or(e.Path, Unnamed), depth)
		byPath[path] = Group{Path: path}.with(byPath[path]).with(Group{"", e.Count, e.Site != "", e.Oldest})
	}
	var list []Group
	rest := Group{Path: Other}.with(byPath[Other])
	delete(byPath, Other) // a scope of that name would be a duplicate
	for _, g := range byPath {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b Group) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Path, b.Path)) })
	for len(list) > top {
		rest = rest.with(list[len(list)-1])
		list = list[:len(list)-1]
	}
	return append(list, rest)
}

// cut returns the first n segments of path, all of it for 0.
func cut(path string, n int) string {
	for i, r := range path {
		if r == '/' {
			if n--; n == 0 {
				return path[:i]
			}
		}
	}
	return path
}
