package httpdrain_test

import (
	"crypto/tls"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A client that has agreed on HTTP/2 and not greeted is one that says nothing: the server would not send it a GOAWAY.
func TestServe_HTTP2WithoutGreeting(t *testing.T) {
	for _, test := range []struct {
		name, says string
		want       time.Duration
	}{
		{"nothing", "", 100 * time.Millisecond},
		{"half of it", preface[:10], 2 * time.Second},
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
				io.WriteString(tc, test.says)
				synctest.Wait()
				began := time.Now()
				v.s.Shutdown()
				v.drained()
				if took := since(began); took != test.want {
					t.Errorf("drained in %v, want %v", took, test.want)
				}
			})
		})
	}
}
