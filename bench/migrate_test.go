package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/oklog/run"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/thejerf/suture/v4"
	"gopkg.in/tomb.v2"
)

// The functions named …Before are shown in docs/migrate.md as the code before a migration. They are
// here because this module requires the other libraries.

func actorsBefore(ctx context.Context, srv *http.Server, ln net.Listener, poll func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g run.Group
	g.Add(func() error { return srv.Serve(ln) }, func(error) { srv.Close() })
	g.Add(func() error { return poll(ctx) }, func(error) { cancel() })
	g.Add(run.SignalHandler(ctx, syscall.SIGTERM))
	return g.Run()
}

func TestMigrate_RunGroupReturnsErrorOfActorAsDocumented(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	errPolled := errors.New("polled enough")
	err = actorsBefore(t.Context(), &http.Server{}, ln, func(context.Context) error { return errPolled })
	if !errors.Is(err, errPolled) {
		t.Errorf("%v, want %v", err, errPolled)
	}
}

type follower struct{ t tomb.Tomb }

func followBefore(lines <-chan string, out io.Writer) error {
	f := &follower{}
	f.t.Go(func() error {
		for {
			select {
			case line := <-lines:
				fmt.Fprintln(out, line)
			case <-f.t.Dying():
				return nil
			}
		}
	})
	// …
	f.t.Kill(nil)
	return f.t.Wait()
}

func TestMigrate_TombMayLeaveAcceptedLineAsDocumented(t *testing.T) {
	lines := make(chan string, 1)
	// The select of followBefore may receive this line and write it, or leave it in the channel.
	lines <- "one"
	var out bytes.Buffer
	if err := followBefore(lines, &out); err != nil {
		t.Error(err)
	}
	left := ""
	if len(lines) > 0 {
		left = <-lines + "\n"
	}
	testkit.Equal(t, "lines written or left in the channel", out.String()+left, "one\n")
}

// TestMigrate_OtherLibrariesBehaveAsMigrationPageSays checks other statements of docs/migrate.md
// about these libraries.
func TestMigrate_OtherLibrariesBehaveAsMigrationPageSays(t *testing.T) {
	var g run.Group
	ended := make(chan struct{})
	g.Add(func() error { return nil }, func(error) {})
	g.Add(func() error { <-ended; return nil }, func(error) { close(ended) })
	if err := g.Run(); err != nil {
		t.Errorf("the group returned %v, want nil, the error of the first actor", err)
	}

	var dead tomb.Tomb
	dead.Go(func() error { return nil })
	<-dead.Dead()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Go of a tomb whose goroutines have ended does not panic")
			}
		}()
		dead.Go(func() error { return nil })
	}()

	s := ctxshutdown.New(t.Context())
	supervisor := suture.NewSimple("parts")
	over := supervisor.ServeBackground(s)
	s.Shutdown()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("a supervisor whose scope was stopped returned %v, want context.Canceled", err)
	}
}
