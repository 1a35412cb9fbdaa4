package callback

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/protobuf/proto"
)

// A Redactor redacts the texts that the launcher shows, with Config.Redact. Its methods may be
// called concurrently.
type Redactor struct {
	report  func(*PanicError)          // called at the first panic of each redaction function
	current atomic.Pointer[redactFunc] // the redaction function; a reload can replace it
}

// A redactFunc is one Config.Redact.
type redactFunc struct {
	f        func(string) string // if f is nil, nothing is redacted
	reported atomic.Bool         // set if the first panic of f has been reported
}

// NewRedactor returns a Redactor that redacts with f, and calls report when f panics for the first
// time. If f is nil, nothing is redacted.
func NewRedactor(f func(string) string, report func(*PanicError)) *Redactor {
	r := &Redactor{report: report}
	r.Use(f)
	return r
}

// Use changes the function that redacts. If f is nil, nothing is redacted.
func (r *Redactor) Use(f func(string) string) { r.current.Store(&redactFunc{f: f}) }

// Redact returns s without secrets.
func (r *Redactor) Redact(s string) string {
	current := r.current.Load()
	shown, p := redact(current.f, s)
	if p != nil && !current.reported.Swap(true) {
		r.report(p)
	}
	return shown
}

// RedactMetrics returns a copy of the metrics of a process without secrets. Fields that this
// launcher does not know are removed, because it cannot redact them.
func (r *Redactor) RedactMetrics(metrics *pb.ShutdownMetrics) *pb.ShutdownMetrics {
	if metrics == nil {
		return nil
	}
	shown := proto.Clone(metrics).(*pb.ShutdownMetrics)
	shown.ProtoReflect().SetUnknown(nil)
	for i, operation := range shown.BlockingOperations {
		shown.BlockingOperations[i] = r.Redact(operation)
	}
	return shown
}

// Redacting returns a function that redacts texts with f, and that returns a note in place of a
// text for which f panics. If f is nil, nothing is redacted.
func Redacting(f func(string) string) func(string) string {
	return func(s string) string {
		shown, _ := redact(f, s)
		return shown
	}
}

// notRedacted replaces a text for which Redact has panicked. It has neither the text nor the value
// of the panic, because both may contain the secret.
const notRedacted = "[not shown: Redact has panicked]"

// redact returns s as f redacts it. If f panics, p is the panic.
func redact(f func(string) string, s string) (shown string, p *PanicError) {
	if f == nil {
		return s, nil
	}
	defer func() {
		if value := recover(); value != nil {
			if _, safe := value.(runtime.Error); !safe {
				value = "the value is not shown, because it may contain a secret"
			}
			shown, p = notRedacted, &PanicError{"Redact", value, debug.Stack()}
		}
	}()
	return f(s), nil
}
