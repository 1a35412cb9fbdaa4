package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/figures"
)

// Unlike times, numbers of instructions do not depend on the load of the machine. They show how far
// an operation is from the same operation written by hand. callgrind counts them: it runs this
// program again, with these environment variables set.
const (
	repeatVar = "SWANSONG_BENCH_REPEAT"
	timesVar  = "SWANSONG_BENCH_TIMES"
)

type counted struct {
	what   string
	repeat func(n int)
	// the operation takes about a thousand times as many instructions as others, so run gets n/1000
	large bool
}

func countable() []counted {
	return []counted{
		{what: "sync.WaitGroup Add + Done", repeat: (&waitGroup{}).run},
		{what: "Guard + Release, depth 4", repeat: guards{deep(4)}.run},
		{what: "TryGuard + Release, root", repeat: tries{deep(0)}.run},
		{what: "TryGuard + Release, depth 4", repeat: tries{deep(4)}.run},
		{what: "Err of a context.WithCancel", repeat: asks{cancellable()}.run},
		{what: "a loop over an iter.Seq, per element", repeat: func(n int) { sum(numbers(n)) }},
		{what: "the loop with ctx.Err() in its body", repeat: func(n int) { sumUntil(cancellable(), numbers(n)) }},
		{what: "the same, over a sequence that passes the elements of another one on", repeat: func(n int) { sumUntil(cancellable(), passed(numbers(n))) }},
		{what: "Seq, per element", repeat: func(n int) { sum(ctxshutdown.Seq(cancellable(), numbers(n))) }},
		{what: "the loop with ctx.Err() in its body, over an inlined sequence", repeat: func(n int) { sumNumbersUntil(cancellable(), n) }},
		{what: "Seq of an inlined sequence, per element", repeat: func(n int) { sumNumbers(cancellable(), n) }},
		{what: "Read through an interface", repeat: reads(&zeros{})},
		{what: "the same through a wrapper that checks ctx.Err()", repeat: reads(&checkingReader{cancellable(), &zeros{}})},
		{what: "the same through a Reader", repeat: reads(ctxshutdown.NewReader(deep(0), &zeros{}))},
		{what: "sync.WaitGroup: Go, 100 goroutines and a Wait", repeat: func(n int) { goWaitGroup(n*goBatch, goBatch) }, large: true},
		{what: "scope: Go, 100 goroutines and a stop", repeat: func(n int) { goScope(n*goBatch, goBatch) }, large: true},
		{what: "scope: Work, and a stop", repeat: endWork, large: true},
		{what: "Group: Go, 100 goroutines and a Wait", repeat: func(n int) { goGroup(n*goBatch, goBatch) }, large: true},
		{what: "HTTP/1.1 request for 2 bytes, client and server", repeat: exchanges((*http.Server).Serve), large: true},
		{what: "the same, served by httpdrain", repeat: exchanges(drained), large: true},
	}
}

// exchanges returns a function that sends n requests to a server, one at a time over one
// connection.
func exchanges(serve func(*http.Server, net.Listener) error) func(n int) {
	return func(n int) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		go serve(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })}, ln)
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			panic(err)
		}
		request, response := []byte("GET / HTTP/1.1\r\nHost: test\r\n\r\n"), make([]byte, 4096)
		for range n {
			conn.Write(request)
			if _, err := conn.Read(response); err != nil { // one Read suffices, because the response arrives in one piece
				panic(err)
			}
		}
	}
}

func drained(srv *http.Server, ln net.Listener) error { return httpdrain.Serve(deep(0), srv, ln) }

type asks struct{ ctx context.Context }

//go:noinline
func (b asks) run(n int) {
	for range n {
		if b.ctx.Err() != nil {
			panic("ended")
		}
	}
}

func cancellable() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	_ = cancel // cancel is not called, because the context is used until the process ends
	return ctx
}

// repeatForCallgrind repeats the operation that callgrind is counting. It returns false at once if
// this is not a run under callgrind.
func repeatForCallgrind() bool {
	what := os.Getenv(repeatVar)
	if what == "" {
		return false
	}
	n, err := strconv.Atoi(os.Getenv(timesVar))
	all := countable()
	i := slices.IndexFunc(all, func(c counted) bool { return c.what == what })
	if err != nil || i < 0 {
		fmt.Fprintf(os.Stderr, "bench: %s or %s has an unknown value; unset them, bench sets them for its own processes\n", repeatVar, timesVar)
		os.Exit(2)
	}
	all[i].repeat(n)
	return true
}

const instructionNotes = `
## Instructions

Instructions of one operation, counted by callgrind. TryGuard is a Guard that also checks a bit of the counting word,
which says that no stop has been announced. Guard, TryGuard and Release each write one cache line, that of the counting
word. Guard and TryGuard read a pointer on the same line, and another line of the scope that is never written and says
whether the scope is traced. For HTTP requests, the instructions of the kernel are not counted; they take more than half
of the time.

Seq and a Reader check their context with ctx.Err() for each element or Read, as a user would. That takes one more call,
and a Reader also checks whether it is closed and what its source has returned. Every function that makes a sequence from
another one takes this call, unless the compiler knows the inner sequence (slices.Values, maps.Keys, a function that
returns a function literal). Then it inlines Seq, the sequence and the body of the loop into one function.

Nearly all instructions of WaitGroup.Go are those of the Go runtime for a new goroutine. The scope executes more for its
own creation and stop, for checking whether it was stopped, and for its guard. The runtime also looks up the name of the
function of each goroutine, which takes longer for the names of this module because they are longer.

`

// printInstructions prints the numbers of instructions. Without valgrind it only writes a line to
// stderr.
func printInstructions(w io.Writer) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: instructions are not counted: valgrind is not installed")
		return
	}
	fmt.Fprint(w, instructionNotes)
	figures.Row(w, "operation", "instructions")
	figures.Row(w, "---", "---:")
	for _, c := range countable() {
		few, many := 200_000, 1_200_000
		if c.large {
			few, many = few/1000, many/1000
		}
		a, err1 := instructions(valgrind, c.what, few)
		b, err2 := instructions(valgrind, c.what, many)
		if err := cmp.Or(err1, err2); err != nil {
			fmt.Fprintln(os.Stderr, "bench: count the instructions of", c.what+":", err)
			continue
		}
		figures.Row(w, c.what, fmt.Sprintf("%.0f", float64(b-a)/float64(many-few)))
	}
}

var collected = regexp.MustCompile(`Collected\s*:\s*(\d+)`)

func instructions(valgrind, what string, times int) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	for range 5 {
		cmd := exec.Command(valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", self)
		cmd.Env = append(os.Environ(), repeatVar+"="+what, timesVar+"="+strconv.Itoa(times), "GOGC=off", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
		var out []byte
		if out, err = cmd.CombinedOutput(); err == nil {
			if m := collected.FindSubmatch(out); m != nil {
				return strconv.Atoi(string(m[1]))
			}
		}
		// valgrind sometimes crashes when the runtime sends signals to its own threads.
	}
	return 0, fmt.Errorf("valgrind failed five times: %w", err)
}
