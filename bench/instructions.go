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
)

// Instructions do not depend on who else uses the machine, so they tell what a time cannot: how far an operation is from
// its floor. They are counted by callgrind, which runs this program again with these variables set.
const (
	repeatVar = "SWANSONG_BENCH_REPEAT"
	timesVar  = "SWANSONG_BENCH_TIMES"
)

type counted struct {
	what   string
	repeat func(n int)
	large  bool // a thousand times as much as the others
}

func countable() []counted {
	return []counted{
		{what: "sync.WaitGroup Add + Done", repeat: (&waitGroup{}).run},
		{what: "Guard + Release, depth 4", repeat: guards{deep(4)}.run},
		{what: "TryGuard + Release, root", repeat: tries{deep(0)}.run},
		{what: "TryGuard + Release, depth 4", repeat: tries{deep(4)}.run},
		{what: "Err of a context.WithCancel", repeat: asks{cancellable()}.run},
		{what: "a loop over an iter.Seq, an element", repeat: func(n int) { sum(numbers(n)) }},
		{what: "the same through a wrapper that does nothing", repeat: func(n int) { sum(through(numbers(n))) }},
		{what: "Seq, an element", repeat: func(n int) { sum(ctxshutdown.Seq(deep(0), numbers(n))) }},
		{what: "the loop, with a look at ctx.Err in it", repeat: func(n int) { sumUntil(cancellable(), numbers(n)) }},
		{what: "the same through a wrapper that looks at ctx.Err", repeat: func(n int) { sum(asking(cancellable(), numbers(n))) }},
		{what: "Seq, an element, of a context that others may end", repeat: func(n int) { sum(ctxshutdown.Seq(cancellable(), numbers(n))) }},
		{what: "Read of a type of one's own through an interface", repeat: reads(&zeros{})},
		{what: "the same through another that does nothing", repeat: reads(&throughReader{&zeros{}})},
		{what: "the same through a Reader", repeat: reads(ctxshutdown.NewReader(deep(0), &zeros{}))},
		{what: "the same through a wrapper that counts who is inside", repeat: reads(&countingReader{r: &wakeable{}})},
		{what: "the same through a Reader, of a source that can be woken", repeat: reads(ctxshutdown.NewReader(deep(0), &wakeable{}))},
		{what: "the same Read through a wrapper that looks at ctx.Err", repeat: reads(&askingReader{cancellable(), &zeros{}})},
		{what: "the same through a Reader, of a context that others may end", repeat: reads(ctxshutdown.NewReader(cancellable(), &zeros{}))},
		{what: "HTTP/1.1 request for 2 bytes, client and server", repeat: exchanges((*http.Server).Serve), large: true},
		{what: "the same, served by httpdrain", repeat: exchanges(drained), large: true},
	}
}

// exchanges returns what sends requests over one connection to a server, one at a time.
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
			if _, err := conn.Read(response); err != nil { // it comes in one piece
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
	_ = cancel // it lasts as long as the program
	return ctx
}

// repeated does what callgrind is to count, if this is the run for that.
func repeated() bool {
	what := os.Getenv(repeatVar)
	if what == "" {
		return false
	}
	n, err := strconv.Atoi(os.Getenv(timesVar))
	all := countable()
	i := slices.IndexFunc(all, func(c counted) bool { return c.what == what })
	if err != nil || i < 0 {
		fmt.Fprintf(os.Stderr, "bench: %s and %s are for its own use\n", repeatVar, timesVar)
		os.Exit(2)
	}
	all[i].repeat(n)
	return true
}

const instructionNotes = `
## Instructions

Of one operation, counted by callgrind. They show the floors: TryGuard is a Guard whose word says that no stop has been warned of.
Of cache lines, each of Guard, TryGuard and Release writes one, that of the counting word. Guard and TryGuard read a pointer beside
it, and another line of the same scope, which nobody writes and which says whether it is traced. Of a request these are the
instructions outside of the kernel, which take less than half of its time.

Seq and a Reader are one more call for each element or Read, and in it a look at a flag, which lies where nobody counts. A wrapper
that does nothing is beside them: it takes about half of what they add. The rest is the look at the flag, and for a Reader one at the
count that its source has returned. That is for a scope which only scopes can end, below New(context.Background()), or a Work. For
other contexts, and for sources that can be woken, they are beside the wrappers whose times are in the table before this one.

`

// printInstructions prints nothing but a reason where there is no valgrind.
func printInstructions(w io.Writer) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: instructions are not counted, there is no valgrind")
		return
	}
	fmt.Fprint(w, instructionNotes)
	line(w, "operation", "instructions")
	line(w, "---", "---:")
	for _, c := range countable() {
		few, many := 200_000, 1_200_000
		if c.large {
			few, many = few/1000, many/1000
		}
		a, err1 := instructions(valgrind, c.what, few)
		b, err2 := instructions(valgrind, c.what, many)
		if err := cmp.Or(err1, err2); err != nil {
			fmt.Fprintln(os.Stderr, "bench: counting the instructions of", c.what+":", err)
			continue
		}
		line(w, c.what, fmt.Sprintf("%.0f", float64(b-a)/float64(many-few)))
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
		// It does not always survive the signals that the runtime sends to its own threads.
	}
	return 0, fmt.Errorf("valgrind fails again and again: %w", err)
}
