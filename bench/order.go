package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/lspconn"
	xjsonrpc2 "golang.org/x/exp/jsonrpc2"
)

const orderNotes = `
## The order of a language server's messages

A server sends a notification and then the response to a call, 50 times: how often does the call return before the
handler of the notification, which takes a millisecond? And it sends 200 requests, one after the other: how often does
a handler begin after that of a later request, and how long do all of them take, with handlers that return at once?
Handlers are called as each library does it by default; sourcegraph/jsonrpc2 with AsyncHandler, which its documentation
suggests where the order does not matter, is a row of its own.

`

const (
	notedCalls = 50
	burst      = 200
)

// An orderClient is a library for clients of language servers. start starts a client, whose
// handlers call noted for each notification, and edited with the number of each request.
type orderClient struct {
	name  string
	start func(noted func(), edited func(n int)) (call func(method string), stop func())
}

func orderClients() []orderClient {
	return []orderClient{
		{"lspconn", orderOurs},
		{"sourcegraph/jsonrpc2", orderSourcegraph(func(h jsonrpc2.Handler) jsonrpc2.Handler { return h })},
		{"sourcegraph/jsonrpc2, AsyncHandler", orderSourcegraph(jsonrpc2.AsyncHandler)},
		{"x/exp/jsonrpc2", orderExp},
	}
}

func orderOurs(noted func(), edited func(n int)) (call func(method string), stop func()) {
	server := echo()
	server.OnNotify = func(context.Context, string, json.RawMessage) { noted() }
	server.OnRequest = func(_ context.Context, _ string, params json.RawMessage) (any, error) {
		edited(must(strconv.Atoi(string(params))))
		return nil, nil
	}
	conn := must(lspconn.Start(context.Background(), server))
	must(conn.Ready(context.Background()))
	return func(method string) { must(conn.Call(context.Background(), method, nil)) },
		func() { must(conn.Close(context.Background())) }
}

func orderSourcegraph(wrap func(jsonrpc2.Handler) jsonrpc2.Handler) func(noted func(), edited func(n int)) (call func(method string), stop func()) {
	return func(noted func(), edited func(n int)) (call func(method string), stop func()) {
		cmd, in, out := spawnRaw()
		h := jsonrpc2.HandlerWithError(func(_ context.Context, _ *jsonrpc2.Conn, r *jsonrpc2.Request) (any, error) {
			if r.Notif {
				noted()
			} else {
				edited(must(strconv.Atoi(string(*r.Params))))
			}
			return nil, nil
		})
		conn := jsonrpc2.NewConn(context.Background(), jsonrpc2.NewBufferedStream(stream{in, out}, jsonrpc2.VSCodeObjectCodec{}), wrap(h), quiet)
		return func(method string) {
			if err := conn.Call(context.Background(), method, nil, nil); err != nil {
				panic(err)
			}
		}, func() { stopRaw(cmd, conn.Close) }
	}
}

func orderExp(noted func(), edited func(n int)) (call func(method string), stop func()) {
	cmd, in, out := spawnRaw()
	h := xjsonrpc2.HandlerFunc(func(_ context.Context, r *xjsonrpc2.Request) (any, error) {
		if r.IsCall() {
			edited(must(strconv.Atoi(string(r.Params))))
		} else {
			noted()
		}
		return nil, nil
	})
	conn := must(xjsonrpc2.Dial(context.Background(), dialer{stream{in, out}}, xjsonrpc2.ConnectionOptions{Handler: h}))
	return func(method string) {
		if err := conn.Call(context.Background(), method, nil).Await(context.Background(), nil); err != nil {
			panic(err)
		}
	}, func() { stopRaw(cmd, conn.Close) }
}

// A dialer returns a stream that is already open.
type dialer struct{ io.ReadWriteCloser }

func (d dialer) Dial(context.Context) (io.ReadWriteCloser, error) { return d.ReadWriteCloser, nil }

// stopRaw closes the connection to a process that spawnRaw has started, and waits until the process
// has exited.
func stopRaw(cmd *exec.Cmd, closeConn func() error) {
	closeConn()
	cmd.Wait()
}

// The server sends a notification before the response to each call. overtakes makes n calls, and
// returns how many of them return before the handler of that notification has returned.
func (c orderClient) overtakes(n int) (overtaken int) {
	var mu sync.Mutex
	handled := 0
	call, stop := c.start(func() {
		time.Sleep(time.Millisecond)
		mu.Lock()
		handled++
		mu.Unlock()
	}, nil)
	defer stop()
	for i := range n {
		call("noted")
		mu.Lock()
		if handled < i+1 {
			overtaken++
		}
		mu.Unlock()
	}
	return overtaken
}

// inversions returns how many of n requests are handled after a request that the server sent later,
// and how long it took to handle and answer all of them.
func (c orderClient) inversions(n int) (inverted int, took time.Duration) {
	var mu sync.Mutex
	var order []int
	all := make(chan struct{})
	call, stop := c.start(nil, func(i int) {
		mu.Lock()
		defer mu.Unlock()
		if order = append(order, i); len(order) == n {
			close(all)
		}
	})
	defer stop()
	begin := time.Now()
	call("burst " + strconv.Itoa(n))
	<-all
	took = time.Since(begin)
	for i, latest := 0, -1; i < n; i++ {
		if order[i] < latest {
			inverted++
		}
		latest = max(latest, order[i])
	}
	return inverted, took
}

func printOrder(out io.Writer) {
	fmt.Fprint(out, orderNotes)
	figures.Row(out, "client", fmt.Sprintf("responses before their notification, of %d", notedCalls),
		fmt.Sprintf("requests out of order, of %d (most of 11 runs)", burst), "time a request")
	figures.Row(out, "---", "---:", "---:", "---:")
	for _, c := range orderClients() {
		worst, times := 0, []float64(nil)
		for range 11 {
			inverted, took := c.inversions(burst)
			worst = max(worst, inverted)
			times = append(times, float64(took)/burst)
		}
		slices.Sort(times)
		figures.Row(out, c.name, strconv.Itoa(c.overtakes(notedCalls)), strconv.Itoa(worst), fmt.Sprintf("%.1f µs", figures.Median(times)/1e3))
	}
}

// sendNoted writes a notification and the response to a call together, in one call of Write.
func sendNoted(out io.Writer, id json.RawMessage) {
	out.Write(append(framed([]byte(`{"jsonrpc":"2.0","method":"progress","params":null}`)),
		framed([]byte(`{"jsonrpc":"2.0","id":`+string(id)+`,"result":null}`))...))
}

// sendBurst sends n requests and the response to a call.
func sendBurst(out io.Writer, id json.RawMessage, n int) {
	var all []byte
	for i := range n {
		all = append(all, framed(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"edit","params":%[1]d}`, i))...)
	}
	all = append(all, framed([]byte(`{"jsonrpc":"2.0","id":`+string(id)+`,"result":null}`))...)
	if _, err := out.Write(all); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
