package ctxshutdown_test

import (
	"context"
	"fmt"
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
	summary("unnamed work ×1")
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
	described("serve", 1, ctxkey.Work{}) // the guard of Serve, released last
	summary("serve ×1")
	described("requests", 3, ctxkey.Work{Noun: "request", Count: 3, Named: []ctxkey.NamedWork{{Name: "GET /export", Age: 11500 * time.Millisecond}}})
	summary("3 requests, oldest 12 s: GET /export")
	described("paced", 1, ctxkey.Work{Noun: "request", Count: 1, Named: []ctxkey.NamedWork{{Name: "GET /young", Age: time.Second}}})
	described("jobs", 1, ctxkey.Work{Noun: "job", Count: 1})
	hold(root, "mail", 9)
	summary("4 requests, 1 job and mail ×9, oldest 12 s: GET /export")
}

// Guards that stand for no request, job or other described work are counted in addition to that
// work. The summary lists them by the path of the scope.
func TestGuardReport_SummaryCountsGuardsThatStandForNoRequestOrJob(t *testing.T) {
	for _, test := range []struct {
		guards  int
		work    ctxkey.Work
		count   int
		summary string
	}{
		{6, ctxkey.Work{Noun: "callback", Shared: true, Extra: 5}, 6, "loop ×5"}, // five guards of the program, and the guard that the callbacks share
		{6, ctxkey.Work{Noun: "callback", Count: 3, Shared: true, Extra: 5}, 8, "3 callbacks and loop ×5"},
		{5, ctxkey.Work{Noun: "callback", Shared: true, Extra: 5}, 5, "loop ×5"},
		{8, ctxkey.Work{Noun: "handle", Count: 3, Extra: 5}, 8, "3 handles and loop ×5"},
	} {
		root := ctxshutdown.New(t.Context())
		d := &ctxkey.WorkDescriber{Describe: func(int) ctxkey.Work { return test.work }}
		d.Scope = hold(context.WithValue(root, ctxkey.Describer{}, d), "loop", test.guards)
		testkit.Equal(t, "count", root.GuardReport().Count(), test.count)
		testkit.Equal(t, "summary", root.GuardReport().Summary(), test.summary)
	}
}

// String and LogValue list the oldest requests. In this test one guard stands for all requests, and
// the number of guards in the texts is nevertheless the number of requests.
func TestGuardReport_ListsOldestRequests(t *testing.T) {
	root := ctxshutdown.New(t.Context())
	var named []ctxkey.NamedWork
	for i := range 12 {
		named = append(named, ctxkey.NamedWork{Name: fmt.Sprintf("GET /%d", i), Age: time.Duration(12-i) * time.Second})
	}
	d := &ctxkey.WorkDescriber{Describe: func(int) ctxkey.Work {
		return ctxkey.Work{Noun: "request", Count: 12, Shared: true, Named: named}
	}}
	d.Scope = hold(context.WithValue(root, ctxkey.Describer{}, d), "serve", 1)
	r := root.GuardReport()
	testkit.Equal(t, "String", r.String(), "12 guards: serve ×12; requests: GET /0 for 12s, GET /1 for 11s, GET /2 for 10s, GET /3 for 9s, "+
		"GET /4 for 8s, GET /5 for 7s, GET /6 for 6s, GET /7 for 5s, GET /8 for 4s, GET /9 for 3s and 2 more")
	testkit.Equal(t, "LogValue", r.LogValue().String(), "[count=12 held=serve ×12 requests=GET /0 for 12s, GET /1 for 11s, GET /2 for 10s and 9 more]")
}
