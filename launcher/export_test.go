package launcher

import (
	"context"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// SetHoldTime changes how long guardians of this program hold listeners open.
func SetHoldTime(d time.Duration) { guardian.HoldTime = d }

// SetLockTimeout changes how long a launcher waits for the lock of a directory.
func SetLockTimeout(d time.Duration) { statefile.LockTimeout = d }

// StartWatched calls Start and then Watch, so that the channel contains all events since the start.
func StartWatched(ctx context.Context, cfg Config) (*Manager, <-chan Event, error) {
	m, begin, err := prepare(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	events, _ := m.Watch()
	begin()
	return m, events, nil
}

// StartStopped starts a manager that is stopped before it starts its groups.
func StartStopped(ctx context.Context, cfg Config) (*Manager, error) {
	m, begin, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	m.Shutdown()
	begin()
	return m, nil
}

// AwaitStateFile returns when the state file is up to date and no further write is due.
func AwaitStateFile(m *Manager) {
	for again := true; again; again = !m.host.StateFile.Idle() {
		m.host.StateFile.Flush(nil)
	}
}

// ConfigOf returns the configuration that a group wants.
func ConfigOf(m *Manager, group string) spec.Group {
	g, err := m.group(group)
	if err != nil {
		panic(err)
	}
	return g.config()
}
