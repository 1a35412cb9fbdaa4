package ctxshutdown_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestGuardReport_SummaryNamesScopes(t *testing.T) {
	root := ctxshutdown.New(t.Context())
	summary := func(want string) {
		t.Helper()
		testkit.Equal(t, "summary", root.GuardReport().Summary(), want)
	}
	summary("nothing")
	g := root.Guard()
	summary("(unnamed) ×1")
	g.Release()
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		hold(root, name, 1)
		if i == 1 {
			hold(root, "b", 1)
			summary("b ×2 and a ×1")
		}
	}
	summary("b ×2, a ×1, c ×1, d ×1, e ×1 and others")
}

// In a traced scope, Summary names the oldest guard by its age and the line that acquired it.
func TestGuardReport_SummaryNamesOldestTracedGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := ctxshutdown.New(context.Background(), ctxshutdown.WithTrace(), ctxshutdown.WithName("app"))
		first := root.Guard()
		site := lineAbove()
		time.Sleep(1500 * time.Millisecond)
		second := root.Guard()
		testkit.Equal(t, "summary", root.GuardReport().Summary(), "app ×2, oldest 2 s: "+site)
		first.Release()
		second.Release()
	})
}

// Packages httpdrain and eventloop say what the guards of their scopes stand for.
func TestGuardReport_SummaryNamesRequestsAndJobs(t *testing.T) {
	root := ctxshutdown.New(t.Context())
	described := func(name string, guards int, work ctxkey.Work) {
		d := &ctxkey.WorkDescriber{Describe: func(int) ctxkey.Work { return work }}
		d.Scope = hold(context.WithValue(root, ctxkey.Describer{}, d), name, guards)
	}
	summary := func(want string) {
		t.Helper()
		testkit.Equal(t, "summary", root.GuardReport().Summary(), want)
	}
	described("serve", 1, ctxkey.Work{}) // this guard only waits for the other guards
	summary("serve ×1")
	described("requests", 3, ctxkey.Work{Noun: "request", Count: 3, Named: []ctxkey.NamedWork{{Name: "GET /export", Age: 11500 * time.Millisecond}}})
	summary("3 requests, oldest 12 s: GET /export")
	described("paced", 1, ctxkey.Work{Noun: "request", Count: 1, Named: []ctxkey.NamedWork{{Name: "GET /young", Age: time.Second}}})
	described("jobs", 1, ctxkey.Work{Noun: "job", Count: 1})
	hold(root, "mail", 9)
	summary("4 requests, 1 job and mail ×9, oldest 12 s: GET /export")
}
