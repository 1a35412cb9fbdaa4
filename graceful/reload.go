package graceful

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// WithReload makes SIGHUP call f, for example to read the configuration again, instead of stopping
// the process. Under systemd this suits Type=notify-reload: Run sends RELOADING=1 before the call
// and READY=1 after it, if [Ready] was called before.
//
// f runs on a goroutine of its own and holds a guard of the scope "reload". Its context ends when
// the process is asked to stop. Signals that arrive during a call lead to one further call after
// it. From the first request to stop on, SIGHUP has no effect. An error of f is logged, and the
// process goes on serving; a panic is treated like one of the function that [Run] runs.
//
// If SIGHUP comes because the terminal of the process has closed, it stops the process, as without
// this option. Run can detect this only on systems on which [WithSignals] has SIGPIPE by default,
// and only if standard input, standard output or standard error is that terminal. f is never called
// if SIGHUP is ignored when Run is called, or if WithSignals is given without arguments.
func WithReload(f func(ctx context.Context) error) Option {
	return option(func(c *config) error {
		if f == nil {
			return fmt.Errorf("graceful: WithReload(nil): the function must not be nil")
		}
		c.reload = f
		return nil
	})
}

// addReloadSignal makes Run receive SIGHUP if WithReload was given.
func (c *config) addReloadSignal() {
	if c.reload != nil && len(c.signals) > 0 && !slices.Contains(c.signals, os.Signal(syscall.SIGHUP)) {
		c.signals = append(c.signals, syscall.SIGHUP)
	}
}

// A reloader calls the function of WithReload, one call at a time. Only the goroutine of Run uses
// the field running.
type reloader struct {
	*Process
	manager *manager
	running bool
	again   bool          // a signal has come during the running call, so another call must follow
	done    chan struct{} // receives a value when a call of the reload function has ended
}

// isRequest reports whether sig asks for a reload. A SIGHUP that was sent because the terminal of
// the process has closed does not.
func (r *reloader) isRequest(sig os.Signal) bool {
	return r.config.reload != nil && sig == syscall.SIGHUP && !isTerminalLost()
}

// request begins a reload, or notes that another one must follow the one that is running. It has no
// effect when the process has been asked to stop.
func (r *reloader) request() {
	switch {
	case r.current().Phase > Serving:
	case r.running:
		r.again = true
	default:
		scope, _ := ctxshutdown.WithCancel(r.scope, ctxshutdown.WithName("reload"))
		r.running = scope.Go(func(context.Context) { r.reload(scope) })
	}
}

// ended is called when a call of the function of WithReload has ended.
func (r *reloader) ended() {
	r.running = false
	if r.again {
		r.again = false
		r.request()
	}
}

// reload calls the function of WithReload once, notifies the service manager, and logs the result.
func (r *reloader) reload(scope *ctxshutdown.Swansong) {
	defer func() { r.done <- struct{}{} }()
	defer scope.Shutdown()
	if r.Status().Ready {
		r.manager.notify("RELOADING=1" + monotonicTime())
	}
	began := time.Now()
	catchPanic(func() error { return r.config.reload(scope) }, func(err error) {
		r.logPanicIn("function given to WithReload", err)
		if _, ok := err.(*PanicError); ok || err == errGoexit {
			r.fail(err)
			return
		}
		catchPanic(func() error { r.logReload(err, time.Since(began)); return nil }, func(err error) {
			if err != nil {
				r.fail(err)
			}
		})
		if st := r.Status(); st.Ready && st.Phase == Serving {
			r.manager.notify("READY=1")
		}
	})
}

func (r *reloader) logReload(err error, took time.Duration) {
	l := r.config.logger
	switch {
	case l == nil && err != nil:
		fmt.Fprintf(r.config.output, "graceful: reload failed: %v\n", err)
	case l == nil:
	case err != nil:
		l.LogAttrs(context.Background(), slog.LevelError, "reload failed", slog.Any("err", err), slog.Duration("took", took))
	default:
		l.LogAttrs(context.Background(), slog.LevelInfo, "reloaded", slog.Duration("took", took))
	}
}
