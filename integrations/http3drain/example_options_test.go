package http3drain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/integrations/http3drain"
)

// A program that also serves HTTP/1.1 and HTTP/2 tells those clients about HTTP/3, until it begins
// to shut down.
func ExampleAltSvc() {
	s := ctxshutdown.New(context.Background())
	mux := http.NewServeMux()
	// A real program passes this server to httpdrain.ServeTLS.
	srv := &http.Server{Handler: http3drain.AltSvc(s, 443, mux)}
	show := func() {
		w := httptest.NewRecorder()
		srv.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Header().Get("Alt-Svc"))
	}
	show()
	s.Shutdown()
	show()
	// Output:
	// h3=":443"; ma=86400
	// clear
}

func ExampleListenAndServe() {
	s := ctxshutdown.New(context.Background())
	srv := &http3.Server{
		Addr:      "127.0.0.1:0",
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}},
	}
	served := make(chan error, 1)
	go func() {
		served <- http3drain.ListenAndServe(s, srv, http3drain.WithName("quic"), http3drain.KeepInLameDuck())
	}()
	for s.GuardCount() == 0 { // wait until the server has begun
	}
	fmt.Println(s.GuardReport())
	s.ShutdownCause(errors.New("a new version"))
	fmt.Println(<-served)
	// Output:
	// 1 guard: quic ×1
	// <nil>
}

// The name of the server's scope appears in reports.
func ExampleWithName() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	srv := &http3.Server{Addr: "127.0.0.1:0", TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
	served := make(chan error, 1)
	go func() { served <- http3drain.ListenAndServe(s, srv, http3drain.WithName("quic")) }()
	for s.GuardCount() == 0 { // wait until the server has begun
	}
	fmt.Println(s.GuardReport())
	s.Shutdown()
	fmt.Println(<-served)
	// Output:
	// 1 guard: app/quic ×1
	// <nil>
}

// A server that is alone keeps its clients in the lame duck phase: there is no other server to
// which they could move.
func ExampleKeepInLameDuck() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		srv := &http3.Server{Addr: "127.0.0.1:0", TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
		context.AfterFunc(s, func() { fmt.Println("stopped") })
		time.AfterFunc(10*time.Millisecond, func() { s.Shutdown() }) // in a program, a signal stops the scope
		return http3drain.ListenAndServe(s, srv, http3drain.KeepInLameDuck())
	}, graceful.WithLameDuck(time.Second))
	fmt.Println(err)
	// Output:
	// stopped
	// <nil>
}

// A request that takes too long is listed in the error.
func ExampleServe() {
	s := ctxshutdown.New(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /export/{year}", func(w http.ResponseWriter, r *http.Request) {
		s.Force(errors.New("the export takes too long"))
		time.Sleep(50 * time.Millisecond) // the handler does not notice that its context has ended
	})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := &http3.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
	tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.Close()
	go (&http.Client{Transport: tr}).Get("https://" + pc.LocalAddr().String() + "/export/2026")
	err = http3drain.Serve(s, srv, pc)
	var cut *httpdrain.CutError
	if errors.As(err, &cut) {
		fmt.Println(cut.Cause)
		for _, request := range cut.Cut {
			fmt.Println(request.Route)
		}
	}
	// Output:
	// the export takes too long
	// GET /export/{year}
}
