//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher"
)

// A configuration is taken over as gently as it can be: limits and counts without a process that ends, the rest by rolls.
func TestReload(t *testing.T) {
	web, gone := runners("web", 2), runners("gone", 1)
	h := launch(t, web, gone).ready()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	reload := func(groups ...launcher.GroupConfig) error {
		t.Helper()
		return h.Reload(ctx, launcher.Config{Dir: h.dir, Groups: groups}, "test")
	}
	started := func() (ids []string) {
		h.drainEvents()
		for _, e := range h.events {
			if e.To == launcher.Spawning {
				ids = append(ids, e.Process)
			}
		}
		h.events = nil
		return ids
	}
	started()

	web.Desired = 3
	web.Shutdown.Max *= 2
	if err := reload(web, gone); err != nil {
		t.Fatal(err)
	}
	h.ready()
	h.enters("web-3", launcher.Ready)
	equal(t, "who was started to scale", started(), []string{"web-3"})
	scaled, _ := h.Process("web-3")
	st, _ := h.Process("web-1")
	equal(t, "bound of one that has run all the time", st.Bound, scaled.Bound)

	web.Env = append(web.Env, "COLOUR=green")
	added := runners("added", 1)
	if err := reload(added, web); err != nil {
		t.Fatal(err)
	}
	h.ready()
	equal(t, "who runs", revisions(h, "web"), map[int]int{2: 3})
	var names []string
	for _, g := range h.Health() {
		names = append(names, g.Group)
	}
	equal(t, "groups", len(names), 2)
	if diff := cmp.Diff([]string{"added", "web"}, names); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}

	if err := reload(added, web); err != nil {
		t.Fatal(err)
	}
	started()

	listens := web
	listens.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	fresh := runners("fresh", 1)
	var rule *launcher.ConfigError
	if err := reload(fresh, added, listens); !errors.As(err, &rule) || rule.Field != "Listen" {
		t.Errorf("another listener: %v", err)
	}
	wrong := web
	wrong.Command = []string{"/no/such/program"}
	if err := reload(fresh, added, wrong); !errors.As(err, &rule) || rule.Field != "Command" {
		t.Errorf("a program that is not there: %v", err)
	}
	equal(t, "who was started by what was refused", started(), []string(nil))
	if _, err := h.GroupHealth("fresh"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("a group of what was refused: %v", err)
	}
}
