//go:build unix

package launcher_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/mtls/mtlstest"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// overTCP returns the group with TCP as its transport.
func overTCP(g launcher.GroupConfig, files launcher.TLS) launcher.GroupConfig {
	g.Transport = launcher.TransportConfig{Network: "tcp", Address: "127.0.0.1:0", TLS: files}
	return g
}

// Processes choose ports and report them. The launcher rolls and stops the processes over these
// ports. New certificates are used for the processes that are started later.
func TestTransport_RollsAndStopsProcessesOverTCP(t *testing.T) {
	old, next := mtlstest.New(t), mtlstest.New(t)
	files := old.Issue(t, "web")
	h := launch(t, overTCP(runners("web", 2), launcher.TLS(files))).ready()
	if sockets, _ := filepath.Glob(filepath.Join(h.dir, "web-*.sock")); len(sockets) > 0 {
		t.Errorf("unix sockets exist: %v", sockets)
	}
	next.Reissue(t, files, "web", time.Now().Add(time.Hour))
	if err := h.Restart(soon(t), "web", "new certificates"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	testkit.Equal(t, "running", names(h.running("web")), []string{"web-3", "web-4"})
	testkit.Equal(t, "outcome", h.stopAndWait("web-3").Outcome, launcher.Clean)
}

func names(all []launcher.Status) (ids []string) {
	for _, st := range all {
		ids = append(ids, st.ID)
	}
	return ids
}

// The launcher does not talk to a process with a certificate of another authority, and says why.
func TestTransport_RefusesProcessWhoseCertificateIsOfAnotherCA(t *testing.T) {
	ours, foreign := mtlstest.New(t), mtlstest.New(t)
	files := ours.Issue(t, "web")
	g := overTCP(runners("web", 1), launcher.TLS(files))
	theirs := foreign.Issue(t, "web")
	g.Env = append(g.Env, "SWANSONG_TEST_CERT="+theirs.Cert, "SWANSONG_TEST_KEY="+theirs.Key)
	g.Env[0] = asRole + "=foreign certificate"
	g.Restart.Policy = launcher.Never
	var e launcher.Event
	for g.HealthCheckTimeout = 4 * time.Second; g.HealthCheckTimeout < tooLong; g.HealthCheckTimeout *= 2 {
		h := launch(t, g)
		if e = h.waitForState("web-1", launcher.Unhealthy); strings.Contains(e.Message, "signed by unknown authority") {
			return
		}
		// The machine may be so busy that the time ended before the process had presented its
		// certificate. Try again with more time.
		h.close()
	}
	t.Errorf("reason is %q, want one about the authority", e.Message)
}

// Over TCP, too, a process can report only its own port. The test itself is refused as well,
// because it is no process of the launcher.
func TestNotifyServing_RefusesCallOfProcessAboutAnotherProcess(t *testing.T) {
	files := launcher.TLS(mtlstest.New(t).Issue(t, "web"))
	h := launch(t, overTCP(runners("web", 1), files), runners("plain", 1)).ready()
	to := h.notifications()
	for id, want := range map[string]codes.Code{"web-1": codes.PermissionDenied, "plain-1": codes.PermissionDenied, "nobody-1": codes.NotFound} {
		_, err := to.NotifyServing(soon(t), &pb.ServingNotification{ProcessId: id, Port: 1})
		testkit.Equal(t, "the test says where "+id+" is", status.Code(err), want)
	}
}

func TestAdmin_AnswersOverTCPWithCertificates(t *testing.T) {
	ours, foreign := mtlstest.New(t), mtlstest.New(t)
	h := launchWith(t, launcher.Config{
		Groups: []launcher.GroupConfig{runners("web", 1)},
		Admin:  launcher.AdminConfig{Address: "127.0.0.1:0", TLS: launcher.TLS(ours.Issue(t, "launcher"))},
	}).ready()
	dial := func(files launcher.TLS) pb.LauncherAdminInterfaceClient {
		t.Helper()
		to, conn, err := launcher.DialTLS(h.AdminAddr().String(), files)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return to
	}
	alice := ours.Issue(t, "alice")
	theirs := foreign.Issue(t, "mallory")
	theirs.CA = alice.CA
	_, err := dial(launcher.TLS(theirs)).GetGroupHealth(soon(t), &pb.GetGroupHealthRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "unknown certificate authority") {
		t.Errorf("call with a certificate of another authority: %v", err)
	}

	to := dial(launcher.TLS(alice))
	out, err := to.StopProcess(soon(t), &pb.StopProcessRequest{ProcessId: "web-1", Reason: "because", Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "outcome", out.GetStatus().GetOutcome(), pb.Outcome_CLEAN)
	e := h.waitForState("web-1", launcher.ShutdownRequested)
	testkit.Equal(t, "reason", e.Message, "because (by CN=alice)")

	events, err := to.WatchEvents(soon(t), &pb.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	h.Shutdown()
	for err == nil { // the stream ends when the launcher ends, and the launcher does not wait for the stream
		_, err = events.Recv()
	}
}

// A group that uses TCP must have certificates.
func TestTransport_RequiresCertificatesForTCP(t *testing.T) {
	files := launcher.TLS(mtlstest.New(t).Issue(t, "x"))
	group := func(change func(t *launcher.TransportConfig)) launcher.Config {
		g := overTCP(runners("web", 1), files)
		change(&g.Transport)
		return launcher.Config{Dir: "/run/x", Groups: []launcher.GroupConfig{g}}
	}
	admin := func(a launcher.AdminConfig) launcher.Config {
		return launcher.Config{Dir: "/run/x", Groups: []launcher.GroupConfig{runners("web", 1)}, Admin: a}
	}
	for what, c := range map[string]struct {
		config launcher.Config
		want   string
	}{
		"a transport without TLS":   {group(func(t *launcher.TransportConfig) { t.TLS = launcher.TLS{} }), "Transport.TLS: is missing; transport tcp needs"},
		"a transport without a key": {group(func(t *launcher.TransportConfig) { t.TLS.Key = "" }), "TLS.Key: is missing"},
		"a port for two":            {group(func(t *launcher.TransportConfig) { t.Address = "127.0.0.1:4711" }), "use port 0"},
		"all addresses":             {group(func(t *launcher.TransportConfig) { t.Address = "0.0.0.0:0" }), "every address"},
		"no host":                   {group(func(t *launcher.TransportConfig) { t.Address = ":0" }), "every address"},
		"no address":                {group(func(t *launcher.TransportConfig) { t.Address = "" }), "Transport.Address: is missing"},
		"TLS for a unix socket":     {group(func(t *launcher.TransportConfig) { t.Network = "unix" }), "has no effect without transport tcp"},
		"another network":           {group(func(t *launcher.TransportConfig) { t.Network = "udp" }), "must be unix or tcp"},
		"admin without TLS":         {admin(launcher.AdminConfig{Address: "127.0.0.1:0"}), "Admin.TLS: is missing; an address needs"},
		"admin without a CA":        {admin(launcher.AdminConfig{Address: "127.0.0.1:0", TLS: launcher.TLS{Cert: "c", Key: "k"}}), "TLS.CA: is missing"},
		"admin without an address":  {admin(launcher.AdminConfig{TLS: files}), "has no effect without an address"},
		"admin at no address":       {admin(launcher.AdminConfig{Address: "here", TLS: files}), "must be host:port"},
	} {
		if err := c.config.Validate(); !strings.Contains(testkit.ErrorText(err), c.want) {
			t.Errorf("%s: error %v does not contain %q", what, err, c.want)
		}
	}
	ok := admin(launcher.AdminConfig{Address: "127.0.0.1:0", TLS: files})
	ok.Groups[0] = overTCP(ok.Groups[0], files)
	if err := ok.Validate(); err != nil {
		t.Errorf("valid configuration: %v", err)
	}
	missing := group(func(t *launcher.TransportConfig) { t.TLS.CA = "/nowhere/ca.pem" })
	missing.Dir = filepath.Join(shortDir(t), "run")
	if _, err := launcher.Start(context.Background(), missing); !strings.Contains(testkit.ErrorText(err), "/nowhere/ca.pem") {
		t.Errorf("missing file: %v", err)
	}
}
