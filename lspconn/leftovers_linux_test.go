package lspconn_test

import (
	"context"
	"testing"
	"time"

	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/leftovers"
)

// Starts and stops of every kind leave no process, cgroup, open file or goroutine behind. The
// command lspconn/internal/measure does the same a thousand times.
func TestConn_LeavesNoProcessNoFileAndNoGoroutine(t *testing.T) {
	stop := func(end func(*lspconn.Conn), r role) {
		t.Helper()
		conn, err := lspconn.Start(context.Background(), fake(r))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		end(conn)
		if _, err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
		<-conn.Done()
	}
	hostile := role{Behaviour: behaviours{Shutdown: "never", EOF: "ignore", IgnoreTerm: true}, Child: "setsid"}
	all := func() {
		stop(func(*lspconn.Conn) {}, role{})
		stop(func(c *lspconn.Conn) { c.Force(nil) }, hostile)
		stop(func(c *lspconn.Conn) { // the context of Close has ended
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			c.Close(ctx)
		}, hostile)
		stop(func(c *lspconn.Conn) { c.Call(context.Background(), "die", nil) }, role{})
	}
	all() // the first run opens files that the Go runtime keeps open, such as that of its poller
	before := leftovers.Count()
	for range 5 {
		all()
	}
	deadline := time.Now().Add(tooLong)
	more := leftovers.Count().More(before)
	for more != "" && time.Now().Before(deadline) { // finished goroutines may need some time to end
		time.Sleep(time.Millisecond) // no event announces that the runtime has freed a goroutine
		more = leftovers.Count().More(before)
	}
	if more != "" {
		t.Errorf("20 starts and stops left %s", more)
	}
}
