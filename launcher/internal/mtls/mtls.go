// Package mtls has gRPC speak over TCP with those who have a certificate of one's own authority, and with nobody else.
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

// Files are the names of PEM files. All of them are needed, at both ends: a certificate, with those between it and the
// authority if there are any, its key, and the authorities that the other end's certificate has to come from.
type Files struct{ Cert, Key, CA string }

// Check says which of the names is missing, if not all are.
func (f Files) Check() error {
	for _, x := range []struct{ what, name string }{{"Cert", f.Cert}, {"Key", f.Key}, {"CA", f.CA}} {
		if x.name == "" {
			return fmt.Errorf("TLS.%s is missing; over TCP, both ends show a certificate: name Cert, Key and CA", x.what)
		}
	}
	return nil
}

// An Identity is what is in the files, read anew for each handshake: certificates are made to be replaced, and a launcher runs
// for longer than they last. A handshake is rare, and the files are small.
//
// Where the files are no good any more, be it because one has been replaced and the other not yet, those that were good last
// go on to be used: half a rotation should not end a service, and an expired certificate is refused by the other end anyway.
//
// All methods may be called concurrently.
type Identity struct {
	files  Files
	report func(error)

	mu     sync.Mutex
	texts  [3][]byte // what cert and others were made of
	wrong  string    // what was reported last
	cert   tls.Certificate
	others *x509.CertPool
}

// Expect is Load for files that may not be there yet: until they have been good once, handshakes fail, and say why.
func Expect(files Files, report func(error)) *Identity {
	if report == nil {
		report = func(error) {}
	}
	return &Identity{files: files, report: report}
}

// Load reads the files. Later, report is told of files that are no good, once for each way in which they are not; it may be
// nil.
func Load(files Files, report func(error)) (*Identity, error) {
	if err := files.Check(); err != nil {
		return nil, fmt.Errorf("mtls: %w", err)
	}
	id := Expect(files, report)
	if err := id.read(); err != nil {
		return nil, err
	}
	// At first only: one that expires later is no reason to stop serving whoever has not noticed.
	if leaf := id.cert.Leaf; time.Now().After(leaf.NotAfter) {
		return nil, fmt.Errorf("mtls: the certificate in %s has expired, at %v; put a new one in its place", files.Cert, leaf.NotAfter)
	}
	return id, nil
}

// read looks at the files, and takes what is in them if all of it is good.
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
	if err := private(id.files.Key); err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return fmt.Errorf("mtls: %s with the key %s: %w", id.files.Cert, id.files.Key, err)
	}
	others := x509.NewCertPool()
	if !others.AppendCertsFromPEM(texts[2]) {
		return fmt.Errorf("mtls: there is no certificate in %s", id.files.CA)
	}
	id.texts, id.cert, id.others = texts, cert, others
	return nil
}

// private refuses a key that everybody on the machine can read: it would prove nothing.
func private(key string) error {
	info, err := os.Stat(key)
	if err != nil {
		return fmt.Errorf("mtls: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("mtls: the key %s is %v, everybody can use it; make it 0600", key, info.Mode().Perm())
	}
	return nil
}

// config returns what the next handshake is to be made with. It fails only where the files have never been good.
func (id *Identity) config() (*tls.Config, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	said := ""
	if err := id.read(); err != nil {
		if id.others == nil {
			return nil, err
		}
		said = err.Error()
		if said != id.wrong {
			id.report(fmt.Errorf("%w; what was there before is still used", err))
		}
	}
	id.wrong = said
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.cert},
		RootCAs:      id.others,
		ClientCAs:    id.others,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}, nil
}

// Credentials are for gRPC, at either end. A client checks that the certificate of the server is for the host that it has
// connected to.
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
	// A client of TLS 1.3 is through before the server has looked at its certificate. If it wrote now, a server that refuses it
	// would have gone away in the middle, and all that is heard of the reason might be "broken pipe". A server of gRPC speaks
	// first in any case, so what it says can be waited for.
	first := make([]byte, 1)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_, err = io.ReadFull(secure, first)
	if !stop() || err != nil {
		secure.Close()
		return nil, nil, fmt.Errorf("mtls: after %s was shown: %w", c.id.files.Cert, cmp.Or(context.Cause(ctx), err))
	}
	return &opened{Conn: secure, first: first}, info, nil
}

// An opened connection is one of which the first byte has been read.
type opened struct {
	net.Conn
	first []byte // the reader's
}

func (o *opened) Read(b []byte) (int, error) {
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
	return errors.New("mtls: the name of a server is that of the host it has")
}
