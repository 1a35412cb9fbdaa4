// Package ctxkey defines the keys of the context values that packages of this repository exchange.
package ctxkey

import (
	"context"
	"fmt"
	"time"
)

// NearestScope is the key of the nearest scope, a *ctxshutdown.Swansong. If a package combines
// several contexts into one and one of these carries a scope, the combined context returns that
// scope.
type NearestScope struct{}

// SoftScope is the key of the scope whose soft context the context derives from, a
// *ctxshutdown.Swansong. The value is a nil *ctxshutdown.Swansong for a context that derives from
// a hard context, and nil for a context without a scope.
type SoftScope struct{}

// Signals is the key of a chan os.Signal from which package graceful receives instead of
// registering for the signals of the process. Package shutdowntest sets it.
type Signals struct{}

// Panicked is the key of a func(what string, value any, stack []byte) by which package eventloop
// tells package graceful that a panic has stopped an event loop or a pool. The function returns at
// once and may be called on any goroutine. The argument what names the loop or the pool, as in
// `event loop "ledger"`; value and stack are those of the panic. Without this value, the panic
// starts no drain.
type Panicked struct{}

// CheckWait is the key of a func() error by which package eventloop refuses waits in a callback of
// an event loop. Wait on the completion of a scope that derives from the context calls it before it
// blocks, and returns its error.
type CheckWait struct{}

// Describer is the key of a *[WorkDescriber]. A package of this module that creates a scope puts
// the WorkDescriber into the scope's context, to say what the guards of the scope stand for.
type Describer struct{}

// A WorkDescriber says what the guards of Scope, a *ctxshutdown.Swansong, stand for. Contexts of
// descendants of Scope carry the same WorkDescriber, although the guards of the descendants stand
// for other work. So code that finds a WorkDescriber in the context of a scope must check that
// Scope is that scope. Scope is set before its first guard is acquired.
type WorkDescriber struct {
	Scope any
	// Describe is called with the number of guards, on any goroutine and with no lock held. It must
	// not wait for the scope.
	Describe func(guards int) Work
}

// Work describes the work that the guards of a scope stand for.
type Work struct {
	Noun  string // the noun for the work in the singular, as in "request"
	Count int    // the number of pieces of work; 0 if the code that holds the guards only waits for guards of other scopes
	// Shared says that the scope holds a single guard for all pieces of work, however many there
	// are. A report of a scope that is not traced then shows the number of pieces.
	Shared bool
	// Extra is the number of the scope's guards that stand for none of these pieces of work, for
	// example guards that the program itself has acquired. A report lists them by the path of the
	// scope.
	Extra int
	// Named has the oldest pieces of work, at most MaxNamed, the oldest first. It is empty if the
	// pieces have no names.
	Named []NamedWork
}

// MaxNamed is the maximum number of pieces of work with a name, such as requests, in a report.
const MaxNamed = 20

// A NamedWork is one piece of work, such as a request.
type NamedWork struct {
	Name string // as in "GET /export from 192.0.2.1:4711"
	Age  time.Duration
}

// Tracing is the key of the [Tracer] of the nearest scope. The value is nil if that scope is not
// traced.
type Tracing struct{}

// A Tracer lets the packages of this module that call the user's code name that code in the reports
// of a traced scope. Without it, a report would name lines of those packages.
type Tracer interface {
	// Name makes reports say site.String() for guard, a *ctxshutdown.Guard of the scope that has
	// not been released, instead of the line that acquired it. Reports may call String at any time
	// and on any goroutine, even after the release of the guard. Release may call String, too, for
	// a warning.
	Name(guard any, site fmt.Stringer)
	// Caller returns the line that called into this module, in the form of reports.
	Caller() fmt.Stringer
	// Label sets the pprof label of the calling goroutine by which reports of the scope find its
	// stack. It returns ctx with the label.
	Label(ctx context.Context) context.Context
}

// A SharedSite is a name for [Tracer.Name] of a guard that stands for work that begins later, such
// as all callbacks of an event loop. A report lists the guard with the site. It does not name the
// guard as the oldest piece of work, because the age of the guard is not that of any work.
type SharedSite struct{ fmt.Stringer }

// NameShared sets the name under which reports list a guard of the nearest scope in ctx: the line
// that called into this module, as a [SharedSite]. The argument guard is a *ctxshutdown.Guard.
// NameShared does nothing if that scope is not traced.
func NameShared(ctx context.Context, guard any) {
	if t, ok := ctx.Value(Tracing{}).(Tracer); ok {
		t.Name(guard, SharedSite{t.Caller()})
	}
}

// Hook is the key of a [GuardHook]. A root scope that is created from a context with this key is
// traced and calls the hook, and so do all scopes below it. Package shutdowntest sets it.
type Hook struct{}

// A GuardHook is called at each [GuardEvent], on the goroutine that acquires or releases the guard
// and with no lock held. It may call any method of the scope.
type GuardHook func(GuardEvent)

// A GuardEvent is a point in the acquisition or the release of a guard.
type GuardEvent int

const (
	BeforeAcquire GuardEvent = iota // the guard is about to be counted
	AfterAcquire                    // the guard has been counted and is about to be returned
	BeforeRelease                   // the guard is about to be released
	AfterRelease                    // the guard has been released
)

func (e GuardEvent) String() string {
	return [...]string{"before a guard was acquired", "after a guard was acquired",
		"before a guard was released", "after a guard was released"}[e]
}
