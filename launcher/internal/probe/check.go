package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/swansong-go/swansong/launcher/internal/spec"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// host is where a process is probed if the probe names no host. The kubelet takes the address of
// the pod; a process of the launcher has none of its own.
const host = "127.0.0.1"

// NewCheck returns the function that makes one check of a probe, by the method that the probe
// names. The function execute runs a command, and returns an error if it does not exit with 0.
//
// A probe has one method, which the configuration has checked. The error of a check is the cause
// alone, in plain words: Watch adds which probe it was.
func NewCheck(execute func(ctx context.Context, args []string) error) Check {
	return func(ctx context.Context, p spec.Probe) error {
		switch {
		case p.HTTPGet.Port != "":
			return checkHTTP(ctx, p.HTTPGet)
		case p.TCPSocket.Port != "":
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(cmp.Or(p.TCPSocket.Host, host), string(p.TCPSocket.Port)))
			if err != nil {
				return plain(err)
			}
			return conn.Close()
		case p.GRPC.Port != "":
			return checkGRPC(ctx, p.GRPC)
		}
		return execute(ctx, p.Exec.Command)
	}
}

// httpTransport makes a connection for each request, as the kubelet does: a probe must not succeed
// because of an old connection. Certificates are not verified, because a process rarely has one for
// the address at which it is probed.
var httpTransport = &http.Transport{DisableKeepAlives: true, DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	MaxResponseHeaderBytes: 64 << 10}

// maxRedirects is the number of redirects that the kubelet follows.
const maxRedirects = 10

// checkHTTP succeeds if the answer has a status of 200 to 399, as for the kubelet. A redirect to
// another host is not followed, and its own status counts, which is a success. The body is not
// read.
func checkHTTP(ctx context.Context, h spec.HTTPGetAction) error {
	u, err := url.Parse(h.Path)
	if err != nil {
		return fmt.Errorf("the path %q is not valid in a URL", h.Path)
	}
	u.Scheme, u.Host = strings.ToLower(h.Scheme), net.JoinHostPort(cmp.Or(h.Host, host), string(h.Port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "swansong-launcher")
	req.Header.Set("Accept", "*/*")
	// Headers of the probe replace User-Agent and Accept. Package net/http takes the header Host
	// from the field req.Host.
	for _, header := range h.Headers {
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
		}
		req.Header.Set(header.Name, header.Value)
	}
	client := http.Client{Transport: httpTransport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != u.Hostname() { // a redirect to another host is not followed, because its answer says nothing about the process
			return http.ErrUseLastResponse
		}
		if len(via) >= maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return plain(err)
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	return nil
}

// checkGRPC succeeds if the health service reports SERVING for the service, which may be empty for
// the server as a whole. It uses no TLS, as the kubelet.
func checkGRPC(ctx context.Context, g spec.GRPCAction) error {
	// The connection is made here, because the errors of package grpc do not say in plain words why
	// one cannot be made.
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, string(g.Port)))
	if err != nil {
		return plain(err)
	}
	dialed := false
	conn, err := grpc.NewClient("passthrough:///"+raw.RemoteAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent("swansong-launcher"), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			// Package grpc calls this function again only if the connection was lost. The second
			// call fails: otherwise grpc would connect again, and the check would fail only at its
			// timeout.
			if dialed {
				return nil, errors.New("the connection was closed")
			}
			dialed = true
			return raw, nil
		}))
	if err != nil {
		raw.Close()
		return err
	}
	defer raw.Close()
	defer conn.Close()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: g.Service})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return errors.New("the server does not have the service grpc.health.v1.Health")
	case codes.NotFound:
		return fmt.Errorf("grpc.health.v1 does not know the service %q", g.Service)
	case codes.Unavailable:
		return errors.New("the port does not serve gRPC")
	default:
		return fmt.Errorf("gRPC error %v", status.Code(err))
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the server reports %v, not SERVING", answer.GetStatus())
	}
	return nil
}

// plain returns the cause of an error of package net or net/http without the steps that have led to
// it: "connection refused" instead of `Get "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect:
// connection refused`.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err
}
