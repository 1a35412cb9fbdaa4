//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

// ordinaryUser closes hostile servers under load, as a user without permission to make a cgroup.
func ordinaryUser(w io.Writer, runs, load int) error {
	dir, err := os.MkdirTemp("", "measure-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile(executable())
	if err != nil {
		return err
	}
	copied := filepath.Join(dir, "measure") // a copy, because the user cannot read the folder in which go run builds the program
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		return err
	}
	cmd := self("user " + strconv.Itoa(runs))
	cmd.Path, cmd.Dir, cmd.Stderr = copied, dir, os.Stderr
	cmd.Env = append(cmd.Env, "GOMAXPROCS=")
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	stop := startLoad(load)
	out, err := cmd.Output()
	stop()
	var all []userRun
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil {
		return fmt.Errorf("the runs as an ordinary user failed: %w", err)
	}
	var walls []float64
	outcomes := map[string]int{}
	late, unnamed := 0, 0
	for _, r := range all {
		walls = append(walls, r.Wall.Seconds())
		if r.Wall > r.Deadline {
			late++
		}
		for _, o := range r.Outcomes {
			outcomes[o]++
		}
		unnamed += r.Unnamed
		for _, e := range r.Errors {
			fmt.Fprintln(os.Stderr, e)
		}
	}
	var kinds []string
	for kind, n := range outcomes {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(kinds)
	fmt.Fprintf(w, "\n## As an ordinary user, under load\n\n"+
		"%d runs of %d servers that a user without a cgroup closes together, with a deadline of 5 s, beside %d busy processes.\n"+
		"All but three servers ignore whatever they are asked, and have a child that ignores SIGTERM, in their process group, in a\n"+
		"session of its own, or as an orphan in a session of its own.\n\n", runs, len(hostile()), load)
	figures.Row(w, "what", "figure")
	figures.Row(w, "---", "---:")
	figures.Row(w, "Close returned after, median (largest)", fmt.Sprintf("%.2f s (%.2f s)", figures.Median(walls), figures.Quantile(walls, 1)))
	figures.Row(w, "runs beyond the deadline", strconv.Itoa(late))
	figures.Row(w, "outcomes", strings.Join(kinds, ", "))
	figures.Row(w, "Unconfirmed without the name of a process", strconv.Itoa(unnamed))
	if late > 0 || unnamed > 0 {
		return fmt.Errorf("as an ordinary user: %d of %d runs beyond the deadline, %d servers Unconfirmed without the name of a process", late, runs, unnamed)
	}
	return nil
}

// A userRun has the figures of one run of ordinaryUser.
type userRun struct {
	Wall, Deadline time.Duration
	Outcomes       []string
	Unnamed        int // the number of servers that are Unconfirmed, and whose report names no process
	Errors         []string
}

// hostile returns the servers of a run, by name: three that obey, and eight that ignore exit, the
// end of their input and SIGTERM. Six of the eight have a child that ignores SIGTERM too.
func hostile() map[string]fake {
	servers := map[string]fake{"polite 1": {}, "polite 2": {}, "polite 3": {}}
	for _, child := range []string{"", "fork", "setsid", "twice"} {
		b := fakelsp.Behaviour{Shutdown: "never", Exit: "ignore", EOF: "ignore", IgnoreTerm: true}
		servers["deaf "+child] = fake{b, child}
		b.Shutdown = ""
		servers["stays "+child] = fake{b, child}
	}
	return servers
}

func userRuns(n int) (all []userRun) {
	servers := hostile()
	for range n {
		m, err := lspconn.NewManager(context.Background(), func(key string) (lspconn.Server, error) {
			return servers[key].server(key), nil
		}, lspconn.WithCloseTimeout(5*time.Second))
		if err != nil {
			panic(err)
		}
		var conns []*lspconn.Conn
		for key := range servers {
			conn, err := m.Conn(context.Background(), key)
			if err != nil {
				panic(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			if _, err := conn.Ready(context.Background()); err != nil {
				panic(err)
			}
		}
		begin := time.Now()
		reports, err := m.Close(context.Background())
		run := userRun{Wall: time.Since(begin), Deadline: 5 * time.Second}
		for _, r := range reports {
			run.Outcomes = append(run.Outcomes, r.Outcome.String())
			if r.Outcome == lspconn.Unconfirmed && len(r.Survivors) == 0 {
				run.Unnamed++
			}
		}
		if err != nil {
			run.Errors = append(run.Errors, err.Error())
		}
		all = append(all, run)
		for _, conn := range conns {
			<-conn.Done()
		}
	}
	return all
}
