package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

// In TestConn_SendersLearnCorrectlyWhatServerReceived several goroutines send messages at random
// over one connection, which is closed at a random time. Then the test compares the results that
// the senders received with the messages that the server received. LSPCONN_SEED=n runs the history
// of one seed.
func TestConn_SendersLearnCorrectlyWhatServerReceived(t *testing.T) {
	if text := os.Getenv("LSPCONN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v", history(t, seed))
		return
	}
	base, n := rand.Uint64()>>1, histories()
	t.Logf("%d histories from seed %d on", n, base)
	ends := map[string]int{}
	for i := range uint64(n) {
		for _, end := range history(t, base+i) {
			ends[end]++
		}
		if t.Failed() {
			t.Fatalf("seed %d fails: LSPCONN_SEED=%[1]d go test -run TestConn_SendersLearnCorrectlyWhatServerReceived ./lspconn", base+i)
		}
	}
	// If an outcome never occurs, the histories do not cover enough.
	for _, end := range []string{"Clean", "ExitedEarly", "HandshakeTimeout", "Terminated", "Killed", "written", "answered", "refused by the server",
		"superseded", "closing", "failed", "given up"} {
		if ends[end] < n/500 {
			t.Errorf("of %d histories, %d had the outcome %s", n, ends[end], end)
		}
	}
	t.Logf("%v", ends)
}

// A sent describes a message and the result that its sender received.
type sent struct {
	caller, n int
	kind      string
	text      string // the params, different for each message
	err       error
}

// history runs one history and returns the outcomes of the server and of the messages.
func history(t *testing.T, seed uint64) (ends []string) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := behaviour(r)
		server := lspconn.Server{
			CloseTimeout: time.Duration(1+r.IntN(15)) * time.Second,
			Discard:      r.IntN(4) == 0,
			QueueLimit:   1 + r.IntN(8),
			OnRequest:    func(context.Context, string, json.RawMessage) (any, error) { return "answered", nil },
		}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		conn, g := startInProcess(t, ctx, server, b)

		var all sync.WaitGroup
		var mu sync.Mutex
		var answered []sent
		record := func(s sent, err error) {
			s.err = err
			mu.Lock()
			answered = append(answered, s)
			mu.Unlock()
		}
		if r.IntN(3) > 0 {
			conn.Ready(context.Background())
		}
		wild := r.IntN(4) == 0
		made := 0
		for caller := range 1 + r.IntN(4) {
			r := rand.New(rand.NewPCG(seed, uint64(caller)+1))
			n := r.IntN(12)
			made += n
			all.Go(func() {
				for i := range n {
					if r.IntN(3) == 0 {
						time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					}
					ctx, cancel := context.Background(), func() {}
					if r.IntN(3) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
					}
					s := sent{caller: caller, n: i, text: fmt.Sprintf("[%d,%d]", caller, i)}
					switch k := r.IntN(20); {
					case k < 5:
						s.kind = "note"
						record(s, conn.Notify(ctx, "note", json.RawMessage(s.text)))
					case k < 10:
						s.kind = "latest"
						d := conn.NotifyLatest(strconv.Itoa(r.IntN(2)), "note", json.RawMessage(s.text))
						all.Go(func() {
							<-d.Done()
							record(s, d.Wait(context.Background()))
						})
					default:
						kinds := []string{"echo", "echo", "echo", "fail", "never", "twice", "ask", "die", "half", "garbage"}
						if !wild {
							kinds = kinds[:7]
						}
						s.kind = kinds[r.IntN(len(kinds))]
						if s.kind == "never" && ctx.Done() == nil {
							s.kind = "echo"
						}
						all.Go(func() {
							defer cancel()
							result, err := conn.Call(ctx, s.kind, json.RawMessage(s.text))
							if err == nil && s.kind == "echo" && string(result) != s.text {
								t.Errorf("seed %d: %s was answered %s", seed, s.text, result)
							}
							record(s, err)
						})
						continue
					}
					cancel()
				}
			})
		}
		if r.IntN(4) > 0 {
			time.Sleep(time.Duration(r.IntN(12_000)) * time.Millisecond)
		}
		begin := time.Now()
		forced := false
		switch r.IntN(8) {
		case 0:
			stop() // stops the parent of the connection's scope
		case 1:
			forced = true
			conn.Scope().Force(nil)
		}
		var closers sync.WaitGroup
		for range 1 + r.IntN(2) {
			closers.Go(func() { conn.Close(context.Background()) })
		}
		closers.Wait()
		report, err := conn.Close(context.Background())
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if d := time.Since(begin); d > server.CloseTimeout {
			t.Errorf("seed %d: closing phases %v, more than %v", seed, d, server.CloseTimeout)
		}
		all.Wait()
		if conn.State() != lspconn.Closed || len(answered) != made {
			t.Errorf("seed %d: %v, and of %d messages %d were accounted for", seed, conn.State(), made, len(answered))
		}
		compare(t, seed, b, g, answered, report, forced)
		synctest.Wait() // wait until the handlers have returned
		if n := conn.Scope().GuardCount(); n != 0 {
			t.Errorf("seed %d: guards are held after the end: %v", seed, conn.Scope().GuardReport())
		}
		ends = append(ends, report.Outcome.String())
		for _, s := range answered {
			ends = append(ends, s.end())
		}
		if t.Failed() {
			t.Logf("behaviour %+v, %+v, report %v", b, server, report)
		}
	})
	return ends
}

func (s sent) end() string {
	var failed *lspconn.ConnError
	var response *lspconn.ResponseError
	switch {
	case s.err == nil && (s.kind == "note" || s.kind == "latest"):
		return "written"
	case s.err == nil:
		return "answered"
	case errors.Is(s.err, lspconn.ErrSuperseded):
		return "superseded"
	case errors.As(s.err, &failed) && failed.Cause != nil:
		return "failed"
	case errors.Is(s.err, lspconn.ErrClosing):
		return "closing"
	case errors.Is(s.err, context.DeadlineExceeded):
		return "given up"
	case errors.As(s.err, &response):
		return "refused by the server"
	}
	return s.err.Error()
}

func behaviour(r *rand.Rand) (b fakelsp.Behaviour) {
	if r.IntN(2) == 0 {
		return b
	}
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	b.Initialize = pick("", "", "", "", "", "", "", "", "never", "refuse", "exit", "garbage")
	b.Shutdown = pick("", "", "never", "refuse", "exit", "ask", "close")
	b.Exit = pick("", "ignore")
	b.EOF = pick("", "ignore")
	b.IgnoreTerm = r.IntN(2) == 0
	b.Code = r.IntN(2)
	if r.IntN(3) == 0 {
		b.StopAfter = 1 + r.IntN(6)
	}
	return b
}

// compare checks that the results which the senders received agree with the messages that the
// server received.
func compare(t *testing.T, seed uint64, b fakelsp.Behaviour, g *inProcess, answered []sent, report lspconn.Report, forced bool) {
	for _, fault := range g.Faults() {
		t.Errorf("seed %d: the server found a violation: %s", seed, fault)
	}
	seen := map[string]int{} // for each text, how often and at which position the server received it
	at := map[string]int{}
	methods := make([]string, 0, 20)
	for i, m := range g.Received() {
		methods = append(methods, m.Method)
		if p := string(m.Params); strings.HasPrefix(p, "[") {
			seen[p]++
			at[p] = i
		}
	}
	order := map[int]sent{} // for each goroutine, its last message of Notify that the server has received
	for _, s := range answered {
		n := seen[s.text]
		switch {
		case n > 1:
			t.Errorf("seed %d: %s %s was sent %d times", seed, s.kind, s.text, n)
		case s.err == nil && n == 0 && b.StopAfter == 0 && report.Outcome == lspconn.Clean:
			t.Errorf("seed %d: the sender was told that %s %s was sent, but the server did not receive it", seed, s.kind, s.text)
		case n == 1 && s.end() == "closing" && report.Outcome == lspconn.Clean && (s.kind == "note" || s.kind == "latest"):
			t.Errorf("seed %d: the sender was told that %s %s was refused, but the server received it", seed, s.kind, s.text)
		case errors.Is(s.err, lspconn.ErrSuperseded) && (n != 0 || s.kind != "latest"):
			t.Errorf("seed %d: the sender was told that %s %s was superseded, but the server received it", seed, s.kind, s.text)
		case s.kind == "fail" && s.err == nil, s.kind == "die" && s.err == nil:
			t.Errorf("seed %d: %s %s was answered", seed, s.kind, s.text)
		}
		if s.kind == "note" && n == 1 {
			if before, ok := order[s.caller]; ok && before.n < s.n && at[before.text] > at[s.text] {
				t.Errorf("seed %d: %s overtook %s", seed, s.text, before.text)
			}
			order[s.caller] = s
		}
	}
	if i := strings.Index(strings.Join(methods, " "), "exit "); i >= 0 && !strings.HasSuffix(strings.Join(methods, " "), "exit") {
		t.Errorf("seed %d: the server received messages after exit: %v", seed, methods)
	}
	polite := !forced && b == fakelsp.Behaviour{}
	for _, s := range answered {
		polite = polite && s.kind != "die" && s.kind != "half" && s.kind != "garbage"
	}
	if report.Outcome == lspconn.Clean && report.Failure != nil || polite && report.Failure != nil {
		t.Errorf("seed %d: %v", seed, report)
	}
}
