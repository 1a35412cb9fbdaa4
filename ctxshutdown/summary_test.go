package ctxshutdown_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// described returns a scope below s whose guards stand for the work, as packages httpdrain and
// eventloop have them, and stops it at the end of the test.
func described(t *testing.T, s *ctxshutdown.Swansong, name string, work func(guards int) ctxkey.Work) *ctxshutdown.Swansong {
	d := &ctxkey.WorkDescriber{Describe: work}
	scope, cancel := ctxshutdown.WithCancel(context.WithValue(s, ctxkey.Describer{}, d), ctxshutdown.WithName(name))
	t.Cleanup(cancel)
	d.Scope = scope
	return scope
}

// holdGuards acquires n guards of s until the end of the test.
func holdGuards(t *testing.T, s *ctxshutdown.Swansong, n int) {
	for range n {
		g := s.Guard()
		t.Cleanup(g.Release)
	}
}

func TestSummary_NamesWorkInOrdinaryWords(t *testing.T) {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("root"))
	check := func(what, want string) {
		t.Helper()
		if diff := cmp.Diff(want, s.GuardReport().Summary()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("nothing is held", "nothing")

	serve := described(t, s, "serve", func(int) ctxkey.Work { return ctxkey.Work{} })
	holdGuards(t, serve, 1)
	check("a guard that waits for others", "root/serve ×1")

	requests := described(t, s, "requests", func(guards int) ctxkey.Work {
		return ctxkey.Work{Noun: "request", Count: guards, Oldest: "GET /export", Age: 11500 * time.Millisecond}
	})
	holdGuards(t, requests, 3)
	check("requests", "3 requests, oldest 12 s: GET /export")

	jobs := described(t, s, "jobs", func(guards int) ctxkey.Work { return ctxkey.Work{Noun: "job", Count: guards} })
	holdGuards(t, jobs, 1)
	mail, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("mail"))
	t.Cleanup(cancel)
	holdGuards(t, mail, 4)
	check("requests, jobs and guards of another scope", "3 requests, 1 job and root/mail ×4, oldest 12 s: GET /export")

	for _, name := range []string{"a", "b", "c", "d"} {
		other, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
		t.Cleanup(cancel)
		holdGuards(t, other, 1)
	}
	check("many kinds", "3 requests, 1 job, root/mail ×4, root/a ×1, root/b ×1 and others, oldest 12 s: GET /export")
}
