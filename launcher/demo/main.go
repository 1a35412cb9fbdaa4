//go:build unix

// Command demo demonstrates the launcher. It starts two groups of processes from a YAML file, puts
// them under constant load from raw sockets, replaces all of them, kills one, lets one hang and one
// request more time, stops everything, and counts what was lost:
//
//	go run ./launcher/demo
//
// It exits with 1 if anything was lost. It uses only the loopback interface.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// timeout bounds the demo after the build. It usually takes less than ten seconds.
const timeout = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	lost, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil || lost {
		os.Exit(1)
	}
}

func run(ctx context.Context) (lost bool, err error) {
	fmt.Println("Building launcher, keyvalue-runner and testrunner …")
	s, err := newStage(ctx)
	if err != nil {
		return false, err
	}
	defer s.clear()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("the demo takes too long; that is a bug unless the machine is very busy"))
	defer cancel()

	act("Two groups from a YAML file", s.yaml)
	if err := s.start(ctx); err != nil {
		return false, s.failed(err)
	}
	l := newLoad(s)
	if err := play(ctx, s, l); err != nil {
		l.stop()
		return false, s.failed(err)
	}
	r, err := s.end(ctx, l)
	if err != nil {
		return false, s.failed(err)
	}
	fmt.Printf("\n%s\n", r)
	return r.hasLosses(), nil
}

// play runs the acts of the demo between its beginning and its end.
func play(ctx context.Context, s *stage, l *allLoad) error {
	act("Constant load", fmt.Sprintf("%d clients write to keyvalue and read back what they wrote; %d clients send requests to web. All use raw sockets.", len(l.writers), len(l.askers)))
	if err := pause(ctx, time.Second); err != nil {
		return err
	}

	act("A rolling restart of both", "First keyvalue, which can have only one process, then the three processes of web, one after the other.")
	for _, group := range []string{"keyvalue", "web"} {
		if err := s.restart(ctx, group); err != nil {
			return err
		}
	}

	act("kill -9", "The key-value server is killed in the middle of its work. Requests without an answer are sent again; acknowledged writes are on disk.")
	if err := s.kill(ctx, "keyvalue", &l.killed); err != nil {
		return err
	}

	act("A process that hangs", "It answers its requests, and then does not exit. After two seconds it gets signals.")
	if err := s.trouble(ctx, "hang", pb.ProcessState_FORCED); err != nil {
		return err
	}

	act("A process that requests more time", "It needs three seconds and has two. It requests more time, and gets it.")
	if err := s.trouble(ctx, "request-more", pb.ProcessState_COMPLETE); err != nil {
		return err
	}
	if err := pause(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	act("The end", "The load stops, and the launcher gets a SIGTERM.")
	return nil
}

func act(title, text string) {
	fmt.Printf("\n── %s %s\n", title, strings.Repeat("─", 96-len([]rune(title))))
	for line := range strings.Lines(text) {
		fmt.Println("  ", strings.TrimRight(line, "\n"))
	}
	fmt.Println()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
