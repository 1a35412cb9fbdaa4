// Command 6-time is an HTTP service that asks for more time when a request takes longer than the
// drain may take.
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
	mux.HandleFunc("GET /export", export)
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		log.Printf("serving on %v", ln.Addr())
		return httpdrain.Serve(s, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, ln)
	}, graceful.WithSoft(time.Second), graceful.WithMaxExtension(30*time.Second))
}

const (
	rows    = 10
	rowTime = 200 * time.Millisecond
)

// export sends the rows one by one.
func export(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context() // ctx ends when the drain is cut short, and when the client disconnects
	scope, _ := ctxshutdown.FromContext(ctx)
	stopped, extended := scope.Done(), false
	for i := range rows {
		select {
		case <-stopped:
			if !extended { // ask once for the time that all remaining rows need, with a margin
				extended = true
				granted := graceful.Extend(ctx, time.Duration(rows-i)*4*rowTime, "an export")
				log.Printf("extension granted: %v", granted > 0)
			}
		default:
		}
		if !ctxshutdown.Sleep(ctx, rowTime) {
			log.Printf("export cut short after row %d: %v", i, context.Cause(ctx))
			return
		}
		fmt.Fprintln(w, "row", i)
		http.NewResponseController(w).Flush()
	}
}
