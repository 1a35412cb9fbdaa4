package eventloop

// An Option configures a loop or a pool where it is made. Of an option given twice the last one counts; a nil Option is
// ignored.
type Option interface{ apply(*options) }

type options struct {
	name       string
	lockThread bool
	init       func() error
	onPanic    func(*PanicError)
}

type option func(*options)

func (f option) apply(o *options) { f(o) }

func optionsOf(name string, opts []Option) options {
	o := options{name: name}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	return o
}

// WithName names the scope of a loop or a pool in reports, as [ctxshutdown.WithName] does. Without it they are called
// "loop" and "pool".
func WithName(name string) Option {
	return option(func(o *options) { o.name = name })
}

// WithOSThread has the loop lock its goroutine to an operating system thread for as long as it runs. Under [Loop.Run] that
// is the thread of the caller: the main thread, if main.init has called [runtime.LockOSThread]. It is of no use to a pool.
func WithOSThread() Option {
	return option(func(o *options) { o.lockThread = true })
}

// WithInit has the loop call f on its goroutine before it accepts anything, while it is Starting. An error of f ends the
// loop, and is what Start or Run returns. It is of no use to a pool.
func WithInit(f func() error) Option {
	return option(func(o *options) { o.init = f })
}

// WithPanicHandler has the loop go on after a panic in a callback, once it has told f, on its goroutine; without it, the
// first panic stops the loop. For a pool, which always goes on, f is told from the goroutine of the worker. A panic in f
// itself, or a Goexit, stops the loop; in a pool it is counted like any other. See also [Loop.Err] and [Pool.Err].
func WithPanicHandler(f func(*PanicError)) Option {
	return option(func(o *options) { o.onPanic = f })
}
