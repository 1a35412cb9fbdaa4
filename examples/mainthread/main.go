// Command mainthread has the loop on the main thread of the operating system, where windows, OpenGL and some C libraries
// insist on being used.
//
//	go run ./examples/mainthread [-for 1s]
//
// init locks the main goroutine to the main thread; Run has the loop take that goroutine, and everything else has
// goroutines of its own and posts. The window here is made of text: a frame is drawn by a timer on the main thread until -for
// is over, ^C is pressed or something panics there, and the window is closed on it in the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

func init() { runtime.LockOSThread() } // in init, which runs on the main thread

func main() {
	length := flag.Duration("for", time.Second, "how long to show it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *length, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mainthread:", err)
		os.Exit(1)
	}
}

// run shows the window. It has to be called on the main thread.
func run(ctx context.Context, length time.Duration, out io.Writer) error {
	w := &window{out: out}
	// The loop has this goroutine, and is over when Run returns, also after a panic: the window is closed on the same thread,
	// and no timer can use it after that. Posted, the close would be refused by a loop that a panic has stopped.
	defer w.close()
	loop := eventloop.New(context.Background(), eventloop.WithName("ui"), eventloop.WithOSThread(), eventloop.WithInit(w.open))
	return loop.Run(ctx, func(ctx context.Context) error {
		// A goroutine of its own, on any thread. What has to do with the window, it posts.
		if _, err := loop.Every(10*time.Millisecond, w.draw); err != nil {
			return err
		}
		loop.Post(func() { w.title("hello") })
		select {
		case <-time.After(length):
		case <-ctx.Done(): // ^C, or the loop was stopped
		}
		return nil // the loop drains before Run returns
	})
}

// A window counts how often it was used, and remembers the thread on which it was opened: any other is an error.
type window struct {
	out    io.Writer
	thread string // none: it is not open
	frames int
}

func (w *window) open() error {
	w.thread = thread()
	fmt.Fprintln(w.out, "opened on", w.thread)
	return nil
}

func (w *window) use() {
	if t := thread(); t != w.thread {
		panic(fmt.Sprintf("used on %s", t))
	}
}

func (w *window) title(s string) {
	w.use()
	fmt.Fprintln(w.out, "title:", s)
}

func (w *window) draw() {
	w.use()
	w.frames++
}

func (w *window) close() {
	if w.thread == "" {
		return
	}
	w.use()
	fmt.Fprintln(w.out, "closed on", w.thread)
	w.thread = ""
}
