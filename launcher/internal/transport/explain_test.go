package transport_test

import (
	"errors"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/transport"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Explain shows no text of package grpc about connections.
func TestExplain_ShowsNoTextOfPackageGRPC(t *testing.T) {
	for _, c := range []struct {
		code          codes.Code
		message, want string
	}{
		{codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /run/web-1.sock: connect: no such file or directory"`, "nothing listens on the socket"},
		{codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /run/web-1.sock: connect: connection refused"`, "nothing listens on the socket any more"},
		{codes.Unavailable, `connection error: desc = "transport: Error while dialing: the process has not reported the port at which it serves the protocol"`,
			"the process has not reported the port at which it serves the protocol"},
		{codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"`,
			"tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{codes.Unavailable, "error reading from server: EOF", "the connection was closed"},
		{codes.Unavailable, "error reading from server: read unix @->/run/web-1.sock: read: connection reset by peer", "the connection was closed"},
		{codes.Unavailable, "transport is closing", "the connection was closed"},
		{codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`, "the connection was closed"},
		{codes.Unavailable, "the connection is draining", "the connection was closed"},
		{codes.Unavailable, `closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: NO_ERROR`, "the connection was closed"},
		{codes.Unavailable, `connection error: desc = "error reading server preface: raw-read unix @->/run/web-1.sock: use of closed network connection"`,
			"the connection is accepted, but there is no answer"},
		{codes.Unavailable, `connection error: desc = "error reading server preface: http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`,
			"what listens on the socket does not serve gRPC"},
		{codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: certificate required"`, "remote error: tls: certificate required"},
		{codes.DeadlineExceeded, "context deadline exceeded", "no answer in time"},
		{codes.DeadlineExceeded, `context deadline exceeded while waiting for connections to become ready: last connection error: connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:5: connect: connection refused"`,
			"nothing listens on the socket any more"},
		{codes.DeadlineExceeded, `latest balancer error: connection error: desc = "transport: authentication handshake failed: tls: bad certificate"`, "tls: bad certificate"},
		{codes.Canceled, "context canceled", "the call was cancelled"},
		{codes.Unimplemented, "unknown service lifecycle", "the process does not implement the call"},
		{codes.Internal, "database: connection error: desc", "database: connection error: desc"},
	} {
		testkit.Equal(t, c.message, transport.Explain(status.Error(c.code, c.message)), c.want)
	}
	testkit.Equal(t, "another error", transport.Explain(errors.New("other")), "other")
}
