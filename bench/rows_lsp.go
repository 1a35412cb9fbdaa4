package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
	"github.com/swansong-go/swansong/lspconn"
)

// asLanguageServer is an environment variable that makes this program a language server: "raw" is
// serveRaw, "jsonrpc2" is serveJSONRPC2.
const asLanguageServer = "SWANSONG_BENCH_LSP"

func init() {
	switch os.Getenv(asLanguageServer) {
	case "raw":
		serveRaw(os.Stdin, os.Stdout)
		os.Exit(0)
	case "jsonrpc2":
		serveJSONRPC2()
		os.Exit(0)
	}
}

// lspRows compare lspconn with sourcegraph/jsonrpc2. The function is long because it is a table.
func lspRows() []row {
	return []row{
		{
			what: "language server: round trip of a small call", peer: "a pipe, written and read by hand", allocs: rare,
			ours: callOurs, their: callRaw,
		},
		{
			what: "language server: round trip of a small call", peer: "sourcegraph/jsonrpc2", limit: 0.7, allocs: rare,
			ours: callOurs, their: callJSONRPC2,
		},
		{
			what: "language server: 1000 concurrent calls, each", peer: "sourcegraph/jsonrpc2", limit: 1, once: true, each: pending,
			ours: func() func(int) {
				conn := dial()
				return func(int) { together(pending, func() { must(conn.Call(context.Background(), "echo", small)) }) }
			},
			their: func() func(int) {
				conn := dialJSONRPC2()
				return func(int) {
					together(pending, func() {
						var result json.RawMessage
						if err := conn.Call(context.Background(), "echo", small, &result); err != nil {
							panic(err)
						}
					})
				}
			},
		},
		{
			what: "language server: 100000 coalesced changes, each", peer: "as many notifications by sourcegraph/jsonrpc2", limit: 1, once: true, each: changes,
			ours: func() func(int) {
				conn := dial()
				return func(int) {
					var last *lspconn.Delivery
					for range changes {
						last = conn.NotifyLatest("doc", "change", small)
					}
					if err := last.Wait(context.Background()); err != nil {
						panic(err)
					}
				}
			},
			their: func() func(int) {
				conn := dialJSONRPC2()
				return func(int) {
					for range changes {
						if err := conn.Notify(context.Background(), "change", small); err != nil {
							panic(err)
						}
					}
				}
			},
		},
		{
			what: "language server: close of 12 servers", peer: "shutdown, exit and Wait, one server after the other", limit: 1, once: true,
			ours: func() func(int) {
				m, err := lspconn.NewManager(context.Background(), func(string) (lspconn.Server, error) { return echo(), nil })
				if err != nil {
					panic(err)
				}
				for i := range twelve {
					must(must(m.Conn(context.Background(), strconv.Itoa(i))).Ready(context.Background()))
				}
				return func(int) { must(m.Close(context.Background())) }
			},
			their: func() func(int) {
				var conns [twelve]*jsonrpc2.Conn
				var cmds [twelve]*exec.Cmd
				for i := range conns {
					conns[i], cmds[i] = spawnJSONRPC2()
				}
				return func(int) {
					for i, conn := range conns {
						if err := conn.Call(context.Background(), "shutdown", nil, nil); err != nil {
							panic(err)
						}
						conn.Notify(context.Background(), "exit", nil)
						cmds[i].Wait()
					}
				}
			},
		},
	}
}

const (
	pending = 1000
	changes = 100_000
	twelve  = 12
)

var small = json.RawMessage(`{"textDocument":{"uri":"file:///a.go"},"position":{"line":1,"character":2}}`)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func together(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}

func echo() lspconn.Server {
	return lspconn.Server{Command: []string{must(os.Executable())}, Env: append(os.Environ(), asLanguageServer+"=raw")}
}

// dial returns a connection to a server that runs until the program ends.
var dial = sync.OnceValue(func() *lspconn.Conn {
	conn := must(lspconn.Start(context.Background(), echo()))
	must(conn.Ready(context.Background()))
	return conn
})

// sendToStalled returns a function that sends a change of 1 KiB to a server that does not read.
func sendToStalled() func() any {
	conn := must(lspconn.Start(context.Background(), echo()))
	must(conn.Ready(context.Background()))
	if err := conn.Notify(context.Background(), "hang", nil); err != nil {
		panic(err)
	}
	text := json.RawMessage(`"` + strings.Repeat("x", 1<<10) + `"`)
	return func() any {
		conn.NotifyLatest("doc", "change", text)
		return nil
	}
}

func callOurs() func(int) {
	conn := dial()
	return func(n int) {
		for range n {
			must(conn.Call(context.Background(), "echo", small))
		}
	}
}

func spawnRaw() (*exec.Cmd, io.WriteCloser, io.ReadCloser) {
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(os.Environ(), asLanguageServer+"=raw")
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd, in, out
}

func callRaw() func(int) {
	_, in, out := spawnRaw()
	r := bufio.NewReader(out)
	message := framed([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"echo","params":%s}`, small)))
	return func(n int) {
		for range n {
			must(in.Write(message))
			must(unframed(r))
		}
	}
}

var quiet = jsonrpc2.SetLogger(log.New(io.Discard, "", 0))

type stream struct {
	io.WriteCloser
	io.Reader
}

func spawnJSONRPC2() (*jsonrpc2.Conn, *exec.Cmd) {
	cmd, in, out := spawnRaw()
	h := jsonrpc2.HandlerWithError(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) (any, error) { return nil, nil })
	return jsonrpc2.NewConn(context.Background(), jsonrpc2.NewBufferedStream(stream{in, out}, jsonrpc2.VSCodeObjectCodec{}), h, quiet), cmd
}

var dialJSONRPC2 = sync.OnceValue(func() *jsonrpc2.Conn {
	conn, _ := spawnJSONRPC2()
	return conn
})

func callJSONRPC2() func(int) {
	conn := dialJSONRPC2()
	return func(n int) {
		for range n {
			var result json.RawMessage
			if err := conn.Call(context.Background(), "echo", small, &result); err != nil {
				panic(err)
			}
		}
	}
}

// serveRaw answers requests with their params. It parses only the id, the method and the params.
func serveRaw(in io.Reader, out io.Writer) {
	for r := bufio.NewReader(in); ; {
		body, err := unframed(r)
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(body, &m) != nil || m.Method == "exit" {
			return
		}
		if m.Method == "hang" { // the server reads no more, and exits when the client process has ended
			for client := os.Getppid(); os.Getppid() == client; {
				time.Sleep(100 * time.Millisecond)
			}
			return
		}
		if m.ID == nil || m.Method == "" {
			continue
		}
		if m.Method == "noted" {
			sendNoted(out, m.ID)
			continue
		}
		if n, ok := strings.CutPrefix(m.Method, "burst "); ok {
			sendBurst(out, m.ID, must(strconv.Atoi(n)))
			continue
		}
		if m.Params == nil {
			m.Params = json.RawMessage("null")
		}
		out.Write(framed([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + string(m.Params) + `}`)))
	}
}

func framed(body []byte) []byte {
	return append([]byte("Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"), body...)
}

func unframed(r *bufio.Reader) ([]byte, error) {
	n := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			n, _ = strconv.Atoi(string(value))
		}
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

// serveJSONRPC2 is a server that uses sourcegraph/jsonrpc2. For each request "ask", it sends a
// request to its client.
func serveJSONRPC2() {
	h := func(ctx context.Context, c *jsonrpc2.Conn, r *jsonrpc2.Request) (any, error) {
		switch r.Method {
		case "initialize":
			return map[string]any{"capabilities": map[string]any{}}, nil
		case "echo":
			return r.Params, nil
		case "ask":
			var answer json.RawMessage
			err := c.Call(ctx, "client/ask", r.Params, &answer)
			return answer, err
		case "fail":
			return nil, &jsonrpc2.Error{Code: -5, Message: "no luck"}
		case "exit":
			os.Exit(0)
		}
		return nil, nil
	}
	conn := jsonrpc2.NewConn(context.Background(), jsonrpc2.NewBufferedStream(stream{os.Stdout, os.Stdin}, jsonrpc2.VSCodeObjectCodec{}),
		jsonrpc2.AsyncHandler(jsonrpc2.HandlerWithError(h)))
	<-conn.DisconnectNotify()
}
