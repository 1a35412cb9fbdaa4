//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/load"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// probedProcess is a server that does not know the launcher: it serves HTTP and grpc.health.v1 at
// its port, and drains at SIGTERM. It is unhealthy if HEALTH is bad.
func probedProcess(port string) error {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	isBad := os.Getenv("HEALTH") == "bad"
	state := health.NewServer()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond)
		fmt.Fprintln(w, os.Getpid())
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if isBad {
			http.Error(w, "bad", http.StatusServiceUnavailable)
		}
	})
	if isBad {
		state.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	}
	rpc := grpc.NewServer()
	healthpb.RegisterHealthServer(rpc, state)
	srv := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err = httpdrain.Serve(ctxshutdown.New(signals), srv, ln, httpdrain.WithLinger(2*time.Second, 2*time.Second))
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, ctxshutdown.ErrShutdown) {
		return nil
	}
	return err
}

// A routes value is a router. Clients connect only to processes that it has.
type routes struct {
	mu    sync.Mutex
	ports map[string]int // port of each process, by its id
	added []string
}

func (r *routes) Add(_ context.Context, i launcher.Instance) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ports[i.ID], r.added = i.Port, append(r.added, i.ID)
	return nil
}

func (r *routes) Remove(_ context.Context, i launcher.Instance) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ports, i.ID)
	return nil
}

// dial connects to a process that is registered, and keeps it registered until the connection is
// made.
func (r *routes) dial(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, port := range r.ports {
		return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
	}
	return nil, errors.New("no process is registered")
}

// probeKinds are the ways in which a probe can check a process. The command of the probe exec has
// the environment of the process, and so its variable HEALTH.
var probeKinds = []struct {
	name  string
	probe launcher.Probe
}{
	{"httpGet", launcher.Probe{HTTPGet: launcher.HTTPGetAction{Path: "/healthz", Port: "{port}"}}},
	{"tcpSocket", launcher.Probe{TCPSocket: launcher.TCPSocketAction{Port: "{port}"}}},
	{"exec", launcher.Probe{Exec: launcher.ExecAction{Command: []string{"/bin/bash", "-c", `test "$HEALTH" != bad && exec 3<>/dev/tcp/127.0.0.1/{port}`}}}},
	{"grpc", launcher.Probe{GRPC: launcher.GRPCAction{Port: "{port}"}}},
}

var probeRoles = []string{"startupProbe", "readinessProbe", "livenessProbe"}

// A probing is what was measured during one roll of a group whose processes have a probe.
type probing struct {
	kind, role string
	fails      bool
	requests   int
	lost       []error
	longest    time.Duration
	took       time.Duration
	whole      bool // all processes were replaced
	ready      int  // processes that are ready after the roll
}

// probedGroup returns a group of servers with one probe. kind is an index of probeKinds, and role
// is 0 for the startup probe, 1 for the readiness probe and 2 for the liveness probe. If fails is
// set, the probe of the servers fails.
func probedGroup(kind, role int, fails bool) launcher.GroupConfig {
	g := runners("g", 2)
	g.Command, g.Protocol = []string{g.Command[0], "{port}"}, launcher.Auto
	g.Env = []string{"LAUNCHER_MEASURE_ROLE=probed"}
	g.Shutdown.DeregisterDelay = 50 * time.Millisecond
	p := probeKinds[kind].probe
	p.Period, p.FailureThreshold = 50*time.Millisecond, 3
	if role == 0 && !fails { // a startup probe fails until the process has started, and must not end the process before that
		p.FailureThreshold = 600
	}
	if role == 2 { // without a readiness probe, a process would count as ready after a second, even if a busy machine has not started it yet
		g.ReadinessProbe = launcher.Probe{HTTPGet: launcher.HTTPGetAction{Port: "{port}"}, Period: 50 * time.Millisecond}
		p.InitialDelay = time.Second
	}
	if fails {
		g.Env = append(g.Env, "HEALTH=bad")
		if p.TCPSocket.Port != "" {
			p.TCPSocket.Port = "1"
		}
		if role == 2 { // the liveness probe fails after the process has become ready, but before it counts as available
			p.InitialDelay, g.MinReady = 1500*time.Millisecond, 10*time.Second
		}
		if role == 1 {
			g.HealthCheckTimeout = 2 * time.Second
		}
	}
	*[]*launcher.Probe{&g.StartupProbe, &g.ReadinessProbe, &g.LivenessProbe}[role] = p
	return g
}

// probeUnderLoad starts a group of healthy servers with a probe, and rolls the group under load. If
// fails is set, the probe fails for the new servers. Otherwise they are healthy, too.
func probeUnderLoad(ctx context.Context, dir string, kind, role int, fails bool) (r probing, err error) {
	table, ledger := &routes{ports: map[string]int{}}, load.Ledger{}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{probedGroup(kind, role, false)}, Router: table})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Shutdown().Wait(ctx)) }()
	if err := m.Ready(ctx); err != nil {
		return r, err
	}
	loaded, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() { ledger.Ask(loaded, &load.Client{KeepAlive: n%2 == 0, Dial: table.dial}, nil) })
	}
	begin := time.Now()
	err = m.Roll(ctx, probedGroup(kind, role, fails), "measurement")
	r = probing{kind: probeKinds[kind].name, role: probeRoles[role], fails: fails, took: time.Since(begin), whole: err == nil}
	var failed *launcher.RollError
	if fails && errors.As(err, &failed) {
		err = nil
	}
	stop()
	clients.Wait()
	h, _ := m.GroupHealth("g")
	r.ready, r.lost = h.Ready, ledger.Failures()
	r.requests, r.longest = ledger.Sent()
	if fails && role < 2 && slices.Contains(table.added, "g-3") {
		err = errors.Join(err, fmt.Errorf("%s, %s: the router was given a process that had never been ready", r.kind, r.role))
	}
	return r, err
}

// probes rolls groups of servers that do not know the launcher, with each kind of probe in each
// role, and prints how many requests are lost.
func probes(w io.Writer) error {
	dir, done, err := shortDir()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	fmt.Fprintf(w, "\n## Probes\n\nTwo servers that do not know the launcher (`protocol: auto`), rolled under the load of four clients, with each kind of\n"+
		"probe in each role: once to servers for which the probe succeeds, and once to servers for which it fails. Then the roll\n"+
		"must pause, and the old servers must go on serving.\n\n| probe | kind | new servers | roll | ready then | requests | lost | longest wait |\n| --- | --- | --- | --- | ---: | ---: | ---: | ---: |\n")
	configurations, requests, lost := 0, 0, 0
	for role := range probeRoles {
		for kind := range probeKinds {
			for _, fails := range []bool{false, true} {
				r, err := probeUnderLoad(ctx, filepath.Join(dir, fmt.Sprint(configurations)), kind, role, fails)
				if err != nil {
					return fmt.Errorf("%s of the kind %s (does the probe fail: %v): %w", probeRoles[role], probeKinds[kind].name, fails, err)
				}
				servers, roll := "succeed", fmt.Sprintf("complete, %v", round(r.took))
				if fails {
					servers = "fail"
				}
				if !r.whole {
					roll = fmt.Sprintf("paused after %v", round(r.took))
				}
				fmt.Fprintf(w, "| %s | %s | %s | %s | %d | %d | %d | %v |\n", r.role, r.kind, servers, roll, r.ready, r.requests, len(r.lost), round(r.longest))
				configurations, requests, lost = configurations+1, requests+r.requests, lost+len(r.lost)
			}
		}
	}
	fmt.Fprintf(w, "\n| | target | measured |\n| --- | ---: | ---: |\n")
	figures.Row(w, "configurations of probes", "24", fmt.Sprint(configurations))
	figures.Row(w, "requests, and lost ones", "0 lost", fmt.Sprintf("%d, %d lost", requests, lost))
	mustBeNone("requests lost in rolls with probes", lost)
	return nil
}
