package ctxshutdown_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// This file tests how soon a blocked Read returns after the stop, for each kind of source. Its
// tables, and those of the test files for Unix and Linux, correspond to the table in
// docs/reference/interrupts.md.

const (
	woken       = "woken at once"
	atBoundary  = "checked at the boundary"
	neverBlocks = "checked at the boundary (never blocks)"
)

// origin is a kind of source. To most sources, the test writes through the w that open returns. If
// a source never blocks, w is nil, and the source contains "one\n" and "two\n" from the beginning.
type origin struct {
	name    string
	ends    string
	canWake bool
	state   string // the state that a stack dump shows for a goroutine that is blocked in Read
	open    func(t *testing.T) (r io.Reader, w io.Writer)
}

var origins = []origin{
	{"net.Pipe", woken, true, "select", func(t *testing.T) (io.Reader, io.Writer) {
		w, r := net.Pipe()
		return r, w
	}},
	{"TCP connection", woken, true, "IO wait", func(t *testing.T) (io.Reader, io.Writer) { return opened(t, "tcp") }},
	{"unix socket", woken, true, "IO wait", func(t *testing.T) (io.Reader, io.Writer) { return opened(t, "unix") }},
	{"UDP socket", woken, true, "IO wait", openUDP},
	{"TLS over TCP", woken, true, "IO wait", func(t *testing.T) (io.Reader, io.Writer) {
		w, r := connections(t, "tcp")
		return openTLS(t, w, r)
	}},
	{"TLS over net.Pipe", woken, true, "select", func(t *testing.T) (io.Reader, io.Writer) {
		w, r := net.Pipe()
		return openTLS(t, w, r)
	}},
	{"io.Pipe", atBoundary, false, "select", func(t *testing.T) (io.Reader, io.Writer) { return unwakeable() }},
	{"a reader that blocks for ever", atBoundary, false, "chan receive", func(t *testing.T) (io.Reader, io.Writer) {
		ch := make(chan string)
		r := readerFunc(func(p []byte) (int, error) { return copy(p, <-ch), nil })
		return &struct{ io.Reader }{r}, writerFunc(func(p []byte) (int, error) { ch <- string(p); return len(p), nil })
	}},
	{"a reader whose SetReadDeadline refuses", atBoundary, false, "select", func(t *testing.T) (io.Reader, io.Writer) {
		r, w := unwakeable()
		return refusing{r}, w
	}},
	{"bufio.Reader around a connection", atBoundary, false, "IO wait", func(t *testing.T) (io.Reader, io.Writer) {
		r, w := opened(t, "tcp")
		return bufio.NewReader(r), w
	}},
	{"gzip.Reader around a connection", atBoundary, false, "IO wait", func(t *testing.T) (io.Reader, io.Writer) {
		r, w := opened(t, "tcp")
		z := gzip.NewWriter(w)
		z.Flush()
		unzipped, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		return unzipped, writerFunc(func(p []byte) (int, error) {
			n, err := z.Write(p)
			return n, errors.Join(err, z.Flush())
		})
	}},
	{"strings.Reader, bytes.Reader", neverBlocks, false, "", func(t *testing.T) (io.Reader, io.Writer) {
		return strings.NewReader("one\ntwo\n"), nil
	}},
	{"regular file", neverBlocks, false, "", func(t *testing.T) (io.Reader, io.Writer) { return file(t, "one\ntwo\n"), nil }},
}

func opened(t *testing.T, network string) (io.Reader, io.Writer) {
	w, r := connections(t, network)
	t.Cleanup(func() { w.Close(); r.Close() })
	return r, w
}

func openUDP(t *testing.T) (io.Reader, io.Writer) {
	r, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w, err := net.Dial("udp", r.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	return r.(*net.UDPConn), w
}

// openTLS returns the two ends of a TLS connection. The handshake is complete.
func openTLS(t *testing.T, w, r net.Conn) (*tls.Conn, *tls.Conn) {
	t.Helper()
	certificate, trust := selfSigned(t)
	server := tls.Server(w, &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true})
	client := tls.Client(r, &tls.Config{RootCAs: trust, ServerName: "localhost"})
	shaken := make(chan error, 1)
	go func() { shaken <- server.HandshakeContext(t.Context()) }()
	if err := errors.Join(client.HandshakeContext(t.Context()), await(t, shaken)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	return client, server
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, trust
}

// checkTransfer checks that text written to w can be read from r.
func checkTransfer(t *testing.T, r io.Reader, w io.Writer, text string) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(w, text)
		sent <- err
	}()
	wantResult(t, "Read", data(text), await(t, reading(r)))
	if err := await(t, sent); err != nil {
		t.Errorf("Write: %v", err)
	}
}

func TestReader_EndsAtStopForEveryKindOfSource(t *testing.T) { testOrigins(t, origins) }

func testOrigins(t *testing.T, origins []origin) {
	for _, o := range origins {
		t.Run(o.name, func(t *testing.T) {
			switch o.ends {
			case woken:
				t.Run("woken", func(t *testing.T) { onTiers(t, o.testWoken(nil)) })
				t.Run("woken, detached", func(t *testing.T) { onTiers(t, o.testWoken(ctxshutdown.Detached())) })
			case atBoundary:
				t.Run("returns the data and then stops", func(t *testing.T) { onTiers(t, o.testBoundary(nil)) })
				if o.canWake {
					t.Run("returns the data, detached", func(t *testing.T) { onTiers(t, o.testBoundary(ctxshutdown.Detached())) })
				} else {
					t.Run("detached", func(t *testing.T) { onTiers(t, o.testDetached) })
				}
			case neverBlocks:
				t.Run("stops between two Reads", func(t *testing.T) { onTiers(t, o.testNeverBlocks(nil, false)) })
				t.Run("detached", func(t *testing.T) { onTiers(t, o.testNeverBlocks(ctxshutdown.Detached(), true)) })
			}
		})
	}
}

// checkStopped checks that Stopped of r returns true, and that CanWake returns want.
func checkStopped(t *testing.T, r *ctxshutdown.Reader, want bool) {
	t.Helper()
	if r.CanWake() != want || !r.Stopped() {
		t.Errorf("CanWake %v, Stopped %v; want %v, true", r.CanWake(), r.Stopped(), want)
	}
}

// A blocked Read returns when the context ends. Afterwards other code can read from the source.
func (o origin) testWoken(opt ctxshutdown.InterruptOption) func(t *testing.T, ctx context.Context, end func()) {
	return func(t *testing.T, ctx context.Context, end func()) {
		src, w := o.open(t)
		r := ctxshutdown.NewReader(ctx, src, opt)
		checkTransfer(t, r, w, "one\n")
		got := reading(r)
		awaitState(t, "readOnce", o.state)
		if r.Stopped() {
			t.Error("Stopped is true before the stop")
		}
		end()
		wantResult(t, "the Read that was blocked", atEOF, await(t, got))
		wantResult(t, "the next Read", atEOF, readOnce(r))
		checkStopped(t, r, o.canWake)
		if r.Rest() != src {
			t.Errorf("Rest is %T, want the source itself", r.Rest())
		}
		checkTransfer(t, r.Rest(), w, "two\n")
		checkTransfer(t, ctxshutdown.NewReader(t.Context(), src), w, "three\n")
	}
}

// When the context ends, a blocked Read continues and returns what the source returns. The next
// Read returns io.EOF without reading from the source.
func (o origin) testBoundary(opt ctxshutdown.InterruptOption) func(t *testing.T, ctx context.Context, end func()) {
	return func(t *testing.T, ctx context.Context, end func()) {
		src, w := o.open(t)
		r := ctxshutdown.NewReader(ctx, src, opt)
		checkTransfer(t, r, w, "one\n")
		got := reading(r)
		awaitState(t, "readOnce", o.state)
		end()
		io.WriteString(w, "two\n")
		wantResult(t, "the Read that was blocked", data("two\n"), await(t, got))
		if r.Stopped() {
			t.Error("Stopped is true before a Read has returned io.EOF")
		}
		wantResult(t, "the next Read", atEOF, await(t, reading(r)))
		checkStopped(t, r, o.canWake)
		checkTransfer(t, r.Rest(), w, "three\n")
	}
}

// A blocked Read returns when the context ends, and leaves the source to the background goroutine.
// Rest returns what that goroutine reads, and then reads from the source.
func (o origin) testDetached(t *testing.T, ctx context.Context, end func()) {
	src, w := o.open(t)
	r := ctxshutdown.NewReader(ctx, src, ctxshutdown.Detached())
	checkTransfer(t, r, w, "one\n")
	got := reading(r)
	awaitState(t, "readOnce", "select")
	awaitState(t, "backgroundReader", o.state)
	end()
	wantResult(t, "the Read that was blocked", atEOF, await(t, got))
	wantResult(t, "the next Read", atEOF, readOnce(r))
	checkStopped(t, r, true)
	rest := r.Rest()
	checkTransfer(t, rest, w, "two\n")
	checkTransfer(t, rest, w, "three\n")
	if r.Rest() != src {
		t.Errorf("the background read has returned, and Rest is %T, want the source", r.Rest())
	}
}

func (o origin) testNeverBlocks(opt ctxshutdown.InterruptOption, canWake bool) func(t *testing.T, ctx context.Context, end func()) {
	return func(t *testing.T, ctx context.Context, end func()) {
		src, _ := o.open(t)
		r := ctxshutdown.NewReader(ctx, src, opt)
		p := make([]byte, 4)
		if n, err := r.Read(p); n != 4 || err != nil || string(p) != "one\n" {
			t.Errorf("Read: %d, %v, %q", n, err, p)
		}
		end()
		wantResult(t, "the next Read", atEOF, readOnce(r))
		checkStopped(t, r, canWake)
		if r.Rest() != src {
			t.Errorf("Rest is %T, want the source itself", r.Rest())
		}
		wantResult(t, "Rest", data("two\n"), readOnce(r.Rest()))
	}
}

// If the source has ended, Stopped returns false, even if the scope is stopped afterwards.
func TestReader_StoppedReturnsFalseIfSourceEndedBeforeStop(t *testing.T) {
	detached := []ctxshutdown.InterruptOption{ctxshutdown.Detached()}
	for _, test := range []struct {
		name string
		src  func() io.Reader
		opts []ctxshutdown.InterruptOption
	}{
		{"woken", func() io.Reader { return pipeWith("bytes") }, nil},
		{"at the boundary", func() io.Reader { return strings.NewReader("bytes") }, nil},
		{"detached", func() io.Reader { return strings.NewReader("bytes") }, detached},
		{"with its last bytes", func() io.Reader { return atOnce("bytes") }, nil},
		{"with its last bytes, detached", func() io.Reader { return atOnce("bytes") }, detached},
	} {
		for name, read := range map[string]func(r *ctxshutdown.Reader) ([]byte, error){
			"Read":    func(r *ctxshutdown.Reader) ([]byte, error) { return io.ReadAll(r) },
			"io.Copy": func(r *ctxshutdown.Reader) (p []byte, err error) { _, err = r.WriteTo(appender{&p}); return p, err },
		} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
					r := ctxshutdown.NewReader(ctx, test.src(), test.opts...)
					if got, err := read(r); string(got) != "bytes" || err != nil {
						t.Errorf("the Reader returns %q, %v", got, err)
					}
					if r.Stopped() {
						t.Error("Stopped is true at the end of the source")
					}
					end()
					wantResult(t, "Read after the stop", atEOF, readOnce(r))
					if r.Stopped() {
						t.Error("Stopped is true after the end of the source and a stop")
					}
				})
			})
		}
	}
}

type appender struct{ to *[]byte }

func (a appender) Write(p []byte) (int, error) {
	*a.to = append(*a.to, p...)
	return len(p), nil
}

// atOnce returns a source whose Read returns io.EOF together with the bytes.
func atOnce(text string) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n := copy(p, text)
		if text = text[n:]; text != "" {
			return n, nil
		}
		return n, io.EOF
	})
}

// A Reader of a TLS connection is stopped after a part of a TLS record has arrived. The next Reader
// returns the whole record.
func TestReader_StopWithinTLSRecordLosesNoByte(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		w, middle := connections(t, "tcp")
		through, r := connections(t, "tcp")
		go io.Copy(middle, through) // forwards the bytes from the client
		handshake, hold := make(chan struct{}), make(chan struct{})
		go func() {
			defer through.Close()
			buf := make([]byte, 1<<10)
			for { // forwards the handshake; a deadline that the test sets afterwards ends the loop
				n, err := middle.Read(buf)
				through.Write(buf[:n])
				if err != nil {
					break
				}
			}
			close(handshake)
			middle.SetReadDeadline(time.Time{})
			io.CopyN(through, middle, 7) // forwards five bytes of header and two bytes of the record
			<-hold
			io.Copy(through, middle)
		}()
		client, server := openTLS(t, w, r)
		middle.SetReadDeadline(time.Unix(1, 0))
		<-handshake
		reader := ctxshutdown.NewReader(ctx, client)
		io.WriteString(server, "a record")
		got := reading(reader)
		awaitState(t, "readOnce", "IO wait")
		awaitState(t, "TestReader_StopWithinTLSRecordLosesNoByte", "chan receive")
		end()
		wantResult(t, "the Read that was blocked", atEOF, await(t, got))
		close(hold)
		wantResult(t, "the next owner", data("a record"), await(t, reading(reader.Rest())))
		checkTransfer(t, reader.Rest(), server, "another")
		checkTransfer(t, server, client, "and back")
		w.Close()
		middle.Close()
	})
}
