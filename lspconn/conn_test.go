package lspconn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

func seen(g *inProcess) (methods []string) {
	for _, m := range g.Received()[2:] { // the first two messages are initialize and initialized
		methods = append(methods, strings.TrimSpace(m.Method+" "+string(m.Params)))
	}
	return methods
}

func TestCall_ReturnsResultOrError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{})
		defer conn.Close(context.Background())
		result, err := conn.Ready(t.Context())
		testkit.Equal(t, "result of initialize", fmt.Sprint(string(result), testkit.ErrorText(err)), `{"capabilities":{}}`)
		testkit.Equal(t, "echo", call(t, conn, "echo", `{"x":"y"}`), `{"x":"y"}`)
		testkit.Equal(t, "no params", call(t, conn, "echo", ""), "null")
		_, err = conn.Call(t.Context(), "fail", nil)
		testkit.Equal(t, "error", err, error(&lspconn.ResponseError{Code: -32001, Message: "no luck", Data: json.RawMessage("[1]")}))
		testkit.Equal(t, "the first of two answers", call(t, conn, "twice", ""), "1")
		call(t, conn, "echo", "[1]")
		testkit.Equal(t, "stray responses", mustClose(t, conn).Stray, 1)
	})
}

func TestCall_RejectsBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{})
		defer conn.Close(context.Background())
		conn.Ready(t.Context())
		synctest.Wait()
		for _, test := range []struct {
			method, params string
			code           int
			says           string
		}{
			{"", "", lspconn.CodeInvalidRequest, `invalid method ""`},
			{"a\xff", "", lspconn.CodeInvalidRequest, "invalid method"},
			{"initialize", "{}", lspconn.CodeInvalidRequest, "initialize is sent by the connection itself"},
			{"shutdown", "", lspconn.CodeInvalidRequest, "shutdown is sent by the connection itself"},
			{"exit", "", lspconn.CodeInvalidRequest, "exit is sent by the connection itself"},
			{"echo", "{", lspconn.CodeInvalidParams, `params of echo are not valid JSON: "{"`},
		} {
			var params json.RawMessage
			if test.params != "" {
				params = json.RawMessage(test.params)
			}
			_, called := conn.Call(t.Context(), test.method, params)
			notified := conn.Notify(t.Context(), test.method, params)
			latest := conn.NotifyLatest("k", test.method, params).Wait(t.Context())
			for _, err := range []error{called, notified, latest} {
				var refused *lspconn.ResponseError
				if !errors.As(err, &refused) || refused.Code != test.code || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%q %q: %v, want %q", test.method, test.params, err, test.says)
				}
			}
		}
		synctest.Wait()
		testkit.Equal(t, "what got through", len(seen(g)), 0)
	})
}

// If the context of Call ends before the request has been written, the request is withdrawn. If the
// request has been written, it is cancelled with $/cancelRequest. A response that arrives later is
// ignored.
func TestCall_IsCancelledWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{})
		defer conn.Close(context.Background())
		why := errors.New("the user has typed another character")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := conn.Call(ctx, "echo", nil); err != why {
			t.Errorf("a call whose context had ended before returned %v", err)
		}

		ctx, cancel = context.WithCancelCause(t.Context())
		answers := make(chan error)
		conn.Ready(t.Context())
		go func() {
			_, err := conn.Call(ctx, "never", nil)
			answers <- err
		}()
		synctest.Wait()
		cancel(why)
		if err := <-answers; err != why {
			t.Errorf("a call whose context ended returned %v", err)
		}
		call(t, conn, "echo", "[1]")
		testkit.Equal(t, "seen", seen(g), []string{"never", `$/cancelRequest {"id":2}`, "echo [1]"})
	})
	synctest.Test(t, func(t *testing.T) {
		conn, g := startInProcess(t, t.Context(), lspconn.Server{}, behaviours{Initialize: "never"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := conn.Call(ctx, "echo", nil); err != context.DeadlineExceeded {
			t.Errorf("a withdrawn call returned %v", err)
		}
		if err := conn.Notify(ctx, "note", nil); err != context.DeadlineExceeded {
			t.Errorf("a withdrawn call returned %v", err)
		}
		testkit.Equal(t, "guards", conn.Scope().GuardReport().String(), "2 guards: here/calls ×1, here/process ×1")
		mustClose(t, conn)
		testkit.Equal(t, "messages", len(g.Received()), 1)
	})
	synctest.Test(t, func(t *testing.T) {
		conn, g := startSlow(t, lspconn.Server{})
		conn.Ready(t.Context())
		time.Sleep(time.Second)
		go conn.Notify(context.Background(), "note", nil)
		synctest.Wait() // wait until the message is being written
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := conn.Call(ctx, "echo", nil); err != context.DeadlineExceeded {
			t.Errorf("a call withdrawn behind another one returned %v", err)
		}
		call(t, conn, "echo", "[1]")
		testkit.Equal(t, "seen", seen(g), []string{"note", "echo [1]"})
		mustClose(t, conn)
	})
}

// While the queue is full, a caller blocks until there is room, its context ends, or the connection
// closes.
func TestCall_BlocksWhileQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{QueueLimit: 2}, behaviours{StopAfter: 1})
		conn.Ready(t.Context())
		synctest.Wait()
		errs := make(chan error, 10)
		for range 8 {
			go func() { errs <- conn.Notify(context.Background(), "note", nil) }()
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			errs <- conn.Notify(ctx, "note", nil)
		}()
		testkit.Equal(t, "first", <-errs, context.DeadlineExceeded)
		synctest.Wait()
		// One message is being written, one is queued, and six callers wait for room in the queue.
		testkit.Equal(t, "queue", conn.Scope().GuardReport().String(), "3 guards: here/queue ×2, here/process ×1")
		mustClose(t, conn)
		for range 8 {
			if err := <-errs; !errors.Is(err, lspconn.ErrClosing) {
				t.Errorf("%v", err)
			}
		}
	})
}

// The latest notification of a key replaces earlier ones that are queued, except those that were
// sent before another message.
func TestNotifyLatest_ReplacesQueuedNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := startSlow(t, lspconn.Server{})
		var ds []*lspconn.Delivery
		latest := func(key, params string) {
			ds = append(ds, conn.NotifyLatest(key, "note", json.RawMessage(params)))
		}
		latest("a", "1") // the connection does not write it yet, because it is initializing
		latest("b", "2")
		latest("a", "3")
		go conn.Call(context.Background(), "echo", json.RawMessage("[4]"))
		synctest.Wait()
		latest("a", "5")
		latest("a", "6")
		conn.Ready(t.Context())
		for _, d := range ds {
			<-d.Done()
		}
		var got []string
		for _, d := range ds {
			got = append(got, testkit.ErrorText(d.Wait(t.Context())))
		}
		old := lspconn.ErrSuperseded.Error()
		testkit.Equal(t, "deliveries", got, []string{old, "", "", old, ""})
		mustClose(t, conn)
		testkit.Equal(t, "seen", seen(g), []string{"note 3", "note 2", "echo [4]", "note 6", "shutdown", "exit"})
	})
}

// A hundred thousand notifications with one key that the server does not read take no more memory
// than a single one.
func TestNotifyLatest_UsesBoundedMemory(t *testing.T) {
	conn := startReady(t, fake(role{Behaviour: behaviours{StopAfter: 2}}))
	big := json.RawMessage(`"` + strings.Repeat("x", 1<<10) + `"`)
	checkHeap(t, func() {
		for range 100_000 {
			conn.NotifyLatest("doc", "note", big)
		}
	})
	conn.Scope().Force(nil)
}

// checkHeap checks that f leaves almost nothing on the heap.
func checkHeap(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if t.Logf("the heap has grown by %d bytes", grown); grown > 1<<20 {
		t.Error("more than 1 MiB is left on the heap")
	}
}

// startStuck returns a connection to a server that has stopped reading in the middle of a message.
func startStuck(t *testing.T, limit int) *lspconn.Conn {
	t.Helper()
	conn, _ := startInProcess(t, t.Context(), lspconn.Server{QueueLimit: limit}, behaviours{StopAfter: 2})
	conn.Ready(t.Context())
	synctest.Wait()
	for range 2 { // the server reads one message and no more
		go conn.Notify(context.Background(), "note", nil)
		synctest.Wait()
	}
	return conn
}

// callBriefly makes a call whose context ends soon. An editor does this when the user continues to
// type.
func callBriefly(t *testing.T, conn *lspconn.Conn, method string, params json.RawMessage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := conn.Call(ctx, method, params); err != context.DeadlineExceeded {
		t.Errorf("a withdrawn call returned %v", err)
	}
}

// A call whose context ends before its request is written is withdrawn from the queue. Withdrawn
// calls use no memory, however many there are.
func TestCall_WithdrawnBeforeItIsWrittenUsesNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := startStuck(t, 4)
		big := json.RawMessage(`"` + strings.Repeat("x", 20<<10) + `"`)
		checkHeap(t, func() {
			for range 500 {
				callBriefly(t, conn, "echo", big)
			}
		})
		mustClose(t, conn)
	})
}

// Each keystroke changes the document and requests a completion, and the next keystroke withdraws
// that request. The queued notifications still take no more memory than a single one.
func TestNotifyLatest_UsesBoundedMemoryIfCallsBetweenAreWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := startStuck(t, 4)
		big := json.RawMessage(`"` + strings.Repeat("x", 20<<10) + `"`)
		var before *lspconn.Delivery
		superseded := 0
		checkHeap(t, func() {
			for range 500 {
				d := conn.NotifyLatest("doc", "note", big)
				if before != nil && isDone(before) && before.Wait(t.Context()) == lspconn.ErrSuperseded {
					superseded++
				}
				before = d
				callBriefly(t, conn, "completion", nil)
			}
		})
		testkit.Equal(t, "superseded", superseded, 499)
		mustClose(t, conn)
	})
}

func isDone(d *lspconn.Delivery) bool {
	select {
	case <-d.Done():
		return true
	default:
		return false
	}
}

// NotifyLatest has queued notifications before and after a message of Call or Notify, and that
// message is withdrawn. Of the notifications with the same key, only the newest remains. None moves
// past another message of Call or Notify.
func TestNotifyLatest_NewestOfKeyRemainsIfCallBetweenIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := startSlow(t, lspconn.Server{})
		var ds []*lspconn.Delivery
		latest := func(key, params string) {
			ds = append(ds, conn.NotifyLatest(key, "note", json.RawMessage(params)))
		}
		send := func(f func(ctx context.Context)) (withdraw func()) {
			ctx, cancel := context.WithCancel(context.Background())
			go f(ctx)
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		}
		latest("a", "1") // the connection does not write it yet, because it is initializing
		latest("b", "2")
		first := send(func(ctx context.Context) { conn.Call(ctx, "echo", json.RawMessage("[0]")) })
		latest("a", "3")
		send(func(ctx context.Context) { conn.Call(ctx, "echo", json.RawMessage("[4]")) })
		latest("a", "5")
		latest("b", "6")
		second := send(func(ctx context.Context) { conn.Notify(ctx, "note", json.RawMessage("[0]")) })
		latest("b", "7")
		first()
		second()
		latest("a", "8")
		conn.Ready(t.Context())
		var got []string
		for _, d := range ds {
			got = append(got, testkit.ErrorText(d.Wait(t.Context())))
		}
		old := lspconn.ErrSuperseded.Error()
		testkit.Equal(t, "deliveries", got, []string{old, "", "", old, old, "", ""})
		mustClose(t, conn)
		testkit.Equal(t, "seen", seen(g), []string{"note 2", "note 3", "echo [4]", "note 8", "note 7", "shutdown", "exit"})
	})
}

// While the connection closes, queued notifications of NotifyLatest are kept as long as a message
// of Call or Notify follows them. They are discarded as soon as that message is withdrawn.
func TestNotifyLatest_DuringCloseFailsIfCallQueuedAfterItIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := startSlow(t, lspconn.Server{})
		conn.Ready(t.Context())
		time.Sleep(time.Second)
		go conn.Notify(context.Background(), "note", nil)
		synctest.Wait() // wait until the message is being written
		latest := conn.NotifyLatest("k", "note", json.RawMessage("1"))
		ctx, cancel := context.WithCancel(context.Background())
		go conn.Notify(ctx, "note", json.RawMessage("2"))
		synctest.Wait()
		go conn.Close(context.Background())
		synctest.Wait()
		if isDone(latest) {
			t.Error("the notification failed although a message of Notify follows it in the queue")
		}
		cancel()
		if err := latest.Wait(t.Context()); !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("%v", err)
		}
		testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
		testkit.Equal(t, "seen", seen(g), []string{"note", "shutdown", "exit"})
		testkit.Equal(t, "guards", conn.Scope().GuardCount(), 0)
	})
}

// The caller may modify the params after NotifyLatest has returned, even if the notification has
// not been written yet.
func TestNotifyLatest_CopiesParams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := startSlow(t, lspconn.Server{})
		params := json.RawMessage("1")
		d := conn.NotifyLatest("k", "note", params)
		params[0] = '2'
		if err := d.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		mustClose(t, conn)
		testkit.Equal(t, "seen", seen(g), []string{"note 1", "shutdown", "exit"})
	})
}

// Every request of the server is answered, whether its handler returns a result, an error or a
// value that cannot be encoded.
func TestOnRequest_AnswersServerRequests(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler func(ctx context.Context, method string, params json.RawMessage) (any, error)
		want    string
	}{
		{"no handler is set", nil, `{"error":{"code":-32601,"message":"method not found: client/ask"}}`},
		{"a value", func(_ context.Context, m string, p json.RawMessage) (any, error) { return map[string]any{m: p}, nil }, `{"client/ask":{"for":2}}`},
		{"nothing", func(context.Context, string, json.RawMessage) (any, error) { return nil, nil }, "null"},
		{"raw JSON", func(context.Context, string, json.RawMessage) (any, error) { return json.RawMessage("[1]"), nil }, "[1]"},
		{"raw text that is not JSON", func(context.Context, string, json.RawMessage) (any, error) { return json.RawMessage("["), nil }, `{"error":{"code":-32603,"message":"the result is not JSON"}}`},
		{"a value that JSON cannot encode", func(context.Context, string, json.RawMessage) (any, error) { return func() {}, nil }, `{"error":{"code":-32603,"message":"json: unsupported type: func()"}}`},
		{"an error", func(context.Context, string, json.RawMessage) (any, error) { return nil, errors.New("no") }, `{"error":{"code":-32603,"message":"no"}}`},
		{"a ResponseError", func(context.Context, string, json.RawMessage) (any, error) {
			return nil, fmt.Errorf("wrapped: %w", &lspconn.ResponseError{Code: -5, Message: "no", Data: json.RawMessage("{")})
		}, `{"error":{"code":-5,"message":"no"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, _ := startInProcess(t, t.Context(), lspconn.Server{OnRequest: test.handler}, behaviours{})
				conn.Ready(t.Context())
				testkit.Equal(t, "answer", call(t, conn, "ask", "[]"), test.want)
				mustClose(t, conn)
			})
		})
	}
}

// A handler that has called Async and does not return delays neither other messages nor Close. The
// context of the handler ends when the connection closes. The guard report contains its request
// until the handler returns.
func TestAsync_BlockedHandlerDelaysNeitherMessagesNorClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		causes := make(chan error, 300)
		server := lspconn.Server{OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			lspconn.Async(ctx)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			<-release
			return nil, nil
		}}
		conn, _ := startInProcess(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		for range 256 {
			go conn.Call(context.Background(), "ask", nil)
		}
		synctest.Wait()
		contains(t, errors.New(call(t, conn, "ask", "")), "more than 256 requests at once")
		testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
		if err := <-causes; !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("the cause of the handler's context is %v", err)
		}
		synctest.Wait() // wait until the handler has returned
		testkit.Equal(t, "guards", conn.Scope().GuardReport().String(), "256 guards: here/requests ×256")
		close(release)
		synctest.Wait()
		testkit.Equal(t, "guards", conn.Scope().GuardCount(), 0)
	})
}

func TestLogger_ReceivesStateChangesAndReportOfConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{Logger: log}, behaviours{})
		conn.Ready(t.Context())
		mustClose(t, conn)
		testkit.Equal(t, "log", text.String(), `level=DEBUG msg="lspconn: Ready" server=here from=Initializing
level=DEBUG msg="lspconn: Closing" server=here from=Ready
level=INFO msg="lspconn: ended" server=here report.outcome=Clean report.drain=0s report.handshake=0s report.leave=0s report.exit="exit code 0"
level=DEBUG msg="lspconn: Closed" server=here from=Closing
`)
	})
}

// Dozens of goroutines use Call and NotifyLatest over one real pipe. Each call returns the response
// to its own request.
func TestConn_DeliversEachResponseToItsCallUnderLoad(t *testing.T) {
	server := fake(role{})
	server.OnRequest = func(_ context.Context, _ string, params json.RawMessage) (any, error) { return params, nil }
	conn := startReady(t, server)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for j := range 100 {
				want := fmt.Sprintf("[%d,%d,%q]", i, j, strings.Repeat("x", (i*j)%5000))
				if j%3 == 0 {
					conn.NotifyLatest(fmt.Sprint(i%4), "note", json.RawMessage(want))
				}
				if j%2 == 0 { // the client then also responds to a request of the server
					all.Go(func() { conn.Call(t.Context(), "ask", nil) })
				}
				if result, err := conn.Call(t.Context(), "echo", json.RawMessage(want)); err != nil || string(result) != want {
					t.Errorf("%v, %s for %s", err, result, want)
					return
				}
			}
		})
	}
	all.Wait()
	testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
}
