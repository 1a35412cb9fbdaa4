package graceful_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// The programs of this file do what their names say until they are stopped, and then flush what they
// have collected. TestRun_FlushesOrFailsWheneverKilled kills them at random times.
func init() {
	for name, f := range map[string]func(s *ctxshutdown.Swansong) error{
		"service": service, "consumer": consumer, "batch": batch, "actor": actor,
	} {
		roles["kill "+name] = func() error {
			defer report("deferred")
			err := graceful.Run(context.Background(), f, graceful.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
			if err != nil {
				report("failed: %v", strings.ReplaceAll(err.Error(), "\n", " "))
			}
			return err
		}
	}
}

// slowFlush takes some milliseconds, and fails if the work is cancelled in the meantime.
func slowFlush(work context.Context, n int) error {
	if !ctxshutdown.Sleep(work, time.Duration(rand.IntN(20))*time.Millisecond) {
		return fmt.Errorf("flush failed: %w", context.Cause(work))
	}
	report("flushed %d", n)
	return nil
}

// service answers requests, which it sends to itself.
func service(s *ctxshutdown.Swansong) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	requests := make(chan struct{}, 1_000_000)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- struct{}{}
		fmt.Fprintln(w, "hello")
	})}
	s.Go(func(context.Context) {
		for s.Err() == nil {
			if resp, err := http.Get("http://" + ln.Addr().String()); err == nil {
				resp.Body.Close()
			}
		}
	})
	fmt.Println("ready")
	err = httpdrain.Serve(s, srv, ln)
	return errors.Join(err, slowFlush(s.Work(), len(requests)))
}

// consumer collects messages that arrive every millisecond.
func consumer(s *ctxshutdown.Swansong) error {
	fmt.Println("ready")
	n := 0
	for ctxshutdown.Sleep(s, time.Millisecond) {
		n++
		fmt.Println("message", n)
	}
	return slowFlush(s.Work(), n)
}

// batch reads lines from its standard input.
func batch(s *ctxshutdown.Swansong) error {
	fmt.Println("ready")
	in := ctxshutdown.NewReader(s, os.Stdin)
	defer in.Close()
	n := 0
	for lines := bufio.NewScanner(in); lines.Scan(); n++ {
	}
	return slowFlush(s.Work(), n)
}

// actor counts on an event loop.
func actor(s *ctxshutdown.Swansong) error {
	loop := eventloop.New(s.Work(), eventloop.WithName("counter"))
	if err := loop.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	n := 0
	for ctxshutdown.Sleep(s, time.Millisecond) {
		if !loop.Post(func() { n++ }) {
			return errors.New("the loop has refused a callback")
		}
	}
	work := s.Work()
	err := loop.Quiesce(time.Minute)
	if stopErr := loop.Stop().Wait(work); err == nil {
		err = stopErr
	}
	if err != nil {
		return fmt.Errorf("flush failed: %w", err)
	}
	return slowFlush(work, n)
}

// killsVar is how many programs TestRun_FlushesOrFailsWheneverKilled kills. `make bench` sets it.
const killsVar = "GRACEFUL_KILLS"

// The programs run on a terminal, or in a pipeline whose reader ends. They get one signal, or up to
// four, at random times; or their terminal closes. In the end, either everything was flushed, or the
// exit code is not zero and main has learned of the failure. No program is killed by a signal.
func TestRun_FlushesOrFailsWheneverKilled(t *testing.T) {
	kills := 40
	if testing.Short() {
		kills = 12
	}
	if n, err := strconv.Atoi(os.Getenv(killsVar)); err == nil {
		kills = n
	}
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 0))
	ends := map[string]int{}
	for i := range kills {
		role := []string{"service", "consumer", "batch", "actor"}[i%4]
		how := []string{"terminal", "pipeline", "hangup"}[dice.IntN(3)]
		file := filepath.Join(t.TempDir(), "result")
		command := exec.Command(os.Args[0])
		if how == "pipeline" {
			command = exec.Command("sh", "-c", `{ trap : INT TERM HUP; "$0"; echo "exit $?" >>"$`+fileVar+`"; } 2>&1 | cat`, os.Args[0])
		}
		tty := startCommandOnTerminal(t, command, "kill "+role, 80, fileVar+"="+file)
		tty.until("ready")
		repeats := dice.IntN(4)
		for k := range 1 + repeats {
			time.Sleep(time.Duration(dice.IntN(15_000)) * time.Microsecond)
			switch {
			case how == "hangup" && k == 0:
				tty.master.Close()
			case how == "pipeline" || how == "terminal" && dice.IntN(2) == 0:
				tty.master.WriteString("\x03") // fails if the program has ended
			default:
				tty.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
			}
		}
		if how != "hangup" {
			<-tty.over
		}
		tty.cmd.Wait()
		b, _ := os.ReadFile(file)
		result := string(b)
		end := tty.cmd.ProcessState.String()
		if how == "pipeline" {
			_, end, _ = strings.Cut(strings.TrimSpace(result), "exit ")
			end = "exit status " + end
		}
		ends[end]++
		flushed, failed := strings.Contains(result, "flushed"), strings.Contains(result, "failed: ")
		ok := strings.Contains(result, "deferred\n") && (end == "exit status 0" && flushed && !failed ||
			(end == "exit status 1" || end == "exit status 2" || end == "exit status 3") && failed)
		if !ok {
			t.Errorf("seed %d, kill %d: %s, %s, %d repeats: %s\nreported: %s\nprinted: %q", seed, i, role, how, repeats, end, result, tty.screen())
		}
	}
	t.Logf("%d kills: %v", kills, ends)
}
