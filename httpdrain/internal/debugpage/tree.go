package debugpage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

const (
	maxRows     = 200 // maximal number of rows of the tree that is sent
	maxChildren = 25  // maximal number of children per scope, in a tree with more than maxRows rows
	maxDepth    = 12  // maximal depth of the tree; in a deeper path, the rest becomes one name
	maxName     = 160 // maximal length of a name in characters
	maxFilter   = 200 // maximal length of a filter in characters
	maxBlockers = 5   // maximal number of blockers in the list of what delays the shutdown most
)

// A node is a scope, a chain of scopes in which each has a single child, or an acquisition site
// within a scope.
type node struct {
	Name   string `json:"name"` // name relative to the parent
	Path   string `json:"path"`
	Site   string `json:"site,omitempty"`
	State  string `json:"state"`
	Guards int    `json:"guards"`
	AtStop int    `json:"guards_at_stop,omitempty"` // guards held at the stop, if known
	Oldest int64  `json:"oldest_ms,omitempty"`      // age of the oldest guard, if traced

	Scopes   int      `json:"scopes"` // number of scopes in this subtree that hold guards
	Children []*node  `json:"children,omitempty"`
	Hidden   *omitted `json:"hidden,omitempty"` // counts the children that are not sent, because of maxRows and maxChildren

	Open   bool             `json:"-"`
	own    int              // number of guards of the scope itself, without those of its children
	byName map[string]*node // those of Children that are scopes, and not lines of code, by name
}

// An omitted counts the children of a node that are not sent to the page because of its limits.
type omitted struct {
	Rows   int `json:"rows"` // number of omitted direct children
	Scopes int `json:"scopes"`
	Guards int `json:"guards"`
}

// A tree is a guard report, shortened to what the debug page shows: see maxRows, maxChildren and
// maxDepth.
type tree struct {
	*node    // the root
	nodes    int
	rows     int // number of rows sent
	blockers []blocker
}

// newTree returns the tree of those entries of the snapshot whose path or acquisition site contains
// filter.
func newTree(now *snapshot, filter string) tree {
	t := tree{node: &node{}}
	filter = strings.ToLower(filter)
	matches := func(path, site string) bool {
		return filter == "" || strings.Contains(strings.ToLower(path), filter) || strings.Contains(strings.ToLower(site), filter)
	}
	for _, e := range now.entries {
		if matches(e.Path, e.Site) {
			t.add(e, now.at)
		}
	}
	for path, n := range now.atStop {
		if matches(path, "") {
			branch := t.branch(path)
			branch[len(branch)-1].AtStop = n
		}
	}
	t.normalize(now.state == ctxshutdown.Running)
	t.findBlockers()
	t.prune(t.nodes <= maxRows)
	t.setOpen(0, filter != "" || t.rows <= 40)
	return t
}

// branch returns the nodes from the root to path, and creates those that do not exist.
func (t *tree) branch(path string) []*node {
	branch := []*node{t.node}
	n, depth, end := t.node, 0, 0
	for end < len(path) {
		size := strings.IndexByte(path[end:], '/')
		if depth++; size < 0 || depth == maxDepth {
			size = len(path) - end
		}
		name := path[end : end+size]
		end = min(end+size+1, len(path))
		child := n.byName[name]
		if child == nil {
			if n.byName == nil {
				n.byName = map[string]*node{}
			}
			child = &node{Name: name, Path: strings.TrimSuffix(path[:end], "/")}
			n.byName[name] = child
			n.Children = append(n.Children, child)
			t.nodes++
		}
		n = child
		branch = append(branch, n)
	}
	return branch
}

// add adds e to its scope and to all scopes above it.
func (t *tree) add(e entry, now time.Time) {
	branch := t.branch(e.Path)
	leaf := branch[len(branch)-1]
	first := leaf.own == 0
	leaf.own += e.Count
	age := millisSince(now, e.since)
	for _, n := range branch {
		n.Guards += e.Count
		n.Oldest = max(n.Oldest, age)
		if first {
			n.Scopes++
		}
	}
	if e.Site != "" {
		leaf.Children = append(leaf.Children, &node{
			Name: e.Site, Path: e.Path, Site: e.Site, Guards: e.Count, own: e.Count, Oldest: age,
		})
		t.nodes++
	}
}

// millisSince returns the milliseconds from since to now, 0 if since is unknown.
func millisSince(now, since time.Time) int64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since).Milliseconds())
}

// normalize prepares the subtree of n for output: it merges each node that has a single child with
// that child, escapes the names, sets the states, and sorts the children.
func (n *node) normalize(running bool) {
	for len(n.Children) == 1 && n.Path != "" && n.joinOnlyChild() {
	}
	n.Name, n.Path, n.Site = cmp.Or(printable(n.Name, maxName), "(unnamed)"), printable(n.Path, 2*maxName), printable(n.Site, maxName)
	n.State = ctxshutdown.ShuttingDown.String()
	switch {
	case running:
		n.State = ctxshutdown.Running.String()
	case n.Guards == 0:
		n.State = ctxshutdown.Complete.String()
	}
	n.AtStop = max(n.AtStop, 0)
	for _, child := range n.Children {
		child.normalize(running)
	}
	slices.SortFunc(n.Children, compareByAge)
}

// joinOnlyChild merges n with its only child if the child stands for all guards of n, and reports
// whether it has done so.
func (n *node) joinOnlyChild() bool {
	child := n.Children[0]
	switch {
	case child.Site != "" && len(n.byName) == 0 && child.own == n.own:
		n.Site, n.Children = child.Site, nil
	case child.Site == "" && n.own == 0 && n.AtStop <= child.AtStop:
		n.Name, n.Path, n.Site = n.Name+"/"+child.Name, child.Path, child.Site
		n.own, n.Children, n.byName, n.AtStop = child.own, child.Children, child.byName, child.AtStop
	default:
		return false
	}
	return true
}

// findBlockers lists the nodes with the oldest and the most guards. It begins with a list of only
// the root. It replaces the node with the most guards by its parts (see parts) as long as the list
// is short enough. So ten thousand similar connections are listed as one blocker, their parent.
func (t *tree) findBlockers() {
	list := []*node{t.node}
	for {
		best, bestParts := -1, []*node(nil)
		for i, n := range list {
			parts := n.parts()
			// The root is always replaced by its parts, because its name tells the reader nothing.
			// Another node that is alone in the list is replaced if it has at most maxChildren
			// parts; the page then lists maxBlockers of them.
			fits := len(list)-1+len(parts) <= maxBlockers || n == t.node || len(list) == 1 && len(parts) <= maxChildren
			if len(parts) > 0 && fits && (best < 0 || n.Guards > list[best].Guards) {
				best, bestParts = i, parts
			}
		}
		if best < 0 {
			break
		}
		list = slices.Replace(list, best, best+1, bestParts...)
	}
	slices.SortStableFunc(list, compareByAge)
	t.blockers = []blocker{}
	for _, n := range list[:min(len(list), maxBlockers)] {
		if n.Guards > 0 {
			t.blockers = append(t.blockers, blocker{cmp.Or(n.Path, "(unnamed)"), n.Site, max(n.Scopes, 1), n.Guards, n.Oldest})
		}
	}
}

// parts returns the children of n that hold guards and, if n itself holds guards, a node for those
// guards. It returns none if n cannot be divided.
func (n *node) parts() (parts []*node) {
	own := n.own
	for _, child := range n.Children {
		if child.Guards == 0 {
			continue
		}
		if child.Site != "" && child.Path == n.Path {
			own -= child.own
		}
		parts = append(parts, child)
	}
	if own > 0 && len(parts) > 0 {
		parts = append(parts, &node{Path: n.Path, Guards: own, Scopes: 1})
	}
	return parts
}

func compareByAge(a, b *node) int {
	return cmp.Or(
		cmp.Compare(b.Oldest, a.Oldest),
		cmp.Compare(b.Guards, a.Guards),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Path, b.Path))
}

// prune removes the rows that exceed maxRows and maxChildren, and counts them, unless keepAll is
// true. It keeps rows near the root rather than rows far from it.
func (t *tree) prune(keepAll bool) {
	queue := []*node{t.node}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		keep := len(n.Children)
		if !keepAll {
			keep = max(0, min(keep, maxChildren, maxRows-t.rows))
		}
		for _, child := range n.Children[keep:] {
			if n.Hidden == nil {
				n.Hidden = &omitted{}
			}
			n.Hidden.Rows++
			n.Hidden.Scopes += child.Scopes
			n.Hidden.Guards += child.Guards
		}
		n.Children = n.Children[:keep:keep]
		t.rows += keep
		queue = append(queue, n.Children...)
	}
}

// setOpen decides which nodes show their children when the page is opened: all nodes if openAll is
// true, otherwise those on the first two levels.
func (n *node) setOpen(depth int, openAll bool) {
	n.Open = openAll || depth < 2
	for _, child := range n.Children {
		child.setOpen(depth+1, openAll)
	}
}
