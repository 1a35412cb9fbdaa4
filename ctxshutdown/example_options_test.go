package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Names make up the path by which a report says who holds things up.
func ExampleWithName() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer app.Shutdown()
	conn, cancel := ctxshutdown.WithCancel(app, ctxshutdown.WithName("conn-42"))
	defer cancel()
	defer conn.Guard().Release()
	fmt.Println(app.GuardReport())
	// Output:
	// 1 guard: app/conn-42 ×1
}

// Traced, a report also says where the guards were acquired, and for how long the oldest has been held.
func ExampleWithTrace() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithTrace())
	defer s.Shutdown()
	defer s.Guard().Release()
	for _, e := range s.GuardReport().Entries() {
		file, _, _ := strings.Cut(e.Site, ":")
		fmt.Println(e.Count, "guard, acquired in", file)
	}
	// Output:
	// 1 guard, acquired in example_options_test.go
}

// The scope of a group is one like any other: it drains with what it is part of, and is named in its report.
func ExampleNewGroup() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	g := ctxshutdown.NewGroup(s, ctxshutdown.WithName("fetch"))
	g.Go(func(ctx context.Context) error { return errors.New("no route") })
	g.Go(func(ctx context.Context) error {
		<-ctx.Done() // the first error ends the others
		return ctx.Err()
	})
	fmt.Println(g.Wait())
	fmt.Println(s.Shutdown().Wait(context.Background()))
	// Output:
	// no route
	// <nil>
}
