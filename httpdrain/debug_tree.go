package httpdrain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

const (
	maxRows   = 200 // of the tree that is sent
	maxKids   = 25  // of one scope, where there are more rows than that
	maxDepth  = 12  // what is deeper is one name
	maxName   = 160 // characters of it
	maxFilter = 200

	maxBlockers = 5 // that are named beside the state
)

// A debugNode is a scope, or several with only one below each, or a site in a scope.
type debugNode struct {
	Name   string `json:"name"` // relative to the parent
	Path   string `json:"path"`
	Site   string `json:"site,omitempty"`
	State  string `json:"state"`
	Guards int    `json:"guards"`
	AtStop int    `json:"guards_at_stop,omitempty"` // where known
	Oldest int64  `json:"oldest_ms,omitempty"`      // where traced

	Scopes   int           `json:"scopes"` // that hold guards, here and below
	Children []*debugNode  `json:"children,omitempty"`
	Hidden   *debugOmitted `json:"hidden,omitempty"` // children too many

	Open   bool `json:"-"`
	own    int
	traced bool
	kids   map[string]*debugNode
}

// A debugOmitted is what there was no room for.
type debugOmitted struct {
	Rows   int `json:"rows"` // direct children; those have children of their own
	Scopes int `json:"scopes"`
	Guards int `json:"guards"`
}

// A debugTree is what is left of a report that has room on a page.
type debugTree struct {
	*debugNode
	rows     int
	blockers []debugBlocker
}

// newDebugTree makes a tree of the entries that match.
func newDebugTree(now *debugState, filter string) debugTree {
	root := &debugNode{}
	nodes, filter := 0, strings.ToLower(filter)
	at := func(path string) []*debugNode {
		branch := []*debugNode{root}
		n, depth, end := root, 0, 0
		for end < len(path) {
			size := strings.IndexByte(path[end:], '/')
			if depth++; size < 0 || depth == maxDepth {
				size = len(path) - end
			}
			name := path[end : end+size]
			end = min(end+size+1, len(path))
			kid := n.kids[name]
			if kid == nil {
				if n.kids == nil {
					n.kids = map[string]*debugNode{}
				}
				kid = &debugNode{Name: name, Path: strings.TrimSuffix(path[:end], "/")}
				n.kids[name] = kid
				n.Children = append(n.Children, kid)
				nodes++
			}
			n = kid
			branch = append(branch, n)
		}
		return branch
	}
	matches := func(path, site string) bool {
		return filter == "" || strings.Contains(strings.ToLower(path), filter) || strings.Contains(strings.ToLower(site), filter)
	}
	for _, e := range now.entries {
		if !matches(e.Path, e.Site) {
			continue
		}
		branch := at(e.Path)
		leaf := branch[len(branch)-1]
		first := leaf.own == 0
		leaf.own += e.Count
		age := age(now.at, e.since)
		for _, n := range branch {
			n.Guards += e.Count
			n.Oldest = max(n.Oldest, age)
			n.traced = n.traced || e.Site != ""
			if first {
				n.Scopes++
			}
		}
		if e.Site != "" {
			leaf.Children = append(leaf.Children, &debugNode{
				Name: e.Site, Path: e.Path, Site: e.Site, Guards: e.Count, own: e.Count, Oldest: age, traced: true,
			})
			nodes++
		}
	}
	for path, n := range now.baseline {
		if matches(path, "") {
			branch := at(path)
			branch[len(branch)-1].AtStop = n
		}
	}
	running := now.state == ctxshutdown.Running
	root.tidy(running)
	t := debugTree{debugNode: root}
	t.block()
	t.prune(nodes <= maxRows)
	root.open(0, filter != "" || t.rows <= 40)
	return t
}

func age(now, since time.Time) int64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since).Milliseconds())
}

// tidy sorts, and joins what stands alone with what is above it.
func (n *debugNode) tidy(running bool) {
	for len(n.Children) == 1 && n.Path != "" {
		kid := n.Children[0]
		switch {
		case kid.Site != "" && len(n.kids) == 0 && kid.own == n.own:
			n.Site, n.Children = kid.Site, nil
		case kid.Site == "" && n.own == 0 && n.AtStop <= kid.AtStop:
			n.Name, n.Path, n.Site = n.Name+"/"+kid.Name, kid.Path, kid.Site
			n.own, n.Children, n.kids, n.AtStop = kid.own, kid.Children, kid.kids, kid.AtStop
		default:
			kid = nil
		}
		if kid == nil {
			break
		}
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
	for _, kid := range n.Children {
		kid.tidy(running)
	}
	slices.SortFunc(n.Children, byAge)
}

// block names who holds guards, as exactly as there is room for: ten thousand connections are one blocker.
func (t *debugTree) block() {
	open := []*debugNode{t.debugNode}
	for {
		best, parts := -1, []*debugNode(nil)
		for i, n := range open {
			var held []*debugNode
			own := n.own
			for _, kid := range n.Children {
				if kid.Guards == 0 {
					break // and so have those that follow
				}
				if kid.Site != "" && kid.Path == n.Path {
					own -= kid.own
				}
				held = append(held, kid)
			}
			if own > 0 && len(held) > 0 { // what n holds itself
				held = append(held, &debugNode{Path: n.Path, Guards: own, Scopes: 1})
			}
			// A root that everybody is under says nothing, not even where only the first few of what is below it have room.
			room := len(open)-1+len(held) <= maxBlockers || n == t.debugNode || len(open) == 1 && len(held) <= maxKids
			if len(held) > 0 && room && (best < 0 || n.Guards > open[best].Guards) {
				best, parts = i, held
			}
		}
		if best < 0 {
			break
		}
		open = slices.Replace(open, best, best+1, parts...)
	}
	slices.SortStableFunc(open, byAge)
	t.blockers = []debugBlocker{}
	for _, n := range open[:min(len(open), maxBlockers)] {
		if n.Guards > 0 {
			t.blockers = append(t.blockers, debugBlocker{cmp.Or(n.Path, "(unnamed)"), n.Site, max(n.Scopes, 1), n.Guards, n.Oldest})
		}
	}
}

func byAge(a, b *debugNode) int {
	return cmp.Or(
		cmp.Compare(b.Oldest, a.Oldest),
		cmp.Compare(b.Guards, a.Guards),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Path, b.Path))
}

// prune leaves as many rows as are sent, those near the root first, and says of the others how many there are.
func (t *debugTree) prune(all bool) {
	queue := []*debugNode{t.debugNode}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		keep := len(n.Children)
		if !all {
			keep = max(0, min(keep, maxKids, maxRows-t.rows))
		}
		for _, kid := range n.Children[keep:] {
			if n.Hidden == nil {
				n.Hidden = &debugOmitted{}
			}
			n.Hidden.Rows++
			n.Hidden.Scopes += kid.Scopes
			n.Hidden.Guards += kid.Guards
		}
		n.Children = n.Children[:keep:keep]
		t.rows += keep
		queue = append(queue, n.Children...)
	}
}

func (n *debugNode) open(depth int, all bool) {
	n.Open = all || depth < 2
	for _, kid := range n.Children {
		kid.open(depth+1, all)
	}
}
