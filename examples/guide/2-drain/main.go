// Command 2-drain is an HTTP service that answers every request before it exits.
package main

import (
	"context"
	"flag"
	"fmt"
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
	flag.Parse()
	err := run(*addr)
	if err != nil {
		log.Print(err)
	}
	os.Exit(graceful.ExitCode(err)) // os.Exit skips deferred calls; main has none, and those of run have been made
}

func run(addr string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(200 * time.Millisecond)
		fmt.Fprintln(w, "hello")
	})
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		log.Printf("serving on %v", ln.Addr())
		return httpdrain.Serve(s, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, ln)
	})
}
