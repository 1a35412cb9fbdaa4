// Command mainthread runs an event loop on the main thread of the process, as GUI toolkits, OpenGL
// and some C libraries require.
//
//	go run ./examples/mainthread [-for 1s]
//
// init locks the main goroutine to the main thread, and Run executes the loop on that goroutine.
// All other code runs on other goroutines and posts to the loop. The window of this example is
// text: a timer draws frames on the main thread until the time of -for is over, ^C is pressed, or a
// callback panics. Then the window is closed on the same thread.
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

func init() { runtime.LockOSThread() } // the Go runtime runs init functions on the main thread, and this one keeps main there

func main() {
	duration := flag.Duration("for", time.Second, "how long to show the window")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *duration, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mainthread:", err)
		os.Exit(1)
	}
}

// run shows the window for the given time, or until ctx ends. It must be called on the main thread.
func run(ctx context.Context, duration time.Duration, out io.Writer) error {
	w := &window{out: out}
	// When Run returns, also after a panic, the loop has ended and its goroutine is this one. So
	// close runs on the same thread as open, and no timer can use the window afterwards. A close
	// that is posted to the loop instead would be refused after a panic.
	defer w.close()
	loop := eventloop.New(context.Background(), eventloop.WithName("ui"), eventloop.WithOSThread(), eventloop.WithInit(w.open),
		eventloop.WithPanicHandler(func(*eventloop.PanicError) (resume bool) { return false })) // Run returns a panic as an error
	return loop.Run(ctx, func(ctx context.Context) error {
		// This function runs on another goroutine and thread. It posts what uses the window.
		if _, err := loop.Every(10*time.Millisecond, w.draw); err != nil {
			return err
		}
		loop.Post(func() { w.title("hello") })
		select {
		case <-time.After(duration):
		case <-ctx.Done(): // the user pressed ^C, or the loop was stopped
		}
		return nil // the loop drains before Run returns
	})
}

// A window may be used only on the thread that has opened it. On any other thread its methods
// panic.
type window struct {
	out    io.Writer
	thread string // name of the thread that has opened the window, or "" if it is closed
	frames int    // number of frames that have been drawn in the window
}

func (w *window) open() error {
	w.thread = thread()
	fmt.Fprintln(w.out, "opened on", w.thread)
	return nil
}

func (w *window) checkThread() {
	if t := thread(); t != w.thread {
		panic(fmt.Sprintf("a method of the window was called on %s; call it on %s, which has opened the window", t, w.thread))
	}
}

func (w *window) title(s string) {
	w.checkThread()
	fmt.Fprintln(w.out, "title:", s)
}

func (w *window) draw() {
	w.checkThread()
	w.frames++
}

func (w *window) close() {
	if w.thread == "" {
		return
	}
	w.checkThread()
	fmt.Fprintln(w.out, "closed on", w.thread)
	w.thread = ""
}
