// Package mtlstest makes certificates for tests.
package mtlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/mtls"
)

// An Authority issues certificates for 127.0.0.1.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns a new authority, which no other test trusts.
func New(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// Issue writes a certificate with this name, its key, and the certificate of the authority, into a
// directory of their own.
func (a *Authority) Issue(t *testing.T, name string) mtls.Files {
	t.Helper()
	dir := t.TempDir()
	f := mtls.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	a.Reissue(t, f, name, time.Now().Add(time.Hour))
	return f
}

// Reissue replaces the files by new ones. The certificate is valid until the given time.
func (a *Authority) Reissue(t *testing.T, f mtls.Files, name string, until time.Time) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.Cert, 0o644, text("CERTIFICATE", der))
	write(t, f.Key, 0o600, keyText(t, key))
	write(t, f.CA, 0o644, text("CERTIFICATE", a.cert.Raw))
}

// PrivateKey returns the text of a key that matches no certificate.
func (a *Authority) PrivateKey(t *testing.T) []byte {
	t.Helper()
	return keyText(t, newKey(t))
}

func keyText(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return text("PRIVATE KEY", der)
}

func text(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t *testing.T, name string, mode os.FileMode, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, mode); err != nil {
		t.Fatal(err)
	}
}
