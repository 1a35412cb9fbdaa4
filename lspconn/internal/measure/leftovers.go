//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
	"github.com/swansong-go/swansong/lspconn/internal/leftovers"
)

// startsAndStops starts and stops n servers, 8 at a time, and writes what is left afterwards.
func startsAndStops(w io.Writer, n int) error {
	// The first servers make the Go runtime open files that it keeps open, such as that of its
	// poller. So start and stop some servers before counting the open files.
	if err := stopMany(8); err != nil {
		return err
	}
	before := leftovers.Count()
	begin := time.Now()
	if err := stopMany(n); err != nil {
		return err
	}
	took := time.Since(begin)
	after := leftovers.Count()
	for range 100 { // finished goroutines may need some time to end
		if after.More(before) == "" {
			break
		}
		time.Sleep(10 * time.Millisecond)
		after = leftovers.Count()
	}
	fmt.Fprintf(w, "\n## Nothing left\n\nThe program before and after %d starts and stops, 8 at a time, in %.1f s: half of them Clean, the others by\n"+
		"Force, by a Close whose context has ended, and by a crash.\n\n", n, took.Seconds())
	figures.Row(w, "", "before", "after")
	figures.Row(w, "---", "---:", "---:")
	row := func(name string, before, after int) { figures.Row(w, name, fmt.Sprint(before), fmt.Sprint(after)) }
	row("child processes", before.Processes, after.Processes)
	row("cgroups", before.Cgroups, after.Cgroups)
	row("open files", before.Descriptors, after.Descriptors)
	row("goroutines", before.Goroutines, after.Goroutines)
	if more := after.More(before); more != "" {
		return fmt.Errorf("not freed after %d starts and stops of a server: %s", n, more)
	}
	return nil
}

func stopMany(n int) error {
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	errs := make(chan error, n)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs <- startAndStop(i)
		})
	}
	all.Wait()
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// startAndStop starts the server number i and stops it, in one of several ways.
func startAndStop(i int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := fake{}
	if i%6 >= 3 {
		f = fake{fakelsp.Behaviour{Shutdown: "never", EOF: "ignore", IgnoreTerm: true}, "setsid"}
	}
	conn, err := lspconn.Start(context.Background(), f.server(fmt.Sprint(i)))
	if err != nil {
		return err
	}
	if _, err := conn.Ready(ctx); err != nil {
		return err
	}
	switch i % 6 {
	case 3:
		conn.Force(nil)
	case 4:
		cancel()
	case 5:
		conn.Call(ctx, "die", nil)
		cancel() // makes Close use SIGKILL, because the child of the server ignores SIGTERM
	}
	_, err = conn.Close(ctx)
	<-conn.Done()
	return err
}
