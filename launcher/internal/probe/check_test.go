package probe_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// check makes one check, and returns the text of its error, or "" for success.
func check(t *testing.T, p spec.Probe) string {
	t.Helper()
	err := probe.NewCheck(func(_ context.Context, args []string) error {
		if args[0] == "fail" {
			return errors.New("exit status 1")
		}
		return nil
	})(t.Context(), p)
	if err != nil {
		return err.Error()
	}
	return ""
}

// unused returns a port at which nothing listens.
func unused(t *testing.T) spec.Port {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return portOf(ln.Addr().String())
}

func portOf(address string) spec.Port {
	_, port, _ := net.SplitHostPort(address)
	return spec.Port(port)
}

func TestCheck_HTTPSucceedsByStatusOfResponse(t *testing.T) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {})
	mux.HandleFunc("/busy", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) })
	mux.HandleFunc("/to/ok", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/to/busy", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/busy", http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "kv.example.com" || r.Header.Get("X-Probe") != "yes" || r.FormValue("q") != "1" {
			w.WriteHeader(400)
		}
	})
	mux.HandleFunc("/hangup", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	headers := []spec.HTTPHeader{{Name: "Host", Value: "kv.example.com"}, {Name: "X-Probe", Value: "yes"}}
	for path, want := range map[string]string{"/ok": "", "/busy": "HTTP status 503", "/to/ok": "", "/to/busy": "HTTP status 503", "/round": "more than 10 redirects",
		"/away": "", "/headers?q=1": "", "/headers": "HTTP status 400", "/missing": "HTTP status 404", "/hangup": "EOF"} {
		got := check(t, spec.Probe{HTTPGet: spec.HTTPGetAction{Path: path, Port: portOf(server.Listener.Addr().String()), Scheme: "HTTP", Headers: headers}})
		testkit.Equal(t, path, got, want)
	}
	secure := httptest.NewTLSServer(mux) // the certificate of this server is not trusted, and a probe does not check it
	defer secure.Close()
	testkit.Equal(t, "HTTPS", check(t, spec.Probe{HTTPGet: spec.HTTPGetAction{Path: "/ok", Port: portOf(secure.Listener.Addr().String()), Host: "localhost", Scheme: "HTTPS"}}), "")
	testkit.Equal(t, "nothing listens", check(t, spec.Probe{HTTPGet: spec.HTTPGetAction{Path: "/ok", Port: unused(t), Scheme: "HTTP"}}), "connection refused")
}

// When a server has stopped listening, it cannot answer a probe over the connection of an earlier
// probe.
func TestCheck_HTTPUsesNewConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	p := spec.Probe{HTTPGet: spec.HTTPGetAction{Path: "/", Port: portOf(server.Listener.Addr().String()), Scheme: "HTTP"}}
	testkit.Equal(t, "while it listens", check(t, p), "")
	server.Listener.Close()
	testkit.Equal(t, "after it has stopped listening", check(t, p), "connection refused")
}

func TestCheck_TCPSucceedsIfAServerListens(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	testkit.Equal(t, "a listener", check(t, spec.Probe{TCPSocket: spec.TCPSocketAction{Port: portOf(ln.Addr().String())}}), "")
	testkit.Equal(t, "another host", check(t, spec.Probe{TCPSocket: spec.TCPSocketAction{Port: portOf(ln.Addr().String()), Host: "127.0.0.2"}}), "connection refused")
	testkit.Equal(t, "nothing listens", check(t, spec.Probe{TCPSocket: spec.TCPSocketAction{Port: unused(t)}}), "connection refused")
}

func TestCheck_ExecSucceedsIfCommandExitsWith0(t *testing.T) {
	testkit.Equal(t, "success", check(t, spec.Probe{Exec: spec.ExecAction{Command: []string{"true"}}}), "")
	testkit.Equal(t, "failure", check(t, spec.Probe{Exec: spec.ExecAction{Command: []string{"fail"}}}), "exit status 1")
}

func TestCheck_GRPCSucceedsIfServiceIsServing(t *testing.T) {
	serve := func(register func(*grpc.Server)) spec.Port {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		register(s)
		done := make(chan struct{})
		go func() { defer close(done); s.Serve(ln) }()
		t.Cleanup(func() { s.Stop(); <-done })
		return portOf(ln.Addr().String())
	}
	state := health.NewServer()
	state.SetServingStatus("kv", healthpb.HealthCheckResponse_NOT_SERVING)
	port := serve(func(s *grpc.Server) { healthpb.RegisterHealthServer(s, state) })
	bare := serve(func(*grpc.Server) {})
	notGRPC := httptest.NewServer(http.NotFoundHandler())
	defer notGRPC.Close()
	for _, c := range []struct {
		what, service string
		port          spec.Port
		want          string
	}{
		{"serving", "", port, ""},
		{"not serving", "kv", port, "the server reports NOT_SERVING, not SERVING"},
		{"unknown service", "other", port, `grpc.health.v1 does not know the service "other"`},
		{"no health service", "", bare, "the server does not have the service grpc.health.v1.Health"},
		{"no gRPC", "", portOf(notGRPC.Listener.Addr().String()), "the port does not serve gRPC"},
		{"nothing listens", "", unused(t), "connection refused"},
	} {
		testkit.Equal(t, c.what, check(t, spec.Probe{GRPC: spec.GRPCAction{Port: c.port, Service: c.service}}), c.want)
	}
}

// No kind of check waits longer than its context.
func TestCheck_EndsWithItsContextIfServerHangs(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections into the queue of this listener, but no request is answered
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, p := range []spec.Probe{{HTTPGet: spec.HTTPGetAction{Path: "/", Port: portOf(ln.Addr().String()), Scheme: "HTTP"}},
		{GRPC: spec.GRPCAction{Port: portOf(ln.Addr().String())}}} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- probe.NewCheck(nil)(ctx, p) }()
		cancel()
		if err := <-done; err == nil || strings.Contains(err.Error(), "dial") {
			t.Errorf("%s: %v", p.Describe(), err)
		}
	}
}
