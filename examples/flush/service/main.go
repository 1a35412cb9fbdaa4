// Command service counts the requests that it has answered, and saves their number when it is
// stopped. It sends the requests itself.
//
//	go run ./examples/flush/service -out requests.txt
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/examples/flush/store"
	"github.com/swansong-go/swansong/httpdrain"
)

func main() { store.Main(serve) }

func serve(s *ctxshutdown.Swansong, file string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var answered atomic.Int64
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		fmt.Fprintln(w, "hello")
	})}
	s.Go(func(context.Context) {
		for s.Err() == nil {
			if resp, err := http.Get("http://" + ln.Addr().String()); err == nil {
				resp.Body.Close()
			}
		}
	})
	fmt.Println("ready")
	err = httpdrain.Serve(s, srv, ln) // Serve returns when s has been stopped and every request has been answered
	return errors.Join(err, store.Save(s.Work(), file, int(answered.Load())))
}
