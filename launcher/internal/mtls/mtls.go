// Package mtls restricts gRPC over TCP to peers that have a certificate signed by the same
// authority.
package mtls

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// Files are the names of the PEM files that the client and the server each need: a certificate,
// followed by intermediate ones if there are any; the private key of the certificate; and the
// authorities, one of which must have signed the certificate of the other end.
type Files struct{ Cert, Key, CA string }

// Check returns an error that names the first missing file name. It does not open the files.
func (f Files) Check() error {
	for _, x := range []struct{ what, name string }{{"Cert", f.Cert}, {"Key", f.Key}, {"CA", f.CA}} {
		if x.name == "" {
			return fmt.Errorf("TLS.%s is missing; over TCP, both ends present a certificate: set Cert, Key and CA", x.what)
		}
	}
	return nil
}

// An Identity is the content of the files of one end. The files are read again for each handshake,
// because certificates are replaced while the launcher runs.
//
// While certificates are replaced, the files can be invalid for a moment, for instance because the
// new certificate has been written and the new key has not. That must not interrupt a service, so
// the last valid content is used. The other end refuses an expired certificate anyway.
//
// All methods may be called concurrently.
type Identity struct {
	files  Files
	report func(error)

	mu       sync.Mutex
	texts    [3][]byte // what the files contained when cert and others were made from them: certificate, key and CA
	reported string    // the last error passed to the function report
	cert     tls.Certificate
	others   *x509.CertPool
}

// Expect is like [Load], for files that need not exist yet. Handshakes fail until the files are
// valid for the first time.
func Expect(files Files, report func(error)) *Identity {
	if report == nil {
		report = func(error) {}
	}
	return &Identity{files: files, report: report}
}

// Load reads the files. If the files become invalid later, the Identity calls the function report
// once for each error. A nil report is not called.
func Load(files Files, report func(error)) (*Identity, error) {
	if err := files.Check(); err != nil {
		return nil, fmt.Errorf("mtls: %w", err)
	}
	id := Expect(files, report)
	if err := id.read(); err != nil {
		return nil, err
	}
	// The expiry is checked only when the files are loaded. If a certificate expires later, the
	// other end refuses it.
	if leaf := id.cert.Leaf; time.Now().After(leaf.NotAfter) {
		return nil, fmt.Errorf("mtls: the certificate in %s expired at %v; replace it", files.Cert, leaf.NotAfter)
	}
	return id, nil
}

// read reads the files, and replaces the identity if all of them are valid. The caller holds id.mu,
// except in Load.
func (id *Identity) read() error {
	var texts [3][]byte
	for i, name := range []string{id.files.Cert, id.files.Key, id.files.CA} {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("mtls: %w", err)
		}
		texts[i] = text
	}
	if id.others != nil && bytes.Equal(texts[0], id.texts[0]) && bytes.Equal(texts[1], id.texts[1]) && bytes.Equal(texts[2], id.texts[2]) {
		return nil
	}
	if err := checkPrivate(id.files.Key); err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return fmt.Errorf("mtls: %s with the key %s: %w", id.files.Cert, id.files.Key, err)
	}
	others := x509.NewCertPool()
	if !others.AppendCertsFromPEM(texts[2]) {
		return fmt.Errorf("mtls: %s contains no certificate", id.files.CA)
	}
	id.texts, id.cert, id.others = texts, cert, others
	return nil
}

// checkPrivate returns an error if all users of the machine can read the key. Its group may:
// services often read keys by a group. Windows has no such modes.
func checkPrivate(key string) error {
	info, err := os.Stat(key)
	if err != nil {
		return fmt.Errorf("mtls: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("mtls: the key %s has mode %v, so all users can read it; change it to 0600", key, info.Mode().Perm())
	}
	return nil
}

// config returns the configuration of the next handshake. It fails only if the files have never
// been valid.
func (id *Identity) config() (*tls.Config, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	problem := ""
	if err := id.read(); err != nil {
		if id.others == nil {
			return nil, err
		}
		problem = err.Error()
		if problem != id.reported {
			id.report(fmt.Errorf("%w; the previous certificate stays in use", err))
		}
	}
	id.reported = problem
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.cert},
		RootCAs:      id.others,
		ClientCAs:    id.others,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}, nil
}

// Credentials returns credentials for a gRPC client or server. A client checks that the server's
// certificate is valid for the host to which the client has connected.
func (id *Identity) Credentials() credentials.TransportCredentials { return creds{id} }

type creds struct{ id *Identity }

func (c creds) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg, err := c.id.config()
	if err != nil {
		return nil, nil, err
	}
	secure, info, err := credentials.NewTLS(cfg).ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	// In TLS 1.3 the handshake of the client completes before the server has checked the
	// certificate of the client. If the server refuses that certificate while the client writes,
	// the client can get the error "broken pipe" instead of the reason. A gRPC server always sends
	// first, so the client waits here for the first byte.
	first := make([]byte, 1)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_, err = io.ReadFull(secure, first)
	if !stop() || err != nil {
		secure.Close()
		return nil, nil, fmt.Errorf("mtls: the peer rejected the certificate %s: %w", c.id.files.Cert, cmp.Or(context.Cause(ctx), err))
	}
	return &peekedConn{Conn: secure, first: first}, info, nil
}

// A peekedConn is a connection whose first byte has already been read. Package grpc reads and
// writes it from different goroutines, but calls Read on one at a time.
type peekedConn struct {
	net.Conn
	first []byte // the byte that was read from Conn, until Read has returned it; then empty
}

func (o *peekedConn) Read(b []byte) (int, error) {
	if len(o.first) == 0 || len(b) == 0 {
		return o.Conn.Read(b)
	}
	n := copy(b, o.first)
	o.first = o.first[n:]
	return n, nil
}

func (c creds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg, err := c.id.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(cfg).ServerHandshake(conn)
}

func (creds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c creds) Clone() credentials.TransportCredentials { return c }

func (creds) OverrideServerName(string) error {
	return errors.New("mtls: the server name cannot be overridden; it is the host of the address")
}
