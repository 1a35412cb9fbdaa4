package httpdrain_test

import (
	"crypto/tls"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A client that has negotiated HTTP/2, but has not sent the preface, gets no GOAWAY, as with
// net/http, which sends no GOAWAY before the preface. The server closes its connection after the
// linger.
func TestServe_ClosesHTTP2WithoutPreface(t *testing.T) {
	for _, test := range []struct {
		name, sends string
		want        time.Duration
	}{
		{"nothing", "", 100 * time.Millisecond},
		{"half of the preface", preface[:10], 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				v := startOn(t, ln, secured(ok))
				p := ln.dial(t)
				tc := tls.Client(p, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				if err := tc.Handshake(); err != nil {
					t.Fatal(err)
				}
				go io.Copy(io.Discard, tc)
				io.WriteString(tc, test.sends)
				synctest.Wait()
				began := time.Now()
				v.s.Shutdown()
				v.drained()
				if took := since(began); took != test.want {
					t.Errorf("the drain took %v, want %v", took, test.want)
				}
			})
		})
	}
}
