// Command 3-work is an HTTP service that finishes the background work of its handlers before it
// exits.
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
	os.Exit(graceful.ExitCode(err))
}

func run(addr string) error {
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.HandleFunc("POST /signup", func(w http.ResponseWriter, r *http.Request) {
			// The response does not wait for the mail, but the program does before it exits.
			// r.Context() is the wrong context for the mail: it is cancelled after the response.
			scope, _ := ctxshutdown.FromContext(r.Context())
			mail := func(ctx context.Context) { sendMail(ctx, "welcome") }
			if !scope.Go(mail) {
				mail(scope.Work()) // the scope was stopped: send the mail before the response
			}
			fmt.Fprintln(w, "welcome")
		})
		// A periodic job checks s between two runs. A stop does not interrupt a run, because ctx is
		// s.Work().
		s.Go(func(ctx context.Context) {
			for ctxshutdown.Sleep(s, time.Minute) {
				sendMail(ctx, "news")
			}
		})
		log.Printf("serving on %v", ln.Addr())
		return httpdrain.Serve(s, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, ln)
	})
}

func sendMail(ctx context.Context, what string) {
	if !ctxshutdown.Sleep(ctx, 200*time.Millisecond) { // stands for SMTP; ctx ends if the drain is cut short
		log.Printf("mail not sent: %s", what)
		return
	}
	log.Printf("mail sent: %s", what)
}
