package mtls_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/mtls/mtlstest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tooLong is a timeout that only broken code reaches.
const tooLong = time.Minute

func load(t *testing.T, f mtls.Files, report func(error)) *mtls.Identity {
	t.Helper()
	id, err := mtls.Load(f, report)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// serve serves grpc.health.v1, and returns the address.
func serve(t *testing.T, id *mtls.Identity) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(id.Credentials()))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return ln.Addr().String()
}

// call opens a connection for one call, and returns the text of its error, or an empty string if
// the call succeeds.
func call(t *testing.T, address string, creds credentials.TransportCredentials) string {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return status.Convert(err).Message()
}

// dial connects without gRPC, and returns the text of the error with which the server refuses the
// connection.
func dial(address string, config *tls.Config) string {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return testkit.ErrorText(err)
}

func refused(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want it to contain %q", what, got, want)
	}
}

func TestCredentials_RequireCertificatesOfBothEnds(t *testing.T) {
	ours, foreign := mtlstest.New(t), mtlstest.New(t)
	server, client := ours.Issue(t, "server"), ours.Issue(t, "client")
	address := serve(t, load(t, server, nil))
	if got := call(t, address, load(t, client, nil).Credentials()); got != "" {
		t.Errorf("the right certificates: %s", got)
	}

	// This client has a certificate of another authority, and trusts the authority of the server.
	// So if the handshake fails, it is the server that has refused the client.
	theirs := foreign.Issue(t, "mallory")
	theirs.CA = client.CA
	refused(t, "a client of another authority", call(t, address, load(t, theirs, nil).Credentials()), "unknown certificate authority")
	refused(t, "a server of another authority", call(t, address, load(t, foreign.Issue(t, "client"), nil).Credentials()), "signed by unknown authority")

	none := load(t, client, nil).Config()
	none.Certificates, none.NextProtos = nil, []string{"h2"}
	refused(t, "a client without a certificate", dial(address, none), "certificate required")
	old := load(t, client, nil).Config()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	refused(t, "TLS 1.2", dial(address, old), "protocol version")
	if got := call(t, address, insecure.NewCredentials()); got == "" {
		t.Error("a client without TLS got an answer")
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "a certificate for another host", call(t, "localhost:"+port, load(t, client, nil).Credentials()), "localhost")
}

// A certificate that expires while it is in use is refused by the other end. One that has expired
// before cannot be loaded.
func TestIdentity_ExpiredCertificateIsRefused(t *testing.T) {
	ours := mtlstest.New(t)
	client := ours.Issue(t, "client")
	address := serve(t, load(t, ours.Issue(t, "server"), nil))
	id := load(t, client, nil)
	ours.Reissue(t, client, "client", time.Now().Add(-time.Minute))
	refused(t, "an expired client", call(t, address, id.Credentials()), "expired certificate")
	_, err := mtls.Load(client, nil)
	refused(t, "loading an expired certificate", testkit.ErrorText(err), client.Cert+" expired")
}

// If the files of a certificate and its key are replaced, the new ones are used from the next
// connection on. While only one of the two is replaced, connections use the earlier ones, and one
// error is reported.
func TestIdentity_UsesReplacedCertificateForNextConnection(t *testing.T) {
	old, next := mtlstest.New(t), mtlstest.New(t)
	server, client := old.Issue(t, "server"), old.Issue(t, "client")
	reports := make(chan error, 10)
	id := load(t, server, func(err error) { reports <- err })
	address := serve(t, id)
	clientID := load(t, client, nil)
	talk := func(what string) {
		t.Helper()
		if got := call(t, address, clientID.Credentials()); got != "" {
			t.Errorf("%s: %s", what, got)
		}
	}
	talk("before the rotation")

	key, err := os.ReadFile(server.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(server.Key, next.PrivateKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	talk("with a key that does not match")
	talk("with the same key again")
	reported := func(want string) {
		t.Helper()
		if len(reports) != 1 {
			t.Fatalf("%d reports, want 1", len(reports))
		}
		refused(t, "report", testkit.ErrorText(<-reports), want)
	}
	reported("private key does not match")
	if err := os.Remove(server.CA); err != nil {
		t.Fatal(err)
	}
	talk("with a missing file")
	reported("no such file")
	if err := os.WriteFile(server.Key, key, 0o600); err != nil {
		t.Fatal(err)
	}

	next.Reissue(t, server, "server", time.Now().Add(time.Hour))
	refused(t, "a client that trusts only the old authority", call(t, address, clientID.Credentials()), "unknown authority")
	next.Reissue(t, client, "client", time.Now().Add(time.Hour))
	talk("with the new authority")
}

func TestLoad_RefusesInvalidFiles(t *testing.T) {
	a := mtlstest.New(t)
	for what, bad := range map[string]struct {
		spoil func(f *mtls.Files) error
		want  string
	}{
		"no key":                      {func(f *mtls.Files) error { f.Key = ""; return nil }, "TLS.Key is missing"},
		"no authority":                {func(f *mtls.Files) error { f.CA = ""; return nil }, "TLS.CA is missing"},
		"a missing file":              {func(f *mtls.Files) error { return os.Remove(f.Cert) }, "no such file"},
		"no certificate":              {func(f *mtls.Files) error { return os.WriteFile(f.CA, []byte("hello"), 0o600) }, "contains no certificate"},
		"a key that all can read":     {func(f *mtls.Files) error { return os.Chmod(f.Key, 0o644) }, "all users can read it"},
		"certificate and key swapped": {func(f *mtls.Files) error { f.Cert, f.Key = f.Key, f.Cert; return os.Chmod(f.Key, 0o600) }, "key.pem with the key"},
	} {
		t.Run(what, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				t.Skip("files have no modes on Windows")
			}
			f := a.Issue(t, "x")
			if err := bad.spoil(&f); err != nil {
				t.Fatal(err)
			}
			_, err := mtls.Load(f, nil)
			refused(t, what, testkit.ErrorText(err), bad.want)
			if strings.Contains(testkit.ErrorText(err), "BEGIN") || strings.Contains(testkit.ErrorText(err), "hello") {
				t.Errorf("the error contains the content of a file: %v", err)
			}
		})
	}
}

// Expect is for certificate files that may not exist yet. They are used as soon as they are valid;
// until then, errors name the missing file.
func TestExpect_UsesCertificateFilesOnceTheyAreValid(t *testing.T) {
	ours := mtlstest.New(t)
	server := serve(t, load(t, ours.Issue(t, "server"), nil))
	files := ours.Issue(t, "client")
	text, err := os.ReadFile(files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	creds := mtls.Expect(files, func(err error) { t.Errorf("reported: %v", err) }).Credentials()
	if got := call(t, server, creds); !strings.Contains(got, files.Cert) {
		t.Errorf("without the certificate: %q, which does not name its file", got)
	}
	if err := os.WriteFile(files.Cert, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := call(t, server, creds); got != "" {
		t.Errorf("with the certificate: %s", got)
	}
}
