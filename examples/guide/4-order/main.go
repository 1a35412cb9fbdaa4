// Command 4-order stops its parts one after another: the server first, then the queue, then the file.
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
	name := flag.String("file", os.DevNull, "where the events go")
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
		ln, err := net.Listen("tcp", addr) // what can fail comes before what has to be stopped
		if err != nil {
			return err
		}
		// The stages derive from Work: the stop does not reach them by itself, InOrder tells them one by one.
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
			case <-r.Context().Done(): // the client has gone, or the drain was cut short
			}
		})
		store.Go(func(context.Context) { write(store, file, queue) })

		log.Printf("serving on %v", ln.Addr())
		served := make(chan error, 1)
		go func() {
			served <- httpdrain.Serve(web, &http.Server{Handler: mux}, ln)
			s.Shutdown() // should the listener have failed
		}()
		return errors.Join(graceful.InOrder(s, web, store), <-served)
	})
}

// write writes what is in the queue once in a while, and a last time when nobody is left who could add to it.
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
