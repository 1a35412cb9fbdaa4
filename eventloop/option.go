package eventloop

import "fmt"

// An Option configures a new loop or pool. If an option is given twice, the last one counts. A nil
// Option is ignored.
type Option interface{ apply(*options) }

type options struct {
	name       string
	lockThread bool
	init       func() error
	onPanic    func(*PanicError) (resume bool)
	queueLimit int
	slow       *stopwatch
	onUnclean  func(error)
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

// WithName sets the name of the scope of a loop or a pool, as [ctxshutdown.WithName] does. The
// defaults are "loop" and "pool".
func WithName(name string) Option {
	return option(func(o *options) { o.name = name })
}

// WithOSThread locks the loop's goroutine to an operating system thread while the loop runs. With
// [Loop.Run] this is the thread of the caller: the main thread, if main.init has called
// [runtime.LockOSThread]. The option has no effect on a pool.
func WithOSThread() Option {
	return option(func(o *options) { o.lockThread = true })
}

// WithInit makes the loop call f on its goroutine before it accepts callbacks, while it is
// Starting. An error of f ends the loop and is returned by Start or Run. The option has no effect
// on a pool.
func WithInit(f func() error) Option {
	return option(func(o *options) { o.init = f })
}

// WithPanicHandler makes a loop or a pool recover from panics and call f, on the goroutine that
// panicked. If f returns true, the loop or pool continues. If it returns false, it stops: nothing
// more is accepted, and the accepted callbacks or jobs run. Under graceful.Run, such a stop makes
// the process not ready, is logged at once, stops the process, and Run returns a
// graceful.PanicError. If f panics or calls [runtime.Goexit], that counts as another panic, and a
// loop stops.
//
// Without a panic handler, a panic ends the program like a panic in any goroutine, with the stack,
// after a line that counts the lost callbacks, timers, offloads or jobs. A panic in the work of an
// offload does not end the program: the completion receives the panic as an error, unless it has
// been queued already. With a panic handler, f is called for such a panic, too.
//
// [runtime.Goexit] in a callback stops the loop without a call of f. In a job it ends the job; f is
// then called with the value [ErrGoexit] and decides whether the pool continues. Without f the pool
// continues. See also [Loop.Err] and [Pool.Err].
func WithPanicHandler(f func(*PanicError) (resume bool)) Option {
	return option(func(o *options) { o.onPanic = f })
}

// WithQueueLimit bounds the queue of a loop or a pool to n callbacks or jobs that have been
// accepted and have not finished, including those that are running. While there are n, [Loop.Post]
// and [Pool.Submit] return false, an offload to the pool returns [ErrQueueFull], and
// [Loop.PostWait] and [Pool.SubmitWait] wait. Timers are not counted. Completions of offloads are
// counted and never refused, so the number can exceed n; bound the offloads by the limit of their
// pool.
//
// A callback cannot wait for room in the queue of its own loop; it uses Post. WithQueueLimit panics
// if n is not positive.
func WithQueueLimit(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("eventloop: WithQueueLimit(%d): the limit must be positive; without the option there is no limit", n))
	}
	return option(func(o *options) { o.queueLimit = n })
}

// WithShutdownCheck makes a loop that was started check, when it ends, whether the program was shut
// down in order. If offloads are still running, handles are held, or callbacks were refused since
// the stop, the loop calls report with an error that counts them, on its goroutine and before the
// completion of [Loop.Stop] resolves. In a test, report calls t.Error, or panics; a program can log
// the error. The option has no effect on a pool.
func WithShutdownCheck(report func(error)) Option {
	return option(func(o *options) { o.onUnclean = report })
}
