//go:build unix

package launcher_test

import (
	"slices"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// The bound is what the slowest of all processes takes, to the moment: the router does not let go of it, it asks for more
// time again and again, it is deaf to SIGTERM, and not even SIGKILL ends it in time.
func TestTheBoundIsReached(t *testing.T) {
	cfg := launcher.GroupConfig{Shutdown: launcher.ShutdownConfig{
		Grace: time.Second, Max: 20 * time.Second, SIGTERMTimeout: 5 * time.Second, DeregisterDelay: 3 * time.Second}}
	short := cfg
	short.Shutdown.TotalDeadline = 10 * time.Second
	for name, cfg := range map[string]launcher.GroupConfig{"without a total deadline": cfg, "with one": short} {
		t.Run(name, func(t *testing.T) {
			m := ready(cfg)
			begun := m.Since()
			m.Stop()
			for m.Next() >= 0 {
				todo := m.Pass(m.Next())
				if slices.Contains(todo, "shutdown") {
					todo = m.Ack(true)
				}
				if slices.Contains(todo, "ask status") {
					m.Status(more(time.Hour))
				}
			}
			equal(t, "outcome", m.Outcome(), launcher.Unconfirmed)
			equal(t, "it took", m.Since()-begun, cfg.Bound())
		})
	}
}
