// Package topscopes reduces a report of guards to the few series that a metric should have: the
// scopes with the most guards, and the sum of the others.
package topscopes

import (
	"cmp"
	"slices"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// DefaultTop is the default number of scope paths that have their own series.
const DefaultTop = 20

// Other and Unnamed take the place of a path in series that do not belong to a single scope path.
// They are in parentheses, because few scopes have such a name.
const (
	Other   = "(other)"   // the sum of all paths without a series of their own
	Unnamed = "(unnamed)" // scopes without a path: neither they nor their ancestors have a name
)

// A Group is one series: the guards of one path or, for [Other], of several paths.
type Group struct {
	Path   string
	Count  int
	Traced bool
	Oldest time.Duration // age of the oldest traced guard; 0 unless Traced
}

func (g Group) with(o Group) Group {
	return Group{g.Path, g.Count + o.Count, g.Traced || o.Traced, max(g.Oldest, o.Oldest)}
}

// Of returns a Group for each of the paths with the most guards, at most top of them, in decreasing
// order, followed by a Group for [Other]. Paths are shortened to their first depth segments; 0
// means that they are not shortened. Other is included even when it is 0, because an alert cannot
// be defined on a series that comes and goes.
func Of(r ctxshutdown.GuardReport, top, depth int) []Group {
	byPath := map[string]Group{}
	for _, e := range r.Entries() {
		path := cut(cmp.Or(e.Path, Unnamed), depth)
		byPath[path] = Group{Path: path}.with(byPath[path]).with(Group{"", e.Count, e.Site != "", e.Oldest})
	}
	var list []Group
	rest := Group{Path: Other}.with(byPath[Other])
	// A scope can have the name "(other)". It is counted in rest, and must not be listed a second
	// time.
	delete(byPath, Other)
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

// cut returns the first n segments of path, or the whole path if n is 0.
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
