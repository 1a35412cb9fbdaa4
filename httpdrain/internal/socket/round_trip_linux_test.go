//go:build !386

package socket_test

import (
	"io"
	"net"
	"testing"

	"github.com/swansong-go/swansong/httpdrain/internal/socket"
)

// RoundTrip returns an estimate for a TCP connection that has carried data, and none for a pipe.
func TestRoundTrip_ReturnsEstimateForTCPOnly(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for range 2 {
		client.Write([]byte("x"))
		io.ReadFull(server, make([]byte, 1))
		server.Write([]byte("y"))
		io.ReadFull(client, make([]byte, 1))
	}
	if rtt, ok := socket.RoundTrip(server); !ok || rtt <= 0 {
		t.Errorf("round-trip time %v, ok %v; want a positive time", rtt, ok)
	}
	pipe, other := net.Pipe()
	defer pipe.Close()
	defer other.Close()
	if rtt, ok := socket.RoundTrip(pipe); ok {
		t.Errorf("round-trip time of a pipe: %v, want none", rtt)
	}
}
