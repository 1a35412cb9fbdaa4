package grpcdrain_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
)

var errFault = errors.New("injected")

// A faultyStream is one that an interceptor has wrapped, and breaks at the second message.
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

// A Recv that does not return is the handler's to see, where its panics are dealt with: not on a goroutine of ours.
func TestFaults_Messages(t *testing.T) {
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
			equal(t, "messages before", got, []int{1})
			if name == "panic" {
				equal(t, "the loop panics", value == any(errFault), true)
			} else if value != nil || last == nil || !strings.Contains(last.Error(), "runtime.Goexit") {
				t.Errorf("the loop ends with %v, panic %v", last, value)
			}
			if err := s.Shutdown().Wait(t.Context()); err != nil {
				t.Errorf("a guard is left: %v", err)
			}
		})
	}
}
