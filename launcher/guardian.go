package launcher

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/capture"
)

// A guardian is a small process that outlives the launcher. It reads a pipe of which the launcher alone has the other end,
// so that the kernel tells it when that is no more, whatever has happened to it:
//
//	watching ──"over"──▶ done: the launcher has seen to everything itself
//	   └─────the pipe ends──▶ kills what was to die with the launcher
//	                            ├─ nobody is to be kept ─▶ removes the launcher's files, see cleanUp
//	                            └─ processes are to be kept ─▶ reads what they print, into their logs, until SIGTERM
//
// It holds the listeners of the processes that are to be kept, too. They may all be stopping just when the launcher dies, and
// have closed theirs: then it is the guardian alone who has clients wait, where they would be refused, until the next launcher.
// The next launcher sends that SIGTERM. A guardian that ends before its launcher is an alarm, and another one takes its place.
//
// Whenever the launcher dies, one guardian is in charge, and the next launcher finds it: each is in a pen of its own, which is
// in the state file before the guardian is started, as with processes that are kept. Of several that live, the one that the
// file has last is in charge.
type guardian struct {
	args    []string
	orders  orders     // but for Self
	held    []*os.File // those of groups that are gone are closed
	alarm   func(message string)
	written func(stop <-chan struct{}) error // see memory.written: of what kept returns
	quit    context.CancelFunc
	ended   chan struct{}

	mu   sync.Mutex
	pen  proc.Pen
	proc *proc.Process // nil: about to be started
}

// orders are what a guardian is told: one line of JSON.
type orders struct {
	Pen  proc.Pen `json:"pen"`
	Dir  string   `json:"dir"`
	Self proc.Pen `json:"self"` // that the guardian is in
}

// guardianPen names a pen for a guardian. A cgroup would be one more thing to leave behind, and a guardian starts nobody.
func guardianPen() proc.Pen {
	pen := proc.NewPen()
	pen.Cgroup = ""
	return pen
}

const (
	guarding = "guarding" // the answer
	dismiss  = "over"
)

// heldFor is how long a guardian holds listeners when the last process that was kept has ended, and no launcher comes.
var heldFor = time.Minute // tests have less time

// guardianPatience is how long a guardian may take to start, and to end.
const guardianPatience = 20 * time.Second

// Guard is what a [Config].Guardian does. It reads what the launcher tells it from stdin, and returns when neither the
// launcher nor a process that it was to look after is left. It ignores SIGTERM, SIGINT and SIGHUP as long as the launcher lives,
// and SIGPIPE: the launcher may be dead before it has heard the answer. What goes into a log while there is no launcher goes
// through redact, as through [Config].Redact before, and with the same note where that panics; nil leaves it as it is. What
// goes wrong is an [Alarm] of the next launcher, too.
func Guard(redact func(string) string) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	in := bufio.NewReader(os.Stdin)
	var o orders
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		return fmt.Errorf("launcher: a guardian is started by a launcher, which tells it what to guard: %w", err)
	}
	fmt.Println(guarding)
	if err := o.guard(in, redact); err != nil {
		complain(o.Dir, err.Error())
		return err
	}
	return nil
}

func (o orders) guard(in *bufio.Reader, redact func(string) string) error {
	for {
		line, err := in.ReadString('\n')
		if strings.TrimSpace(line) == dismiss {
			return nil
		}
		if err != nil {
			break
		}
	}
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGTERM)
	if left := o.Pen.Empty(time.Now().Add(guardianPatience)); len(left) > 0 {
		return fmt.Errorf("launcher: these live on without their launcher: %v", left)
	}
	r, err := readState(stateIn(o.Dir))
	if err != nil || !r.inCharge(o.Self) {
		return err
	}
	if !r.keeps() {
		return cleanUp(o.Dir, o.Self, leave)
	}
	return r.read(o.Dir, leave, redact)
}

// inCharge reports whether the guardian in this pen is to read what kept processes print. It is not if another launcher has
// come, and ended it or has one of its own.
func (r remembered) inCharge(self proc.Pen) bool {
	i := slices.IndexFunc(r.Guardians, func(k proc.Kept) bool { return k.Mark == self.Mark })
	return i >= 0 && !slices.ContainsFunc(r.Guardians[i+1:], func(k proc.Kept) bool {
		k, found := found(k)
		return found && k.Alive()
	})
}

// found completes what is known of a guardian that was about to be started, and returns false if it was not.
func found(k proc.Kept) (proc.Kept, bool) {
	if k.PID != 0 {
		return k, true
	}
	return k.Leader()
}

// read reads what the kept processes print, as their launcher would, until they end, or until told to leave.
func (r remembered) read(dir string, leave <-chan os.Signal, f func(string) string) error {
	show := func(s string) string {
		shown, _ := redact(f, s)
		return shown
	}
	var reading sync.WaitGroup
	var streaming []*handover
	var all []error
	lost := newComplaints(dir)
	defer lost.end() // after the last lines have been written, or not
	logs := newLogFiles(nil, lost.add)
	for name, g := range r.Groups {
		for _, p := range g.Processes {
			if !p.kept() {
				continue
			}
			to, done := logs.open(p.Config.Log, p.ID)
			defer done()
			for _, stream := range streams {
				f, err := openFIFO(fifo(dir, p.ID, stream))
				if p.clearedAway(err) {
					continue
				}
				if err != nil {
					all = append(all, err)
					continue
				}
				h := &handover{file: f, most: p.Config.Log.MaxLine, patience: linePatience}
				streaming = append(streaming, h)
				reading.Go(func() {
					defer f.Close()
					capture.Lines(h, p.Config.Log.MaxLine, func(line []byte) {
						if to != nil {
							to.Line(p.ID+" "+stream, show(string(line)), logs.counted(name))
						}
					})
				})
			}
		}
	}
	over := make(chan struct{})
	go func() { reading.Wait(); close(over) }()
	select {
	case <-over:
		select { // with the listeners still open
		case <-time.After(heldFor):
		case <-leave:
		}
	case <-leave:
	}
	for _, h := range streaming {
		h.leave()
	}
	<-over
	return errors.Join(all...)
}

// keeps reports whether there is something to be kept, be it only what is known of the jobs that are done.
func (r remembered) keeps() bool {
	for _, g := range r.Groups {
		if g.Config.OnLauncherDeath == Keep && (len(g.Sockets) > 0 || g.Through > 0) || slices.ContainsFunc(g.Processes, (*rememberedProcess).kept) {
			return true
		}
	}
	return false
}

// hire starts a guardian, which holds some files, in the pen that the state file has, and returns when it guards.
func hire(args []string, o orders, held []*os.File, alarm func(string), written func(stop <-chan struct{}) error) (*guardian, error) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &guardian{args: args, orders: o, held: held, alarm: alarm, written: written, quit: cancel, ended: make(chan struct{}), pen: o.Self}
	if err := g.start(); err != nil {
		cancel()
		return nil, err
	}
	go g.watch(ctx)
	return g, nil
}

func (g *guardian) start() error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	defer null.Close()
	env := append(withoutOurs(os.Environ()), "GOMAXPROCS=1")
	p, err := proc.Start(proc.Spec{Args: g.args, Env: env, Stderr: null, ExtraFiles: g.held, In: g.pen, Linger: -1, NoCgroup: true})
	if err != nil {
		return &ConfigError{Field: "Guardian", Rule: err.Error()}
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.Stdout()).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	o := g.orders
	o.Self = g.pen
	told, err := json.Marshal(o)
	if err == nil {
		_, err = p.Stdin().Write(append(told, '\n'))
	}
	var got string
	late := time.NewTimer(guardianPatience)
	defer late.Stop()
	select {
	case got = <-answer:
	case <-late.C:
	}
	p.Stdout().Close()
	if err != nil || got != guarding {
		p.End(proc.Deadlines{GiveUp: time.Now().Add(reapPatience)})
		p.Close()
		return &ConfigError{Field: "Guardian", Rule: fmt.Sprintf("%q does not guard: it has to call launcher.Guard; it has said %q", g.args[0], got)}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proc = p
	return nil
}

// kept names the guardian for the next launcher.
func (g *guardian) kept() []proc.Kept {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc == nil {
		return []proc.Kept{{Pen: g.pen}}
	}
	return []proc.Kept{g.proc.Kept(g.pen)}
}

// watch replaces a guardian that has ended.
func (g *guardian) watch(ctx context.Context) {
	defer close(g.ended)
	for {
		select {
		case <-g.proc.Done():
		case <-ctx.Done():
			return
		}
		g.alarm("the guardian has ended (" + g.proc.Exit().String() + "): until there is another one, nobody sees to it that all ends with the launcher")
		g.proc.Close()
		g.mu.Lock()
		g.pen, g.proc = guardianPen(), nil
		g.mu.Unlock()
		g.written(ctx.Done()) // if it cannot be, that is told, and a guardian that nobody finds is better than none
		if ctx.Err() != nil {
			return
		}
		for tries := 0; ; tries++ {
			err := g.start()
			if err == nil {
				break
			}
			if tries == 0 {
				g.alarm("no other guardian can be started, which is tried again every second: " + err.Error())
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
		g.written(ctx.Done()) // by its number, too, should it have got rid of its mark
	}
}

// dismiss tells the guardian that there is nothing left to guard, and waits for its end.
func (g *guardian) dismiss() {
	if g == nil {
		return
	}
	g.quit()
	<-g.ended
	if g.proc == nil { // there was none to be had
		return
	}
	io.WriteString(g.proc.Stdin(), dismiss+"\n")
	g.proc.Stdin().Close()
	late := time.Now().Add(guardianPatience)
	g.proc.End(proc.Deadlines{Terminate: late, Kill: late, GiveUp: late.Add(reapPatience)})
	g.proc.Close()
}

// retire ends the guardian of an earlier launcher, which reads what this one is about to read.
func retire(k proc.Kept) {
	if !k.Alive() {
		return
	}
	p, err := proc.Adopt(k, proc.Spec{Args: []string{"guardian"}, Linger: -1})
	if err != nil {
		return
	}
	now := time.Now()
	p.End(proc.Deadlines{Terminate: now, Kill: now.Add(reapPatience), GiveUp: now.Add(2 * reapPatience)})
	p.Close()
}
