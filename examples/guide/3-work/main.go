// Command 3-work finishes what its handlers have left to others.
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
			// The answer does not wait for the mail, but the end of the program does. r.Context() would end with the answer.
			scope, _ := ctxshutdown.FromContext(r.Context())
			mail := func(ctx context.Context) { sendMail(ctx, "welcome") }
			if !scope.Go(mail) {
				mail(scope.Work()) // told to stop: nothing new is begun, so before the answer
			}
			fmt.Fprintln(w, "welcome")
		})
		// What comes back again and again asks whether to go on. Its last round is always whole.
		s.Go(func(ctx context.Context) {
			for ctxshutdown.Sleep(s, time.Minute) {
				sendMail(ctx, "news")
			}
		})
		log.Printf("serving on %v", ln.Addr())
		return httpdrain.Serve(s, &http.Server{Handler: mux}, ln)
	})
}

func sendMail(ctx context.Context, what string) {
	if !ctxshutdown.Sleep(ctx, 200*time.Millisecond) { // SMTP, say; ctx ends if the drain is cut short
		log.Printf("mail not sent: %s", what)
		return
	}
	log.Printf("mail sent: %s", what)
}
