package graceful_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/testkit"
)

// If a drain takes longer than a second, Run writes what the drain waits for, after one second and
// then every five seconds. The output names the line and the age of the oldest guard if the scope
// is traced.
func TestRun_WritesWhatLongDrainWaitsFor(t *testing.T) {
	bubble(t, func(b *testRun) {
		err := b.run(func(s *ctxshutdown.Swansong) error {
			for range 2 {
				hold(s, "export", s, 6500*time.Millisecond)
			}
			hold(s, "jobs", s, 500*time.Millisecond)
			hold(s, "mail", s, 10500*time.Millisecond)
			return untilStopped(s)
		})
		testkit.Equal(t, "exit code", graceful.ExitCode(err), 2)
		testkit.Equal(t, "output", b.out.String(), `
graceful: waiting for export ×2 and mail ×1; cancelling them in 9 s
graceful: waiting for export ×2 and mail ×1; cancelling them in 4 s
`[1:])
	})
	bubble(t, func(b *testRun) {
		b.run(func(s *ctxshutdown.Swansong) error { // the stop begins after one second
			hold(s, "mail", s, 1500*time.Millisecond)
			return untilStopped(s)
		}, graceful.WithScope(ctxshutdown.WithTrace()))
		if got := b.out.String(); !strings.HasPrefix(got, "graceful: waiting for mail ×1, oldest 2 s: main_test.go:") {
			t.Errorf("output:\n%s", got)
		}
	})
}

// If the soft phase has its maximum length, the program is expected to end the drain by itself, so
// neither the report, nor the log, nor the Status names the time that is left. If the soft phase is
// shorter, they name it, even when Extend has made the phase longer than that maximum.
func TestRun_NamesNoTimeLeftIfSoftPhaseHasMaximumDuration(t *testing.T) {
	extended := func(soft time.Duration, opts ...graceful.Option) (printed string, until time.Duration) {
		bubble(t, func(b *testRun) {
			err := b.run(func(s *ctxshutdown.Swansong) error {
				hold(s, "mail", s, 1500*time.Millisecond)
				<-s.Done()
				graceful.Extend(s, 25*time.Hour, "")
				if p, _ := graceful.FromContext(s); !p.Status().Until.IsZero() {
					until = p.Status().Until.Sub(p.Status().Since)
				}
				return nil
			}, append(opts, graceful.WithSoft(soft), graceful.WithMaxExtension(5*time.Hour))...)
			testkit.Equal(t, "error", err, nil)
			printed = b.out.String()
		})
		return printed, until
	}
	printed, until := extended(24 * time.Hour)
	testkit.Equal(t, "output", printed, "graceful: waiting for mail ×1\n")
	testkit.Equal(t, "duration of Soft", until, time.Duration(0))
	printed, until = extended(20 * time.Hour)
	testkit.Equal(t, "output", printed, "graceful: waiting for mail ×1; cancelling them in 89999 s\n")
	testkit.Equal(t, "duration of Soft", until, 25*time.Hour)

	var mu sync.Mutex
	ends := map[string]bool{}
	extended(24*time.Hour, graceful.WithLogger(slog.New(recorder(func(r slog.Record) {
		mu.Lock()
		defer mu.Unlock()
		ends[r.Message] = false
		r.Attrs(func(a slog.Attr) bool {
			ends[r.Message] = ends[r.Message] || a.Key == "next"
			return true
		})
	}))))
	testkit.Equal(t, "messages with an end", ends, map[string]bool{"serving": false, "draining": false, "drain extended": false, "waiting for mail ×1": false, "drained": false})
}

// The text that Run prints about an abandoned request has its route, its client and its age, even
// without tracing.
func TestAbandonedError_NamesRequests(t *testing.T) {
	bubble(t, func(b *testRun) {
		ln, leave := testkit.Listen(), make(chan struct{})
		defer close(leave)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /export/{year}", func(http.ResponseWriter, *http.Request) { <-leave })
		err := b.run(func(s *ctxshutdown.Swansong) error { // the stop begins after one second
			conn := ln.Dial()
			go io.WriteString(conn, "GET /export/2026 HTTP/1.1\r\nHost: shop\r\n\r\n")
			go io.Copy(io.Discard, conn)
			return httpdrain.Serve(s, &http.Server{Handler: mux}, ln)
		})
		testkit.Equal(t, "exit code", graceful.ExitCode(err), 3)
		want := "request GET /export/{year} from pipe for "
		if got := b.out.String(); !strings.Contains(got, "\n\t"+want) {
			t.Errorf("the output does not contain %q:\n%s", want, got)
		}
		testkit.Equal(t, "how often the error names the request", strings.Count(err.Error(), "GET /export/{year} from pipe"), 1)
	})
}

// A function that serves with two servers returns the error of the first that has drained, as
// errgroup does. The error of Run also names the request of the other server.
func TestForcedError_NamesRequestsOfAllServers(t *testing.T) {
	bubble(t, func(b *testRun) {
		err := b.run(func(s *ctxshutdown.Swansong) error { // the stop begins after one second
			results := make(chan error, 2)
			for _, route := range []string{"GET /first", "GET /second"} {
				ln, mux := testkit.Listen(), http.NewServeMux()
				mux.HandleFunc(route, func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					time.Sleep(time.Duration(len(route)) * 100 * time.Millisecond)
				})
				conn := ln.Dial()
				go io.WriteString(conn, route+" HTTP/1.1\r\nHost: shop\r\n\r\n")
				go io.Copy(io.Discard, conn)
				go func() { results <- httpdrain.Serve(s, &http.Server{Handler: mux}, ln) }()
			}
			return <-results
		})
		testkit.Equal(t, "exit code", graceful.ExitCode(err), 2)
		for _, request := range []string{"GET /first from pipe for ", "GET /second from pipe for "} {
			testkit.Equal(t, "how often the error names "+request, strings.Count(err.Error(), request), 1)
		}
	})
}

// Without tracing, the report counts requests and jobs, and names the oldest request. It leaves out
// the guard of the function given to Run, which waits for the requests. The logger gets the same
// text.
func TestRun_CountsRequestsAndJobsThatDrainWaitsFor(t *testing.T) {
	for _, test := range []struct {
		name   string
		logger bool
		opts   []graceful.Option
		serve  []httpdrain.Option
	}{
		{name: "output"},
		{name: "logger", logger: true},
		{name: "trace", opts: []graceful.Option{graceful.WithScope(ctxshutdown.WithTrace())}},
		{name: "scope for each connection", serve: []httpdrain.Option{httpdrain.WithPacing(1000)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				ln := testkit.Listen()
				mux := http.NewServeMux()
				mux.HandleFunc("GET /{page}", func(http.ResponseWriter, *http.Request) { time.Sleep(4 * time.Second) })
				mux.HandleFunc("GET /export", func(http.ResponseWriter, *http.Request) { time.Sleep(4 * time.Second) })
				var log output
				if test.logger {
					test.opts = append(test.opts, graceful.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				}
				err := b.run(func(s *ctxshutdown.Swansong) error { // b.run begins the shutdown after one second
					s.Go(func(context.Context) {
						for _, path := range []string{"/export", "/a", "/b"} {
							time.Sleep(100 * time.Millisecond) // f and Serve are older than the requests, and /export is the oldest request
							conn := ln.Dial()
							go io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: shop\r\n\r\n")
							go io.Copy(io.Discard, conn)
						}
						time.Sleep(100 * time.Millisecond)
						eventloop.NewPool(s, 1).Submit(func() { time.Sleep(4 * time.Second) })
					})
					return httpdrain.Serve(s, &http.Server{Handler: mux}, ln, test.serve...)
				}, test.opts...)
				testkit.Equal(t, "error", err, nil)
				want := "waiting for 3 requests and 1 job, oldest 2 s: GET /export from pipe"
				if !test.logger {
					testkit.Equal(t, "output", b.out.String(), "graceful: "+want+"; cancelling them in 9 s\n")
				} else if !strings.Contains(log.String(), "msg=\""+want+"\" ") {
					t.Errorf("log:\n%s", log.String())
				}
			})
		})
	}
}

var (
	stackOfPanic = regexp.MustCompile(`\ngoroutine \d+ (.+\n)+\n?`)
	// Run may log this record before or after the pre-stop hook has acquired its guard.
	guardsAtStop = regexp.MustCompile(`(msg=draining .*) guards\.count=[23] guards\.held="jobs ×1, main ×1(, pre-stop/dereg ×1)?"`)
)

// The log and the output of a drain that is abandoned go to the same terminal. Together they
// contain no line twice, and each guard that is still held once.
func TestRun_LogAndOutputOfAbandonedDrainHaveNoLineTwice(t *testing.T) {
	for _, test := range []struct {
		name, want string
		logger     bool
	}{
		{"without a logger", `
graceful: waiting for jobs ×1 and pre-stop/dereg ×1; cancelling them in 9 s
graceful: waiting for jobs ×1 and pre-stop/dereg ×1; cancelling them in 4 s
graceful: panic in the pre-stop hook "dereg": oops
graceful: waiting for jobs ×1; giving up in 1 s
graceful: abandoned (cancelled work did not return within 2s); guards still held: 1
	jobs ×1
	Set CTXSHUTDOWN_TRACE=1 to see where guards were acquired and how long they have been held.
`[1:], false},
		{"with a logger", `
level=INFO msg=serving phase=Serving
level=INFO msg=draining phase=Soft cause=enough next=10s
level=INFO msg="waiting for jobs ×1 and pre-stop/dereg ×1" phase=Soft guards.count=3 guards.held="jobs ×1, main ×1, pre-stop/dereg ×1" for=1s next=9s
level=INFO msg="waiting for jobs ×1 and pre-stop/dereg ×1" phase=Soft guards.count=2 guards.held="jobs ×1, pre-stop/dereg ×1" for=6s next=4s
level=ERROR msg="panic in the pre-stop hook \"dereg\"" panic=oops
level=WARN msg="drain cut short" phase=Hard cause=enough guards.count=1 guards.held="jobs ×1" why="the drain took longer than 10s" next=2s
level=INFO msg="waiting for jobs ×1" phase=Hard guards.count=1 guards.held="jobs ×1" for=11s next=1s
level=ERROR msg=abandoned phase=Exit cause=enough guards.count=1 guards.held="jobs ×1" why="cancelled work did not return within 2s" took=12s
graceful: abandoned, see the log:
	Set CTXSHUTDOWN_TRACE=1 to see where guards were acquired and how long they have been held.
`[1:], true},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				opts := []graceful.Option{graceful.WithPreStop("dereg", func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(1500 * time.Millisecond)
					panic("oops")
				})}
				if test.logger {
					opts = append(opts, graceful.WithLogger(slog.New(slog.NewTextHandler(slowDisk{&b.out}, &slog.HandlerOptions{
						ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
							if a.Key == slog.TimeKey || a.Key == "stack" {
								return slog.Attr{}
							}
							return a
						}}))))
				}
				defer func() {
					recover()
					printed, _, _ := strings.Cut(b.out.String(), "1 goroutine of the program:\n")
					printed = stackOfPanic.ReplaceAllString(printed, "")
					printed = guardsAtStop.ReplaceAllString(printed, "$1")
					testkit.Equal(t, "printed", printed, test.want)
					seen := map[string]bool{}
					for line := range strings.Lines(printed) {
						if seen[line] {
							t.Errorf("printed twice: %s", line)
						}
						seen[line] = true
					}
					time.Sleep(time.Hour)
				}()
				b.run(func(s *ctxshutdown.Swansong) error {
					hold(s, "jobs", s, time.Minute)
					return untilStopped(s)
				}, opts...)
			})
		})
	}
}

// A slowDisk takes a millisecond to write the log record about abandoned guards.
type slowDisk struct{ io.Writer }

func (d slowDisk) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "msg=abandoned") {
		time.Sleep(time.Millisecond)
	}
	return d.Writer.Write(p)
}

// If the drain ends while Run lists the guards for a report, the report still says how much time
// was left.
func TestRun_ReportHasTimeLeftIfDrainEndsMeanwhile(t *testing.T) {
	bubble(t, func(b *testRun) {
		ended := make(chan struct{})
		var once sync.Once
		err := b.run(func(s *ctxshutdown.Swansong) error {
			process(t, s).Watch(func(st graceful.Status) {
				if st.Phase == graceful.Exit {
					close(ended)
				}
			})
			var job *ctxshutdown.Guard
			d := &ctxkey.WorkDescriber{Describe: func(int) ctxkey.Work {
				once.Do(func() { // a second after the stop, the report calls Describe
					job.Release()
					<-ended
				})
				return ctxkey.Work{Noun: "job", Count: 1}
			}}
			d.Scope, _ = ctxshutdown.WithCancel(context.WithValue(s, ctxkey.Describer{}, d))
			job = d.Scope.(*ctxshutdown.Swansong).Guard()
			return untilStopped(s)
		})
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "output", b.out.String(), "graceful: waiting for 1 job; cancelling them in 9 s\n")
	})
}

// Run writes nothing about a drain that takes no longer than a second.
func TestRun_WritesNothingInShortDrain(t *testing.T) {
	bubble(t, func(b *testRun) {
		testkit.Equal(t, "error", b.run(func(s *ctxshutdown.Swansong) error {
			hold(s, "jobs", s, 999*time.Millisecond)
			return untilStopped(s)
		}), nil)
		time.Sleep(time.Hour)
		testkit.Equal(t, "output", b.out.String(), "")
	})
}

// If the output blocks while Run writes what the drain waits for, Run returns one second later. The
// phases are not delayed.
func TestRun_BlockedOutputDelaysReturnByOneSecondAndNoPhase(t *testing.T) {
	bubble(t, func(b *testRun) {
		began := time.Now()
		release := make(chan struct{})
		defer close(release)
		err := b.run(func(s *ctxshutdown.Swansong) error {
			hold(s, "jobs", s, 3*time.Second)
			return untilStopped(s)
		}, graceful.WithOutput(panicking{func() { <-release }}))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "took", time.Since(began), 5*time.Second)
	})
}

// A recorder is a slog.Handler that passes each record to a function.
type recorder func(r slog.Record)

func (f recorder) Enabled(context.Context, slog.Level) bool      { return true }
func (f recorder) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f recorder) WithGroup(string) slog.Handler                 { return f }
func (f recorder) Handle(_ context.Context, r slog.Record) error { f(r); return nil }

// When work is cancelled, the log lists the work that was running before the cancellation, even if
// the work has ended before the slow logger writes. The log also says why the drain was cut short.
func TestWithLogger_LogsWorkThatWasRunningWhenItIsCancelled(t *testing.T) {
	bubble(t, func(b *testRun) {
		released := make(chan struct{})
		var got []string
		err := b.run(func(s *ctxshutdown.Swansong) error {
			s.Go(func(work context.Context) { <-work.Done(); close(released) })
			return untilStopped(s)
		}, graceful.WithLogger(slog.New(recorder(func(r slog.Record) {
			switch r.Message {
			case "draining":
				<-released
				synctest.Wait() // waits until the guard has been released
			case "drain cut short":
				r.Attrs(func(a slog.Attr) bool {
					if a.Key == "guards" || a.Key == "why" {
						got = append(got, a.Value.String())
					}
					return true
				})
			}
		}))))
		var cut *graceful.ForcedError
		if !errors.As(err, &cut) {
			t.Fatalf("error: %v", err)
		}
		testkit.Equal(t, "guards and why", got, []string{"1 guard: (unnamed) ×1", "the drain took longer than 10s"})
	})
}
