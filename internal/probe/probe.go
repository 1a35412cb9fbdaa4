// Package probe lets package shutdowntest see the guard operations of package ctxshutdown, and act in the middle of them, and
// send signals to package graceful that the system knows nothing of.
//
// A root scope that is made from a context with a [Func] under [Key] is traced and calls it, and so do all scopes below.
// It is asked for on the way that traced guards take, so that the others pay nothing for it.
package probe

// A Moment is a point of a guard operation, seen by the goroutine that is at it.
type Moment int

const (
	Acquiring Moment = iota // about to count a guard
	Acquired                // counted and admitted, on the way back to the caller
	Releasing               // about to give a guard back
	Released                // given back, on the way to the caller
)

func (m Moment) String() string {
	return [...]string{"before a guard was acquired", "after a guard was acquired",
		"before a guard was released", "after a guard was released"}[m]
}

// A Func is called at every moment, with no lock held, and may do to the scope whatever anybody else may.
type Func func(Moment)

// Key finds a Func in a context.
type Key struct{}

// SignalsKey finds a chan os.Signal in a context, from which package graceful receives in place of the system's.
type SignalsKey struct{}
