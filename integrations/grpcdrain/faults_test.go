package grpcdrain_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

var errFault = errors.New("injected")

// A faultyStream is a stream that an interceptor has wrapped. Its second Recv calls the function
// fault.
type faultyStream struct {
	ctx   context.Context
	fault func()
	n     int
}

func (s *faultyStream) Context() context.Context { return s.ctx }
func (s *faultyStream) Recv() (int, error) {
	if s.n++; s.n == 2 {
		s.fault()
	}
	return s.n, nil
}

// If Recv panics, the panic continues in the handler's goroutine, where it can be recovered, and
// not in the goroutine that Messages has started.
func TestMessages_PanicOfRecvIsRaisedOnGoroutineOfHandler(t *testing.T) {
	for name, fault := range map[string]func(){"panic": func() { panic(errFault) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			var got []int
			var last error
			value := func() (value any) {
				defer func() { value = recover() }()
				g := s.Guard()
				defer g.Release()
				for n, err := range grpcdrain.Messages(&faultyStream{ctx: s, fault: fault}) {
					if last = err; err == nil {
						got = append(got, n)
					}
				}
				return nil
			}()
			testkit.Equal(t, "messages before the fault", got, []int{1})
			if name == "panic" {
				testkit.Equal(t, "the loop panics", value == any(errFault), true)
			} else if value != nil || last == nil || !strings.Contains(last.Error(), "runtime.Goexit") {
				t.Errorf("the loop ended with error %v, panic %v", last, value)
			}
			if err := s.Shutdown().Wait(t.Context()); err != nil {
				t.Errorf("a guard is still held: %v", err)
			}
		})
	}
}
