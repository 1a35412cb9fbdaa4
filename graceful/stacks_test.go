package graceful_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A stuck has functions that return only when release is closed, even if they are cancelled.
type stuck struct {
	begun   sync.WaitGroup // counts the functions that are still to be called
	release chan struct{}
	ended   sync.WaitGroup
}

func (s *stuck) block() {
	s.begun.Done()
	<-s.release
	s.ended.Done()
}

func (s *stuck) inF()                                         { s.block() }
func (s *stuck) inGo(context.Context)                         { s.block() }
func (s *stuck) inGroup(context.Context) error                { s.block(); return nil }
func (s *stuck) inCallback()                                  { s.block() }
func (s *stuck) inTimer()                                     { s.block() }
func (s *stuck) inJob()                                       { s.block() }
func (s *stuck) inOffload(context.Context) (struct{}, error)  { s.block(); return struct{}{}, nil }
func (s *stuck) inHandler(http.ResponseWriter, *http.Request) { s.block() }
func (s *stuck) inHook(context.Context) error                 { s.block(); return nil }

// Without tracing, the error of Run has the stack of every function of the program that still runs.
// Each stack begins with the function of the program. Goroutines that only wait in this module,
// such as those of idle loops and connections, are not listed.
func TestAbandonedError_HasStacksOfUserCodeEvenWithoutTracing(t *testing.T) {
	functions := []string{"inF", "inGo", "inGroup", "inCallback", "inTimer", "inJob", "inOffload", "inHandler", "inHook"}
	st := &stuck{release: make(chan struct{})}
	st.begun.Add(len(functions) - 1) // all functions except the pre-stop hook begin before the stop
	st.ended.Add(len(functions))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	idle, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	ctx, stop := context.WithCancel(t.Context())
	err = graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		s.Go(st.inGo)
		ctxshutdown.NewGroup(s).Go(st.inGroup)
		for _, f := range []func(l *eventloop.Loop, p *eventloop.Pool) error{
			func(l *eventloop.Loop, _ *eventloop.Pool) error { return nil },
			func(l *eventloop.Loop, _ *eventloop.Pool) error { return l.PostWait(ctx, st.inCallback) },
			func(l *eventloop.Loop, _ *eventloop.Pool) error { _, err := l.After(0, st.inTimer); return err },
			func(l *eventloop.Loop, p *eventloop.Pool) error {
				p.Submit(st.inJob)
				return eventloop.Offload(l, p, st.inOffload, func(struct{}, error) {})
			},
		} {
			l := eventloop.New(s)
			if err := errors.Join(l.Start(), f(l, eventloop.NewPool(s, 2))); err != nil {
				t.Error(err)
			}
		}
		go http.Get("http://" + ln.Addr().String())
		go func() {
			st.begun.Wait()
			st.begun.Add(1)
			stop()
			st.begun.Wait()
			s.Force(nil)
		}()
		go httpdrain.Serve(s, &http.Server{Handler: http.HandlerFunc(st.inHandler)}, ln)
		st.inF()
		return nil
	}, graceful.WithSignals(), graceful.WithOutput(io.Discard), graceful.WithPreStop("stuck", st.inHook),
		graceful.WithSoft(time.Hour), graceful.WithHard(time.Millisecond))
	var left *graceful.AbandonedError
	if !errors.As(err, &left) {
		t.Fatalf("the error of Run is %v", err)
	}
	for _, f := range functions {
		testkit.Equal(t, "stacks of "+f, strings.Count(left.Stacks, "(*stuck)."+f+"\n"), 1)
	}
	testkit.Equal(t, "stacks", strings.Count(left.Stacks, " of the program:\n"), len(functions))
	for _, library := range []string{"eventloop.", "graceful.", "ctxshutdown.", "httpdrain."} {
		testkit.Equal(t, "frames of "+library, strings.Count(left.Stacks, "swansong/"+library), 0)
	}
	if t.Failed() {
		t.Log(left.Stacks)
	}
	close(st.release)
	st.ended.Wait()
	http.DefaultClient.CloseIdleConnections()
}
