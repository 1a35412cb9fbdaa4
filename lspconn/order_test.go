package lspconn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// A response completes its call only after OnNotify has returned for all earlier notifications,
// even if so many notifications wait that the read loop blocks. docs/internals/lspconn.md#order
func TestCall_ReturnsAfterPrecedingNotificationsAreHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string // needs no lock, because handlers run one after another
		server := lspconn.Server{OnNotify: func(_ context.Context, method string, params json.RawMessage) {
			time.Sleep(time.Microsecond)
			got = append(got, method+string(params))
		}}
		conn, _ := startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		call(t, conn, "notes", "5000")
		testkit.Equal(t, "count", len(got), 5000)
		for i, note := range got {
			if note != fmt.Sprint("note", i) {
				t.Fatalf("notification %d is %s", i, note)
			}
		}
		mustClose(t, conn)
	})
}

// Requests of the server are handled one at a time, and answered in their order.
// docs/internals/lspconn.md#order
func TestOnRequest_HandlesRequestsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := 0 // needs no lock, because handlers run one after another
		server := lspconn.Server{OnRequest: func(_ context.Context, _ string, params json.RawMessage) (any, error) {
			i := next
			time.Sleep(time.Duration(1+(i*37)%5) * time.Millisecond)
			next++
			return i, nil
		}}
		conn, g := startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		call(t, conn, "flood", "200")
		mustClose(t, conn)
		var answers []string
		for _, m := range g.Received() {
			if m.Method == "" {
				answers = append(answers, string(m.ID)+" "+string(m.Result))
			}
		}
		testkit.Equal(t, "answers", len(answers), 200)
		for i, answer := range answers {
			if answer != fmt.Sprintf("%q %d", fmt.Sprint("q", i+1), i) {
				t.Fatalf("answer %d is %s", i, answer)
			}
		}
	})
}

// The messages that a handler has queued, including those of NotifyLatest, are written before its
// response. docs/internals/lspconn.md#order
func TestOnRequest_MessagesThatHandlerSendsPrecedeItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *lspconn.Conn
		server := lspconn.Server{OnRequest: func(context.Context, string, json.RawMessage) (any, error) {
			conn.NotifyLatest("key", "note", json.RawMessage(`"changed"`))
			return "applied", nil
		}}
		conn, g := startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		for range 50 {
			testkit.Equal(t, "answer", call(t, conn, "ask", ""), `"applied"`)
		}
		mustClose(t, conn)
		last := ""
		for _, m := range g.Received() {
			if m.Method == "" && last != "note" {
				t.Errorf("the response is preceded by %q, want note", last)
			}
			last = m.Method
		}
	})
}

// After Async, later messages are delivered while the handler runs.
// docs/internals/lspconn.md#order
func TestAsync_MessagesAreDeliveredWhileHandlerRuns(t *testing.T) {
	for _, kind := range []string{"OnNotify", "OnRequest"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				blocks := func(ctx context.Context) {
					ctx, cancel := context.WithCancel(ctx) // Async also accepts a context derived from that of the handler
					defer cancel()
					lspconn.Async(ctx)
					lspconn.Async(ctx) // a second call has no effect
					<-release
				}
				server := lspconn.Server{
					OnNotify: func(ctx context.Context, _ string, _ json.RawMessage) { blocks(ctx) },
					OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
						blocks(ctx)
						return nil, nil
					},
				}
				conn, g := startInProcess(t, t.Context(), server, behaviours{})
				conn.Ready(t.Context())
				if kind == "OnNotify" {
					call(t, conn, "notes", "3")
				} else {
					call(t, conn, "flood", "3")
				}
				synctest.Wait()                                                     // waits until the guard of the call has been released
				testkit.Equal(t, "handlers that run", conn.Scope().GuardCount(), 4) // the guards of three handlers and of the process
				close(release)
				testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
				testkit.Equal(t, "faults", g.Faults(), []string(nil))
			})
		})
	}
	lspconn.Async(context.Background()) // this has no effect, because the context is not that of a handler
}

// A handler may make a call. The response is delivered although the handler has not returned.
// docs/internals/lspconn.md#order
func TestCall_MadeInHandlerReturnsWhileHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *lspconn.Conn
		server := lspconn.Server{
			OnNotify: func(ctx context.Context, _ string, _ json.RawMessage) {
				testkit.Equal(t, "in OnNotify", call2(ctx, conn, "[1]"), "[1]")
			},
			OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
				return json.RawMessage(call2(ctx, conn, "[2]")), nil
			},
		}
		conn, _ = startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		call(t, conn, "notes", "1")
		synctest.Wait() // waits until OnNotify, which has called Async, has returned
		testkit.Equal(t, "answer", call(t, conn, "ask", ""), "[2]")
		testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
	})
}

// A talkative is a server that sends something before it answers initialize.
type talkative struct {
	*inProcess
	early []byte
}

func (s talkative) Stdout() io.Reader {
	return io.MultiReader(bytes.NewReader(s.early), s.inProcess.Stdout())
}

// A handler may wait until the server is ready. docs/internals/lspconn.md#order
func TestReady_CalledInHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, done := make(chan struct{}), make(chan error)
		var conn *lspconn.Conn
		server := lspconn.Server{Name: "here", Command: []string{"here"}, OnNotify: func(ctx context.Context, _ string, _ json.RawMessage) {
			<-started
			_, err := conn.Ready(ctx)
			done <- err
		}}
		conn, err := lspconn.StartWith(t.Context(), server, talkative{serveInProcess(behaviours{}), lspconn.Frame(-1, "note", nil)})
		if err != nil {
			t.Fatal(err)
		}
		close(started)
		testkit.Equal(t, "Ready", <-done, error(nil))
		mustClose(t, conn)
	})
}

// A handler may close its connection and wait until it is closed.
func TestClose_CalledInHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *lspconn.Conn
		done := make(chan lspconn.Report, 1)
		server := lspconn.Server{OnNotify: func(ctx context.Context, _ string, _ json.RawMessage) {
			r, _ := conn.Close(context.WithoutCancel(ctx))
			done <- r
		}}
		conn, _ = startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "notes", json.RawMessage("1"))
		r := <-done
		testkit.Equal(t, "outcome", r.Outcome, lspconn.Clean)
		testkit.Equal(t, "time", r.Total, time.Duration(0))
	})
}

func call2(ctx context.Context, conn *lspconn.Conn, params string) string {
	result, err := conn.Call(ctx, "echo", json.RawMessage(params))
	if err != nil {
		return err.Error()
	}
	return string(result)
}

// The context of a handler ends when the connection closes, and when the server cancels the
// request. If the handler returns the error of its context, the response contains the cause of the
// context. docs/internals/lspconn.md#server-requests
func TestOnRequest_ContextEndsWithCauseAtCloseOrCancel(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":"q1","method":"client/ask"}`
	cancel := `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"q1"}}`
	for _, test := range []struct{ name, messages, later, want string }{
		{"close", request, "", `{"code":-32803,"message":"connection closing"}`},
		{"cancelled by the server", request, cancel, `{"code":-32800,"message":"the server has cancelled the request"}`},
		{"cancelled before its turn", `{"jsonrpc":"2.0","method":"slow"},` + request + "," + cancel, "", `{"code":-32800,"message":"the server has cancelled the request"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := 0
				var after context.Context
				server := lspconn.Server{
					OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
						called++
						after = ctx
						<-ctx.Done()
						return nil, fmt.Errorf("wrapped: %w", ctx.Err())
					},
					OnNotify: func(context.Context, string, json.RawMessage) { time.Sleep(time.Second) },
				}
				conn, g := startInProcess(t, t.Context(), server, behaviours{})
				conn.Ready(t.Context())
				go conn.Call(context.Background(), "send", json.RawMessage("["+test.messages+"]"))
				time.Sleep(time.Second)
				synctest.Wait()
				go conn.Call(context.Background(), "send", json.RawMessage("["+test.later+"]"))
				synctest.Wait()
				testkit.Equal(t, "called", called, len(strings.SplitAfter(test.name, "before"))%2)
				r := mustClose(t, conn)
				testkit.Equal(t, "outcome", r.Outcome, lspconn.Clean)
				testkit.Equal(t, "time", r.Total, time.Duration(0))
				var answers []string
				for _, m := range g.Received() {
					if m.Method == "" {
						answers = append(answers, string(m.Error))
					}
				}
				testkit.Equal(t, "answers", answers, []string{test.want})
				if after != nil && after.Err() == nil {
					t.Error("the context has not ended after the handler has returned")
				}
			})
		})
	}
}

// The handler of a request is not called if the server cancels the request just before the call.
// docs/internals/lspconn.md#server-requests
func TestOnRequest_NotCalledIfCancelledJustBefore(t *testing.T) {
	want := &lspconn.ResponseError{Code: lspconn.CodeRequestCancelled, Message: "the server has cancelled the request"}
	testkit.Equal(t, "answer", lspconn.CancelTaken(), want)
}

// A handler that does not return delays closing by a fifth of the deadline at most. After that
// time, the connection answers the request of the handler with an error. It also processes the
// messages that were queued behind that request: a response completes the call that it answers, and
// a request or notification is not passed to a handler.
// docs/internals/lspconn.md#deadline
func TestClose_IsDelayedByBlockedHandlerForAtMostOneFifthOfDeadline(t *testing.T) {
	var release chan struct{}
	blocked := lspconn.Server{
		OnRequest: func(context.Context, string, json.RawMessage) (any, error) { <-release; return nil, nil },
		OnNotify:  func(context.Context, string, json.RawMessage) { <-release },
	}
	for _, test := range []struct {
		name, method, params string
		behaviour            behaviours
		total                time.Duration
	}{
		{"the server waits for a response before it answers shutdown", "echo", "[]", behaviours{Shutdown: "ask"}, 2 * time.Second},
		{"a call waits for the handler", "ask", "[]", behaviours{}, 2 * time.Second},
		{"a response waits for OnNotify", "notes", "1", behaviours{}, 2 * time.Second},
		{"the read loop waits for OnNotify", "notes", "5000", behaviours{}, 2 * time.Second},
		{"the server crashes", "send", `[{"jsonrpc":"2.0","method":"note"},{"jsonrpc":"2.0","id":"q0","method":"ask"}]`, behaviours{Shutdown: "exit"}, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				conn, _ := startInProcess(t, t.Context(), blocked, test.behaviour)
				conn.Ready(t.Context())
				answer := make(chan error, 1)
				go func() {
					_, err := conn.Call(context.Background(), test.method, json.RawMessage(test.params))
					answer <- err
				}()
				synctest.Wait()
				r := mustClose(t, conn)
				testkit.Equal(t, "time", r.Total, test.total)
				testkit.Equal(t, "answer", <-answer, error(nil))
				close(release)
				synctest.Wait()
				testkit.Equal(t, "guards", conn.Scope().GuardCount(), 0)
			})
		})
	}
}

// Force does not wait for a handler.
func TestForce_DoesNotWaitForHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{OnNotify: func(context.Context, string, json.RawMessage) { <-release }}, behaviours{})
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "notes", json.RawMessage("3"))
		synctest.Wait()
		conn.Force(nil)
		testkit.Equal(t, "time", mustClose(t, conn).Total, time.Duration(0))
		close(release)
	})
}

// Server.Discard does not discard the responses to requests of the server, because the server may
// wait for them. docs/internals/lspconn.md#queue
func TestClose_WithDiscardStillWritesResponsesToServersRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := startSlow(t, lspconn.Server{Discard: true, OnRequest: request(func() (any, error) {
			time.Sleep(30 * time.Millisecond)
			return "answer", nil
		})})
		conn.Ready(t.Context())
		time.Sleep(time.Second)
		go conn.Call(context.Background(), "ask", nil)
		time.Sleep(50 * time.Millisecond)
		go conn.Notify(context.Background(), "note", nil)
		time.Sleep(100 * time.Millisecond) // the notification is being written, and the response is queued
		mustClose(t, conn)
		testkit.Equal(t, "received", seen(g), []string{"ask", "note", "", "shutdown", "exit"})
	})
}

// A response that is written while shutdown is being written does not interleave with it.
func TestClose_ShutdownRequestDoesNotInterleaveWithResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		conn, g := startSlow(t, lspconn.Server{OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			lspconn.Async(ctx)
			<-release
			return "answer", nil
		}})
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "ask", nil)
		time.Sleep(time.Second)
		// The handler returns while the request shutdown is being written, which takes 100 ms.
		time.AfterFunc(50*time.Millisecond, func() { close(release) })
		testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
		testkit.Equal(t, "faults", g.Faults(), []string(nil))
	})
}

// TestConn_DeliversRandomMessagesInOrder makes a server send notifications, requests and responses
// in a random order. The handlers take random times, and some of them call Async. The test then
// compares the order of delivery with the order of sending. LSPCONN_SEED=n runs the history of one
// seed.
func TestConn_DeliversRandomMessagesInOrder(t *testing.T) {
	if text := os.Getenv("LSPCONN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		orderHistory(t, seed)
		return
	}
	base, n := rand.Uint64()>>1, histories()
	for i := range uint64(n) {
		orderHistory(t, base+i)
		if t.Failed() {
			t.Fatalf("seed %d fails: LSPCONN_SEED=%[1]d go test -run TestConn_DeliversRandomMessagesInOrder ./lspconn", base+i)
		}
	}
}

// A deliveries records what a connection delivers in one history. Each message is identified by its
// position in the order of sending.
type deliveries struct {
	mu     sync.Mutex
	begun  []int        // the messages for which a handler was called, in order
	open   map[int]bool // the messages whose handlers now delay the delivery of later messages
	faults []string
}

func (d *deliveries) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// handle is the body of a handler: it records message i, takes a random time, and may call Async or
// the server, as the random numbers of r say.
func (d *deliveries) handle(ctx context.Context, conn *lspconn.Conn, r *rand.Rand, i int) {
	d.mu.Lock()
	if len(d.open) > 0 {
		d.fault("%d was delivered during %v", i, d.open)
	}
	d.begun = append(d.begun, i)
	d.open[i] = true
	d.mu.Unlock()
	pause := func() {
		if r.IntN(2) == 0 {
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		}
	}
	pause()
	d.mu.Lock()
	delete(d.open, i)
	d.mu.Unlock()
	switch r.IntN(6) {
	case 0:
		lspconn.Async(ctx)
	case 1:
		if got := call2(ctx, conn, strconv.Itoa(i)); got != strconv.Itoa(i) {
			d.mu.Lock()
			d.fault("the call of handler %d was answered %s", i, got)
			d.mu.Unlock()
		}
	default:
		d.mu.Lock()
		d.open[i] = true
		d.mu.Unlock()
		pause()
		d.mu.Lock()
		delete(d.open, i)
		d.mu.Unlock()
		return
	}
	pause()
}

// responded records that the response i has completed its call: all earlier handlers were called,
// and have returned or called Async.
func (d *deliveries) responded(i int, wire []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for j, kind := range wire[:i] {
		if kind != "response" && (!slices.Contains(d.begun, j) || d.open[j]) {
			d.fault("response %d overtook %s %d", i, kind, j)
		}
	}
}

func orderHistory(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		d := &deliveries{open: map[int]bool{}}
		var conn *lspconn.Conn
		place := func(params json.RawMessage) (int, *rand.Rand) {
			i, _ := strconv.Atoi(string(params))
			return i, rand.New(rand.NewPCG(seed, uint64(i)+1))
		}
		server := lspconn.Server{
			OnRequest: func(ctx context.Context, _ string, params json.RawMessage) (any, error) {
				i, r := place(params)
				d.handle(ctx, conn, r, i)
				return i, nil
			},
			OnNotify: func(ctx context.Context, _ string, params json.RawMessage) {
				i, r := place(params)
				d.handle(ctx, conn, r, i)
			},
		}
		conn, _ = startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		wire := make([]string, 1+r.IntN(20))
		messages := make([]string, len(wire))
		var callers sync.WaitGroup
		id := 2 // initialize has the id 1
		for i := range wire {
			wire[i] = []string{"notification", "request", "response"}[r.IntN(3)]
			switch wire[i] {
			case "notification":
				messages[i] = fmt.Sprintf(`{"jsonrpc":"2.0","method":"note","params":%d}`, i)
			case "request":
				messages[i] = fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%d","method":"ask","params":%[1]d}`, i)
			case "response":
				messages[i] = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%d}`, id, i)
				id++
				callers.Go(func() {
					if result, err := conn.Call(context.Background(), "never", nil); err != nil || string(result) != strconv.Itoa(i) {
						t.Errorf("seed %d: response %d is %s, %v", seed, i, result, err)
					}
					d.responded(i, wire)
				})
				synctest.Wait() // waits until the calls have been sent, so that the test knows their ids
			}
		}
		call(t, conn, "send", "["+strings.Join(messages, ",")+"]")
		d.responded(len(wire), wire)
		callers.Wait()
		time.Sleep(time.Second) // waits until the handlers that have called Async have returned
		report, err := conn.Close(context.Background())
		if err != nil || report.Outcome != lspconn.Clean {
			t.Errorf("seed %d: %v, %v", seed, report, err)
		}
		if !slices.IsSorted(d.begun) {
			d.fault("handlers were called in the order %v", d.begun)
		}
		for _, fault := range d.faults {
			t.Errorf("seed %d: %s; the messages in the order of sending: %v", seed, fault, wire)
		}
	})
}
