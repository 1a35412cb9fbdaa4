// Command 4-order is an HTTP service that stops its parts in order: first the server, then the
// writer that empties the queue into a file.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	name := flag.String("file", os.DevNull, "the file that events are written to")
	flag.Parse()
	err := run(*addr, *name)
	if err != nil {
		log.Print(err)
	}
	os.Exit(graceful.ExitCode(err))
}

func run(addr, name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		ln, err := net.Listen("tcp", addr) // Listen may fail, so call it before creating stages that must be stopped
		if err != nil {
			return err
		}
		// The stages derive from Work and not from s: a stop of s does not reach them.
		// InOrder stops them one by one.
		web, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("web"))
		store, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("store"))

		queue := make(chan string, 1000)
		mux := http.NewServeMux()
		mux.HandleFunc("POST /event", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			select {
			case queue <- string(body):
				w.WriteHeader(http.StatusAccepted)
			case <-r.Context().Done(): // the client has disconnected, or the drain was cut short
			}
		})
		store.Go(func(context.Context) { write(store, file, queue) })

		log.Printf("serving on %v", ln.Addr())
		served := make(chan error, 1)
		go func() {
			served <- httpdrain.Serve(web, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, ln)
			s.Shutdown() // if the listener has failed, stop the other stages too
		}()
		return errors.Join(graceful.InOrder(s, web, store), <-served)
	})
}

// write writes the events in the queue to the file once a second until ctx ends, and then a last
// time. By then the server has drained, so no more events arrive.
func write(ctx context.Context, file io.Writer, queue chan string) {
	for more := true; more; {
		more = ctxshutdown.Sleep(ctx, time.Second)
		out := bufio.NewWriter(file)
		for range len(queue) {
			fmt.Fprintln(out, <-queue)
		}
		if err := out.Flush(); err != nil {
			log.Print(err)
		}
	}
}
