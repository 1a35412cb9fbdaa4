package docs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// The functions below are the listings that docs/migrate.md shows under "after".

func fetchAll(ctx context.Context, urls []string) error {
	g := ctxshutdown.NewGroup(ctx)
	g.SetLimit(4)
	for _, url := range urls {
		g.Go(func(ctx context.Context) error { return fetch(ctx, url) })
	}
	return g.Wait()
}

func fetch(_ context.Context, url string) error {
	if url == "" {
		return errors.New("no address")
	}
	return nil
}

func serveActors(ctx context.Context, srv *http.Server, ln net.Listener) error {
	return graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		g := ctxshutdown.NewGroup(s)
		g.Go(func(ctx context.Context) error {
			part, _ := ctxshutdown.FromContext(ctx) // the group's own scope
			return httpdrain.Serve(part, srv, ln)
		})
		g.Go(poll)
		return g.Wait()
	})
}

func poll(ctx context.Context) error {
	for ctxshutdown.Sleep(ctx, time.Minute) {
		log.Print("polled")
	}
	return nil
}

type follower struct {
	scope *ctxshutdown.Swansong
}

func follow(ctx context.Context, lines <-chan string, out io.Writer) *follower {
	s, _ := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("follower"))
	s.Go(func(context.Context) {
		for line := range ctxshutdown.All(s, lines) {
			fmt.Fprintln(out, line)
		}
	})
	return &follower{scope: s}
}

func (f *follower) Stop(ctx context.Context) error { return f.scope.Shutdown().Wait(ctx) }

func keepRunning(s *ctxshutdown.Swansong, name string, f func(context.Context) error) {
	part, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	_ = cancel // not needed: the scope part ends when its parent s ends
	part.Go(func(context.Context) {
		for wait := time.Second; ; wait = min(2*wait, time.Minute) {
			err := f(part)
			if part.Err() != nil {
				return
			}
			log.Printf("%s ended, once more in %v: %v", name, wait, err)
			if !ctxshutdown.Sleep(part, wait) {
				return
			}
		}
	})
}

func Example_migrate() {
	fmt.Println(fetchAll(context.Background(), []string{"a", "b", ""}))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stop() })}
	go func() {
		if answer, err := http.Get("http://" + ln.Addr().String()); err == nil {
			answer.Body.Close()
		}
	}()
	fmt.Println(serveActors(ctx, srv, ln))

	lines := make(chan string)
	f := follow(context.Background(), lines, log.Writer())
	fmt.Println(f.Stop(context.Background()))

	s := ctxshutdown.New(context.Background())
	runs := make(chan int, 1)
	keepRunning(s, "part", func(ctx context.Context) error {
		runs <- 1
		<-ctx.Done()
		return nil
	})
	<-runs
	fmt.Println(s.Shutdown().Wait(context.Background()))
	// Output:
	// no address
	// <nil>
	// <nil>
	// <nil>
}
