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

	"github.com/swansong-go/swansong/lspconn"
)

func seen(g *goroutine) (methods []string) {
	for _, m := range g.Seen()[2:] { // after initialize and initialized
		methods = append(methods, strings.TrimSpace(m.Method+" "+string(m.Params)))
	}
	return methods
}

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := here(t, t.Context(), lspconn.Server{}, behaviours{})
		defer conn.Close(context.Background())
		result, err := conn.Ready(t.Context())
		equal(t, "result of initialize", `{"capabilities":{}}`, fmt.Sprint(string(result), errString(err)))
		equal(t, "echo", `{"x":"y"}`, call(t, conn, "echo", `{"x":"y"}`))
		equal(t, "no params", "null", call(t, conn, "echo", ""))
		_, err = conn.Call(t.Context(), "fail", nil)
		equal(t, "error", error(&lspconn.ResponseError{Code: -32001, Message: "no luck", Data: json.RawMessage("[1]")}), err)
		equal(t, "the first of two answers", "1", call(t, conn, "twice", ""))
		call(t, conn, "echo", "[1]")
		equal(t, "stray responses", 1, closed(t, conn).Stray)
	})
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCall_BadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := here(t, t.Context(), lspconn.Server{}, behaviours{})
		defer conn.Close(context.Background())
		conn.Ready(t.Context())
		synctest.Wait()
		for _, test := range []struct {
			method, params string
			code           int
			says           string
		}{
			{"", "", lspconn.CodeInvalidRequest, `a method must be a name, not ""`},
			{"a\xff", "", lspconn.CodeInvalidRequest, "a method must be a name"},
			{"initialize", "{}", lspconn.CodeInvalidRequest, "initialize is sent by the connection itself, once"},
			{"shutdown", "", lspconn.CodeInvalidRequest, "shutdown is sent by the connection itself"},
			{"exit", "", lspconn.CodeInvalidRequest, "exit is sent by the connection itself"},
			{"echo", "{", lspconn.CodeInvalidParams, `params of echo are not JSON: "{"`},
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
		equal(t, "what got through", 0, len(seen(g)))
	})
}

// A call that is given up is cancelled if it was written, and withdrawn if it was not. Its late answer is ignored.
func TestCall_Cancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := here(t, t.Context(), lspconn.Server{}, behaviours{})
		defer conn.Close(context.Background())
		why := errors.New("the user has typed on")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := conn.Call(ctx, "echo", nil); err != why {
			t.Errorf("a call that was given up before: %v", err)
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
			t.Errorf("a call that was given up: %v", err)
		}
		call(t, conn, "echo", "[1]")
		equal(t, "seen", []string{"never", `$/cancelRequest {"id":2}`, "echo [1]"}, seen(g))
	})
	synctest.Test(t, func(t *testing.T) {
		conn, g := here(t, t.Context(), lspconn.Server{}, behaviours{Initialize: "never"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := conn.Call(ctx, "echo", nil); err != context.DeadlineExceeded {
			t.Errorf("withdrawn: %v", err)
		}
		if err := conn.Notify(ctx, "note", nil); err != context.DeadlineExceeded {
			t.Errorf("withdrawn: %v", err)
		}
		equal(t, "guards", "2 guards: here/calls ×1, here/process ×1", conn.Scope().GuardReport().String())
		closed(t, conn)
		equal(t, "messages", 1, len(g.Seen()))
	})
	synctest.Test(t, func(t *testing.T) {
		conn, g := slow(t, lspconn.Server{})
		conn.Ready(t.Context())
		time.Sleep(time.Second)
		go conn.Notify(context.Background(), "note", nil)
		synctest.Wait() // it is being written
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := conn.Call(ctx, "echo", nil); err != context.DeadlineExceeded {
			t.Errorf("withdrawn behind another one: %v", err)
		}
		call(t, conn, "echo", "[1]")
		equal(t, "seen", []string{"note", "echo [1]"}, seen(g))
		closed(t, conn)
	})
}

// While the queue is full, callers wait: for room, for their context, or for the close.
func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := here(t, t.Context(), lspconn.Server{QueueLimit: 2}, behaviours{StopAfter: 1})
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
		equal(t, "first", context.DeadlineExceeded, <-errs)
		synctest.Wait()
		// One is being written, one waits for that, and six wait for room.
		equal(t, "queue", "3 guards: here/queue ×2, here/process ×1", conn.Scope().GuardReport().String())
		closed(t, conn)
		for range 8 {
			if err := <-errs; !errors.Is(err, lspconn.ErrClosing) {
				t.Errorf("%v", err)
			}
		}
	})
}

// The latest wins, per key; and whoever sends something else after it is not overtaken by what comes later.
func TestNotifyLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := slow(t, lspconn.Server{})
		var ds []*lspconn.Delivery
		latest := func(key, params string) {
			ds = append(ds, conn.NotifyLatest(key, "note", json.RawMessage(params)))
		}
		latest("a", "1") // it is initializing: nothing is written yet
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
			got = append(got, errString(d.Wait(t.Context())))
		}
		old := lspconn.ErrSuperseded.Error()
		equal(t, "deliveries", []string{old, "", "", old, ""}, got)
		closed(t, conn)
		equal(t, "seen", []string{"note 3", "note 2", "echo [4]", "note 6", "shutdown", "exit"}, seen(g))
	})
}

// A hundred thousand changes that nobody reads take the memory of one.
func TestNotifyLatest_IsBounded(t *testing.T) {
	conn := ready(t, fake(role{Behaviour: behaviours{StopAfter: 2}}))
	big := json.RawMessage(`"` + strings.Repeat("x", 1<<10) + `"`)
	bounded(t, func() {
		for range 100_000 {
			conn.NotifyLatest("doc", "note", big)
		}
	})
	conn.Scope().Force(nil)
}

// bounded checks that f leaves next to nothing on the heap.
func bounded(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if t.Logf("the heap has grown by %d bytes", grown); grown > 1<<20 {
		t.Error("it takes more for more")
	}
}

// stuck is a connection to a server that has stopped reading, with a message on its way.
func stuck(t *testing.T, limit int) *lspconn.Conn {
	t.Helper()
	conn, _ := here(t, t.Context(), lspconn.Server{QueueLimit: limit}, behaviours{StopAfter: 2})
	conn.Ready(t.Context())
	synctest.Wait()
	for range 2 { // one is read, and no more
		go conn.Notify(context.Background(), "note", nil)
		synctest.Wait()
	}
	return conn
}

// briefly is the patience of whoever types on.
func briefly(t *testing.T, conn *lspconn.Conn, method string, params json.RawMessage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := conn.Call(ctx, method, params); err != context.DeadlineExceeded {
		t.Errorf("withdrawn: %v", err)
	}
}

// However many calls are given up before they are written, what they would have sent is not kept.
func TestCall_WithdrawnIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := stuck(t, 4)
		big := json.RawMessage(`"` + strings.Repeat("x", 20<<10) + `"`)
		bounded(t, func() {
			for range 500 {
				briefly(t, conn, "echo", big)
			}
		})
		closed(t, conn)
	})
}

// Each keystroke changes the document and asks for a completion, and the next one withdraws that: the changes still take the
// memory of one.
func TestNotifyLatest_BetweenWithdrawnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := stuck(t, 4)
		big := json.RawMessage(`"` + strings.Repeat("x", 20<<10) + `"`)
		var before *lspconn.Delivery
		superseded := 0
		bounded(t, func() {
			for range 500 {
				d := conn.NotifyLatest("doc", "note", big)
				if before != nil && isDone(before) && before.Wait(t.Context()) == lspconn.ErrSuperseded {
					superseded++
				}
				before = d
				briefly(t, conn, "completion", nil)
			}
		})
		equal(t, "superseded", 499, superseded)
		closed(t, conn)
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

// Where a message is withdrawn, the coalesced ones on its two sides meet, and pass no other one.
func TestNotifyLatest_AroundTheWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := slow(t, lspconn.Server{})
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
		latest("a", "1") // it is initializing: nothing is written yet
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
			got = append(got, errString(d.Wait(t.Context())))
		}
		old := lspconn.ErrSuperseded.Error()
		equal(t, "deliveries", []string{old, "", "", old, old, "", ""}, got)
		closed(t, conn)
		equal(t, "seen", []string{"note 2", "note 3", "echo [4]", "note 8", "note 7", "shutdown", "exit"}, seen(g))
	})
}

// While the connection is closing, what is coalesced waits for nobody who has been withdrawn.
func TestNotifyLatest_WithdrawnWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := slow(t, lspconn.Server{})
		conn.Ready(t.Context())
		time.Sleep(time.Second)
		go conn.Notify(context.Background(), "note", nil)
		synctest.Wait() // it is being written
		latest := conn.NotifyLatest("k", "note", json.RawMessage("1"))
		ctx, cancel := context.WithCancel(context.Background())
		go conn.Notify(ctx, "note", json.RawMessage("2"))
		synctest.Wait()
		go conn.Close(context.Background())
		synctest.Wait()
		if isDone(latest) {
			t.Error("failed with somebody behind it")
		}
		cancel()
		if err := latest.Wait(t.Context()); !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("%v", err)
		}
		equal(t, "outcome", lspconn.Clean, closed(t, conn).Outcome)
		equal(t, "seen", []string{"note", "shutdown", "exit"}, seen(g))
		equal(t, "guards", 0, conn.Scope().GuardCount())
	})
}

// Params are the caller's again when NotifyLatest has returned, though they have not been written.
func TestNotifyLatest_CopiesParams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, g := slow(t, lspconn.Server{})
		params := json.RawMessage("1")
		d := conn.NotifyLatest("k", "note", params)
		params[0] = '2'
		if err := d.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		closed(t, conn)
		equal(t, "seen", []string{"note 1", "shutdown", "exit"}, seen(g))
	})
}

// Requests of the server are answered, side by side, whatever the handler does.
func TestOnRequest(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler func(ctx context.Context, method string, params json.RawMessage) (any, error)
		want    string
	}{
		{"nobody", nil, `{"error":{"code":-32601,"message":"method not found: client/ask"}}`},
		{"a value", func(_ context.Context, m string, p json.RawMessage) (any, error) { return map[string]any{m: p}, nil }, `{"client/ask":{"for":2}}`},
		{"nothing", func(context.Context, string, json.RawMessage) (any, error) { return nil, nil }, "null"},
		{"raw", func(context.Context, string, json.RawMessage) (any, error) { return json.RawMessage("[1]"), nil }, "[1]"},
		{"raw garbage", func(context.Context, string, json.RawMessage) (any, error) { return json.RawMessage("["), nil }, `{"error":{"code":-32603,"message":"the result is not JSON"}}`},
		{"no JSON", func(context.Context, string, json.RawMessage) (any, error) { return func() {}, nil }, `{"error":{"code":-32603,"message":"json: unsupported type: func()"}}`},
		{"an error", func(context.Context, string, json.RawMessage) (any, error) { return nil, errors.New("no") }, `{"error":{"code":-32603,"message":"no"}}`},
		{"LSP's error", func(context.Context, string, json.RawMessage) (any, error) {
			return nil, fmt.Errorf("wrapped: %w", &lspconn.ResponseError{Code: -5, Message: "no", Data: json.RawMessage("{")})
		}, `{"error":{"code":-5,"message":"no"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, _ := here(t, t.Context(), lspconn.Server{OnRequest: test.handler}, behaviours{})
				conn.Ready(t.Context())
				equal(t, "answer", test.want, call(t, conn, "ask", "[]"))
				closed(t, conn)
			})
		})
	}
}

// A handler that does not return delays nobody, is told at the end, and is named until it returns.
func TestOnRequest_Hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		told := make(chan error, 300)
		server := lspconn.Server{OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			told <- context.Cause(ctx)
			<-release
			return nil, nil
		}}
		conn, _ := here(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		for range 256 {
			go conn.Call(context.Background(), "ask", nil)
		}
		synctest.Wait()
		contains(t, errors.New(call(t, conn, "ask", "")), "more than 256 requests at once")
		equal(t, "outcome", lspconn.Clean, closed(t, conn).Outcome)
		if err := <-told; !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("told: %v", err)
		}
		synctest.Wait() // for who has just refused
		equal(t, "guards", "256 guards: here/requests ×256", conn.Scope().GuardReport().String())
		close(release)
		synctest.Wait()
		equal(t, "guards", 0, conn.Scope().GuardCount())
	})
}

// Notifications come in their order. Who has fallen behind holds up the reader, but not the end.
func TestOnNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		release := make(chan struct{})
		server := lspconn.Server{OnNotify: func(method string, params json.RawMessage) {
			<-release
			got = append(got, method+string(params))
		}}
		conn, _ := here(t, t.Context(), server, behaviours{})
		conn.Ready(t.Context())
		call(t, conn, "notes", "1000")
		close(release)
		closed(t, conn)
		synctest.Wait()
		equal(t, "count", 1000, len(got))
		for i, note := range got {
			if note != fmt.Sprint("note", i) {
				t.Fatalf("%d is %s", i, note)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		conn, _ := here(t, t.Context(), lspconn.Server{OnNotify: func(string, json.RawMessage) { <-release }}, behaviours{})
		conn.Ready(t.Context())
		go conn.Call(context.Background(), "notes", json.RawMessage("5000"))
		synctest.Wait()
		r := closed(t, conn)
		if r.Total > 10*time.Second {
			t.Errorf("held up: %v", r)
		}
		close(release)
	})
}

func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		conn, _ := here(t, t.Context(), lspconn.Server{Logger: log}, behaviours{})
		conn.Ready(t.Context())
		closed(t, conn)
		equal(t, "log", `level=DEBUG msg="lspconn: Ready" server=here from=Initializing
level=DEBUG msg="lspconn: Closing" server=here from=Ready
level=INFO msg="lspconn: ended" server=here report.outcome=Clean report.drain=0s report.handshake=0s report.leave=0s report.exit="exit code 0"
level=DEBUG msg="lspconn: Closed" server=here from=Closing
`, text.String())
	})
}

// Callers by the dozen, and coalescers, over one real pipe: every answer is to its own question.
func TestLoad(t *testing.T) {
	server := fake(role{})
	server.OnRequest = func(_ context.Context, _ string, params json.RawMessage) (any, error) { return params, nil }
	conn := ready(t, server)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for j := range 100 {
				want := fmt.Sprintf("[%d,%d,%q]", i, j, strings.Repeat("x", (i*j)%5000))
				if j%3 == 0 {
					conn.NotifyLatest(fmt.Sprint(i%4), "note", json.RawMessage(want))
				}
				if j%2 == 0 { // its answer to a request of the server is written beside the rest
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
	equal(t, "outcome", lspconn.Clean, closed(t, conn).Outcome)
}
