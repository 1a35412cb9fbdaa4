package lifecycle_test

import (
	"slices"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// The slowest possible process takes exactly Bound: its router never answers, it requests more time
// again and again, it ignores SIGTERM, and it does not even end after SIGKILL.
func TestBound_IsTimeUntilSlowestPossibleProcessIsGivenUp(t *testing.T) {
	for name, total := range map[string]time.Duration{"without a total deadline": 0, "with a total deadline": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			cfg := config(func(c *spec.Group) {
				c.Shutdown.Grace, c.Shutdown.Max = time.Second, 20*time.Second
				c.Shutdown.SIGTERMTimeout, c.Shutdown.DeregisterDelay = 5*time.Second, 3*time.Second
				c.Shutdown.TotalDeadline = total
			})
			m := ready(cfg)
			begin := m.elapsed()
			m.stop()
			for m.next() >= 0 {
				actions := m.pass(m.next())
				if slices.Contains(actions, "shutdown") {
					actions = m.ack(true)
				}
				if slices.Contains(actions, "ask status") {
					m.status(moreTime(time.Hour))
				}
			}
			testkit.Equal(t, "outcome", m.Outcome, lifecycle.Unconfirmed)
			testkit.Equal(t, "time that it took", m.elapsed()-begin, cfg.Bound(true))
		})
	}
}
