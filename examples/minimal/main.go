// Command minimal is a complete HTTP service that answers every request before it exits. Send
// requests with curl, and stop it with ^C.
//
//	go run ./examples/minimal [-addr 127.0.0.1:8080]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
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
	err := serve(*addr)
	if err != nil {
		log.Print(err)
	}
	os.Exit(graceful.ExitCode(err))
}

func serve(addr string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	// What is deferred here, such as the closing of a database, runs on every path.
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		mux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.WithToken(os.Getenv("DEBUG_TOKEN"))))
		ln, err := graceful.Listen("tcp", addr)
		if err != nil {
			return err
		}
		graceful.Ready(s)
		return httpdrain.Serve(s, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, ln)
	}, graceful.WithLameDuck(3*time.Second))
}
