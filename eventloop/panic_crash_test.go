package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/graceful"
)

const asService = "EVENTLOOP_TEST_SERVICE"

// write makes a mistake that causes a panic: it writes to a nil map.
func write() {
	var m map[string]int
	//lint:ignore SA5000 the test plants this mistake
	m["orders"]++
}

// services are programs in which a function that a loop or a pool calls panics. Each must crash, or
// exit with the error that graceful.Run returns. If neither happens, its exit code is 0.
var services = map[string]func(s *ctxshutdown.Swansong){
	"callback": func(s *ctxshutdown.Swansong) {
		l := eventloop.New(s, eventloop.WithName("ledger"))
		l.Start()
		l.Post(write)
		l.Post(func() {})
	},
	"timer": func(s *ctxshutdown.Swansong) {
		l := eventloop.New(s, eventloop.WithName("ledger"))
		l.Start()
		l.After(0, write)
	},
	"job": func(s *ctxshutdown.Swansong) {
		p := eventloop.NewPool(s, 1, eventloop.WithName("audits"))
		p.Submit(write)
		p.Submit(func() {})
	},
	"late offload": func(s *ctxshutdown.Swansong) {
		late(s, func() int { write(); return 0 })
	},
	"discard": func(s *ctxshutdown.Swansong) {
		late(s, func() int { return 0 }, func(int) { write() })
	},
	"callback, stops the loop": func(s *ctxshutdown.Swansong) {
		l := eventloop.New(s, eventloop.WithName("ledger"), stopsAfterPanic)
		l.Start()
		l.Post(write)
	},
	"job, stops the pool": func(s *ctxshutdown.Swansong) {
		eventloop.NewPool(s, 1, eventloop.WithName("audits"), stopsAfterPanic).Submit(write)
	},
}

// late offloads work that ends only after its completion has received the cause of a Force.
func late(s *ctxshutdown.Swansong, work func() int, discard ...func(int)) {
	l, p := eventloop.New(s), eventloop.NewPool(s, 1, eventloop.WithName("audits"))
	l.Start()
	begun, completed := make(chan struct{}), make(chan struct{})
	eventloop.Offload(l, p, func(context.Context) (int, error) {
		close(begun)
		<-completed
		return work(), nil
	}, func(int, error) { close(completed) }, discard...)
	<-begun
	l.Scope().Force(nil)
}

// TestHelperProcess_PanicsInService is the program that the tests of this file start. If it is run
// directly, it checks nothing.
func TestHelperProcess_PanicsInService(t *testing.T) {
	service := services[os.Getenv(asService)]
	if service == nil {
		return
	}
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		service(s)
		<-s.Done()
		return nil
	}, graceful.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	fmt.Fprintln(os.Stderr, "Run has returned:", err)
	os.Exit(graceful.ExitCode(err))
}

// A panic ends the program, and the stack trace shows the line that panicked. This holds for
// callbacks, timers and jobs, and for an offload whose completion has already run. If a panic
// handler stops the loop or the pool, the program does not end at once: graceful.Run drains and
// returns the panic.
func TestPanic_EndsProgramUnlessPanicHandlerStopsLoop(t *testing.T) {
	for _, test := range []struct {
		service string
		code    int
		output  []string
	}{
		{"callback", 2, []string{`eventloop: panic in a callback of the event loop "ledger"; callbacks not run: `, "panic: assignment to entry in nil map", "eventloop_test.write"}},
		{"timer", 2, []string{`eventloop: panic in a timer of the event loop "ledger"; callbacks not run: `, "panic: assignment to entry in nil map", "eventloop_test.write"}},
		{"job", 2, []string{`eventloop: panic in a job of the pool "audits"; jobs not finished: `, "panic: assignment to entry in nil map", "eventloop_test.write"}},
		{"late offload", 2, []string{`eventloop: panic in the work or a discard function of an offload of the pool "audits"; jobs not finished: `, "panic: assignment to entry in nil map", "eventloop_test.write"}},
		{"discard", 2, []string{`eventloop: panic in the work or a discard function of an offload of the pool "audits"; jobs not finished: `, "panic: assignment to entry in nil map", "eventloop_test.write"}},
		{"callback, stops the loop", 1, []string{`a panic has stopped the event loop \"ledger\"`, "eventloop_test.write", "Run has returned:", "assignment to entry in nil map"}},
		{"job, stops the pool", 1, []string{`a panic has stopped the pool \"audits\"`, "eventloop_test.write", "Run has returned:", "assignment to entry in nil map"}},
	} {
		t.Run(test.service, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess_PanicsInService$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), asService+"="+test.service, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != test.code {
				t.Errorf("%v, want exit status %d:\n%s", err, test.code, out)
			}
			for _, want := range test.output {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output does not contain %q:\n%s", want, out)
				}
			}
		})
	}
}
