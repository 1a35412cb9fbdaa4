// Package guardian cleans up after a launcher that has died. It contains the guardian process,
// which outlives the launcher, and what the next launcher does before it starts any process.
package guardian

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A Guardian is the guardian process of this launcher: a small process that outlives it. The
// guardian reads a pipe whose other end only the launcher has open, so it notices the end of the
// launcher, whatever the cause:
//
//	waiting ── the launcher writes "over" ──▶ exits: the launcher has cleaned up itself
//	   └────── the pipe ends ──▶ kills the processes that were to die with the launcher
//	                               ├─ no process is kept ──▶ removes the launcher's files; see cleanUp
//	                               └─ else ──▶ writes the output of kept processes to their logs
//
// The guardian has the listeners of the kept processes open as well. If all of these are stopping
// when the launcher dies, and have closed theirs, clients still wait for the next launcher, and are
// not refused.
//
// The next launcher ends the guardian by SIGTERM. If the guardian ends before its launcher, the
// launcher reports that and starts another one.
//
// At any time one guardian is in charge, and the next launcher finds it: each guardian has a
// containment of its own (a mark in its environment), which is in the state file before the
// guardian is started. Of several guardians that run, the last one in the file is in charge.
type Guardian struct {
	cfg    Config
	cancel context.CancelFunc
	ended  chan struct{} // closed when watch has returned

	sending  sync.Mutex // held while a line is written to the guardian, so that the lines arrive in their order
	starting sync.Mutex // held while a guardian process is being started, and from HandOver until its resume

	mu   sync.Mutex
	self proc.Containment // identifies the guardian by a mark in its environment
	proc *proc.Process    // nil while the guardian is about to be started
}

// Config describes a guardian and the functions that it needs from the launcher.
type Config struct {
	Args []string
	Env  []string
	// Orders are sent to the first guardian. The state file must already contain Orders.Self.
	Orders Orders
	Files  []*os.File // listeners for the guardian to hold open; those of removed groups are closed

	Secrets func() []string // returns the secret values that the guardian has to mask
	// A process that is to outlive the launcher (Keep) may be missing from the state file.
	// Unrecorded returns what identifies each such process: its cgroup, or a mark in its
	// environment.
	Unrecorded func() []proc.Containment

	Report func(message string)             // called when the guardian has ended by itself, or cannot be started
	Flush  func(stop <-chan struct{}) error // writes the state file, with what Adoptable returns
}

// Orders are the instructions of a launcher to its guardian. They are sent as one line of JSON.
type Orders struct {
	// Processes holds together the processes that die with the launcher: a cgroup, or a mark in
	// their environment.
	Processes proc.Containment `json:"containment"`
	Dir       string           `json:"dir"`
	Self      proc.Containment `json:"self"` // identifies the guardian by a mark in its environment
}

// update is what a guardian learns after its start: it is sent as a line of JSON whenever it has
// changed. The guardian keeps it in memory only.
type update struct {
	Secrets [][]byte `json:"secrets"` // bytes and no strings, because a secret need not be UTF-8

	// Unrecorded has the containments (cgroups, or marks in the environment) of kept processes that
	// were started while the state file could not be written. When the launcher has ended, the
	// guardian ends those that are still not in the file, because the next launcher would not find
	// them and start others beside them.
	Unrecorded []proc.Containment `json:"unrecorded"`
}

// exitLine is the line that the launcher sends to let the guardian exit.
const exitLine = "over"

// guarding is the line that the guardian sends when it has read its orders. It contains two version
// numbers. A launcher refuses a guardian that sends another line, because that guardian may not
// understand the launcher.
//
// Increase the first number when a field of Orders or update gets another key or another meaning,
// because the guardian ignores what it does not know. Increase it also when the state file changes
// and [statefile.Version] does not, because that has been increased since the last release already.
// Otherwise the guardian would notice only after the death of the launcher that it cannot read the
// state file.
var guarding = fmt.Sprintf("guarding, version 2, state file version %d", statefile.Version)

// Timeout is how long a guardian may take to start, and to exit. It is also how long a guardian,
// and the next launcher, try to kill processes.
const Timeout = 20 * time.Second

// NewContainment returns a containment for a guardian: a mark in its environment, by which the next
// launcher finds it. The containment has no cgroup, which would have to be removed later: a
// guardian starts no processes, so it needs none.
func NewContainment() proc.Containment {
	c := proc.NewContainment()
	c.Cgroup = ""
	return c
}

// Start starts a guardian, and returns when the guardian has read its orders. If the guardian ends
// by itself later, that is reported, and another guardian is started.
func Start(cfg Config) (*Guardian, error) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &Guardian{cfg: cfg, cancel: cancel, ended: make(chan struct{}), self: cfg.Orders.Self}
	if err := g.start(); err != nil {
		cancel()
		return nil, err
	}
	go g.watch(ctx)
	return g, nil
}

// start starts a guardian in the containment self. It is called by Start, and later only by the
// goroutine watch, which holds the mutex starting.
//
// The guardian gets no signal when its parent dies, since its work begins then. It starts no
// processes. So it needs no cgroup, and no time for descendants to exit after it (Linger).
func (g *Guardian) start() error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	// A guardian waits nearly all the time, so the Go runtime need not use all processors for it.
	env := append(slices.Clone(g.cfg.Env), "GOMAXPROCS=1")
	p, err := proc.Start(proc.Spec{Args: g.cfg.Args, Env: env, Stderr: null, ExtraFiles: g.cfg.Files, In: g.self, Linger: -1, NoCgroup: true})
	if err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.Stdout()).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	// Orders.Self must be the containment of this guardian: each guardian has another mark in its
	// environment.
	orders := g.cfg.Orders
	orders.Self = g.self
	line, err := json.Marshal(orders)
	if err == nil {
		_, err = p.Stdin().Write(append(line, '\n'))
	}
	var got string
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case got = <-answer:
	case <-timer.C:
	}
	p.Stdout().Close()
	if err != nil || got != guarding {
		p.End(proc.Deadlines{GiveUp: time.Now().Add(spec.ReapTimeout)})
		p.Close()
		return fmt.Errorf("%q is not a guardian, the process that ends the processes of a killed launcher: it printed %q instead of %q; its program has to call launcher.Guard of the same version", g.cfg.Args[0], got, guarding)
	}
	g.mu.Lock()
	g.proc = p
	g.mu.Unlock()
	g.Update()
	return nil
}

// writeTimeout bounds how long a launcher waits for a guardian that does not read, for instance
// because another process has stopped it.
const writeTimeout = time.Second

// Update sends the guardian the secret values, and the containments (cgroups, or marks in the
// environment) of kept processes that are not in the state file. It does nothing for a nil
// Guardian, nor while there is no guardian, because each one gets them after its start.
func (g *Guardian) Update() {
	if g == nil {
		return
	}
	g.sending.Lock()
	defer g.sending.Unlock()
	g.mu.Lock()
	p := g.proc
	g.mu.Unlock()
	if p == nil {
		return
	}
	u := update{Unrecorded: g.cfg.Unrecorded()}
	for _, s := range g.cfg.Secrets() {
		u.Secrets = append(u.Secrets, []byte(s))
	}
	line, _ := json.Marshal(u) // encoding bytes and strings cannot fail
	writeLine(p.Stdin(), string(line))
}

// dismiss tells a guardian to exit. Closing the pipe alone would tell it that its launcher has
// died.
func dismiss(pipe *os.File) {
	writeLine(pipe, exitLine)
	pipe.Close()
}

// writeLine writes a line to a guardian. The line begins with a line break, because the line before
// it may have been written in part. It waits for at most writeTimeout, and ignores errors: a
// guardian that has ended is replaced by watch, and the new one is sent everything.
func writeLine(pipe *os.File, line string) {
	pipe.SetWriteDeadline(time.Now().Add(writeTimeout))
	io.WriteString(pipe, "\n"+line+"\n")
}

// Adoptable returns the entries by which the next launcher finds the guardian in the state file. It
// returns nothing for a nil Guardian.
func (g *Guardian) Adoptable() []proc.Adoptable {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc == nil {
		return []proc.Adoptable{{Containment: g.self}}
	}
	return []proc.Adoptable{g.proc.Adoptable(g.self)}
}

// HandOver returns the pipe on which the launcher writes to its guardian process. The pipe is nil
// if no guardian runs now. A launcher calls HandOver before it executes another version of itself
// in the same process, and passes the pipe to that version; see DismissPrevious.
//
// HandOver waits while a guardian is being started. After that no guardian is started until the
// caller calls resume. HandOver of a nil Guardian returns a nil pipe.
func (g *Guardian) HandOver() (pipe *os.File, resume func()) {
	if g == nil {
		return nil, func() {}
	}
	g.starting.Lock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc != nil {
		pipe = g.proc.Stdin()
	}
	return pipe, g.starting.Unlock
}

// DismissPrevious tells the guardian of the launcher that was upgraded to exit. That launcher has
// handed over pipe, which leads to its guardian; see HandOver. The pipe may be nil. DismissPrevious
// does not wait until the guardian has exited: End does.
func DismissPrevious(pipe *os.File) {
	if pipe != nil {
		dismiss(pipe)
	}
}

// watch starts another guardian whenever the guardian ends, until ctx ends. It runs on one
// goroutine, from Start to Dismiss. Only it changes proc and self, so it reads them without mu.
//
// The new guardian has a mark in its environment, by which it is found. The mark is written to the
// state file before the guardian is started. Otherwise, if the launcher died in between, the next
// launcher could not find the guardian.
func (g *Guardian) watch(ctx context.Context) {
	defer close(g.ended)
	for {
		select {
		case <-g.proc.Done():
		case <-ctx.Done():
			return
		}
		g.cfg.Report("the guardian has ended (" + g.proc.Exit().String() + "): until another one is started, processes can outlive a launcher that is killed")
		g.proc.Close()
		g.mu.Lock()
		g.self, g.proc = NewContainment(), nil
		g.mu.Unlock()
		// The writer of the state file reports its own errors. After an error the guardian is
		// started anyway, although the next launcher could not find it.
		g.cfg.Flush(ctx.Done())
		if ctx.Err() != nil {
			return
		}
		for tries := 0; ; tries++ {
			g.starting.Lock()
			err := g.start()
			g.starting.Unlock()
			if err == nil {
				break
			}
			if tries == 0 {
				g.cfg.Report("cannot start another guardian, retrying every second: " + err.Error())
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
		// Add the PID of the guardian to the state file. The guardian is marked by a variable in
		// its environment; by the PID, the next launcher finds it even without that variable.
		g.cfg.Flush(ctx.Done())
	}
}

// Dismiss lets the guardian exit, and waits until it has exited. It does nothing for a nil
// Guardian. The launcher calls it when all groups have ended or its start has failed: nothing is
// left that the guardian would have to look after.
func (g *Guardian) Dismiss() {
	if g == nil {
		return
	}
	g.cancel()
	<-g.ended
	if g.proc == nil { // the guardian has ended, and another one could not be started
		return
	}
	dismiss(g.proc.Stdin())
	deadline := time.Now().Add(Timeout)
	g.proc.End(proc.Deadlines{Terminate: deadline, Kill: deadline, GiveUp: deadline.Add(spec.ReapTimeout)})
	g.proc.Close()
}
