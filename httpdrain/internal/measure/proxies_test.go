package main

import (
	"os"
	"testing"
)

// Clients of a proxy see no errors while the servers behind it are restarted. On a busy machine the
// proxy may send a request on an unused connection in the moment in which the server closes it, so
// the test tolerates one error per restart. With Shutdown there are many times as many.
func TestRestartBehind_CountsHardlyAnyError(t *testing.T) {
	const clients, restarts = 16, 4
	for _, p := range proxies {
		t.Run(p.name+" "+p.upstream, func(t *testing.T) {
			if name := p.missing(); name != "" {
				if os.Getenv("CI") != "" {
					t.Fatalf("%s is missing", name)
				}
				t.Skipf("%s is missing", name)
			}
			r, err := restartBehind(p, httpdrainServe, clients, restarts, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d requests, errors: %v", r.requests.Load(), r)
			if r.total() > restarts {
				t.Errorf("%d requests, errors: %v", r.requests.Load(), r)
			}
		})
	}
}
