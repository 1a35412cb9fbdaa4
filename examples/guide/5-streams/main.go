// Command 5-streams is an HTTP service whose streams send a last event and end when it is stopped.
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
	mux := http.NewServeMux()
	mux.HandleFunc("GET /clock", clock)
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		log.Printf("serving on %v", ln.Addr())
		return httpdrain.Serve(s, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, ln, httpdrain.WithPacing(50))
	})
}

// clock answers with a stream of server-sent events.
func clock(w http.ResponseWriter, r *http.Request) {
	scope, _ := ctxshutdown.FromContext(r.Context())
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		fmt.Fprintf(w, "data: %v\n\n", time.Now().Format(time.TimeOnly))
		http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-scope.Done(): // the service is stopped, but r.Context() is not done, so a last event can be sent
			fmt.Fprint(w, "event: bye\nretry: 1000\ndata: back in a second\n\n")
			return
		case <-r.Context().Done(): // the client has disconnected
			return
		}
	}
}
