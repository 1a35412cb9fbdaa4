package http3drain_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/http3drain"
)

func Example() {
	app := ctxshutdown.New(context.Background()) // in main, use the scope of graceful.Run
	defer app.Shutdown()

	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := &http3.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}},
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello over ", r.Proto) }),
	}
	served := make(chan error, 1)
	go func() { served <- http3drain.Serve(app, srv, pc) }()

	tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.Close()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + pc.LocalAddr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(string(body), err)

	app.Shutdown()
	fmt.Println("drained:", <-served)
	// Output:
	// hello over HTTP/3.0 <nil>
	// drained: <nil>
}
