package launcher

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/protobuf/proto"
)

// A redactor is a Config's Redact.
type redactor struct {
	f    func(string) string // nil: shows all
	told atomic.Bool         // that it panics
}

// withheld is shown instead of what could not be redacted. It is neither the text nor the value of the panic: both may be
// the secret.
const withheld = "[not shown: Redact has panicked]"

// redact returns what may be shown of s, and what Redact has panicked with.
func redact(f func(string) string, s string) (shown string, failed *panicError) {
	if f == nil {
		return s, nil
	}
	defer func() {
		if value := recover(); value != nil {
			if _, safe := value.(runtime.Error); !safe {
				value = "its value is not shown, since it may have what was to be taken out"
			}
			shown, failed = withheld, &panicError{"Redact", value, debug.Stack()}
		}
	}()
	return f(s), nil
}

func (m *Manager) redact(s string) string {
	r := m.redactor.Load()
	if r == nil {
		return s
	}
	shown, failed := redact(r.f, s)
	if failed != nil && !r.told.Swap(true) {
		m.events.publish(Event{Kind: Alarm, Message: failed.Error() + "; what it was to be shown is left out, now and whenever that happens", Stack: string(failed.stack)})
	}
	return shown
}

// redactMetrics returns what may be shown of what a process has said of itself. What this launcher does not know of, it cannot
// redact, and does not show.
func (m *Manager) redactMetrics(said *pb.ShutdownMetrics) *pb.ShutdownMetrics {
	if said == nil {
		return nil
	}
	shown := proto.Clone(said).(*pb.ShutdownMetrics) // the machine goes on with what was said
	shown.ProtoReflect().SetUnknown(nil)
	for i, operation := range shown.BlockingOperations {
		shown.BlockingOperations[i] = m.redact(operation)
	}
	return shown
}
