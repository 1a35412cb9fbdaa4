package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// streams are what a process prints to.
var streams = []string{"out", "err"}

// fifo is where a process that may outlive its launcher prints to.
func fifo(dir, id, stream string) string { return filepath.Join(dir, id+"."+stream) }

// inherit reads what an earlier launcher has remembered, ends what was to end with that one, and returns the rest. What it
// returns has been checked: each process in it is there, or has been.
func inherit(dir string) (remembered, error) {
	r, err := readState(stateIn(dir))
	if err != nil || r.Groups == nil {
		return remembered{}, err
	}
	sameBoot := r.Boot == proc.Boot()
	late := time.Now().Add(guardianPatience)
	var left []string
	end := func(pen proc.Pen) {
		for _, m := range pen.Empty(late) {
			left = append(left, m.String())
		}
	}
	if !sameBoot {
		r.Guardians = nil
	} else {
		end(r.Pen)
		var here []proc.Kept
		for _, k := range r.Guardians {
			if k, ok := found(k); ok {
				here = append(here, k)
			}
		}
		r.Guardians = here
	}
	for name, g := range r.Groups {
		if !sameBoot {
			g.Through, g.Failed = 0, 0
		}
		g.Processes = slices.DeleteFunc(g.Processes, func(p *rememberedProcess) bool {
			switch {
			case sameBoot && p.kept() && p.Kept.PID == 0: // the launcher died while it was started
				if k, ok := p.Kept.Leader(); ok {
					p.Kept = k
					return false
				}
				end(p.Kept.Pen)
			case sameBoot && p.kept():
				return false
			case sameBoot && p.Kept.PID != 0 && p.Kept.Alive(): // it has got rid of its mark
				if err := endNow(p.Kept, late); err != nil {
					left = append(left, err.Error())
				}
			}
			removeFilesOf(dir, p.ID)
			return true
		})
		r.Groups[name] = g
	}
	if len(left) > 0 {
		return r, fmt.Errorf("launcher: what an earlier launcher has left does not end: %s; end it, or find out what holds it, and start again", strings.Join(left, ", "))
	}
	return r, nil
}

// endNow kills a process that is not ours to wait for, at once: late is when it has to be gone.
func endNow(k proc.Kept, late time.Time) error {
	p, err := proc.Adopt(k, proc.Spec{Args: []string{"left over"}, Linger: -1})
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.End(proc.Deadlines{GiveUp: late})
	return err
}

// orphans returns the groups of processes that were kept, and whose group is not in the configuration: with none desired.
func (r remembered) orphans(groups []GroupConfig) (orphans []GroupConfig) {
	for _, name := range slices.Sorted(maps.Keys(r.Groups)) {
		g := r.Groups[name]
		if len(g.Processes) == 0 || slices.ContainsFunc(groups, func(c GroupConfig) bool { return c.Name == name }) {
			continue
		}
		c := g.Config
		c.Desired, c.MinHealthy, c.DependsOn, c.Listen = 0, Int(0), nil, nil
		orphans = append(orphans, c.withDefaults())
	}
	return orphans
}

// keepFor has each group get what it had listened on, where it is to listen there still: what its port 0 has become could be taken over by
// a group before it that wants that port, and its processes would serve there, too. Within a group a port that is named goes before any
// port, for which another socket is as good.
func (r remembered) keepFor(groups []GroupConfig) {
	named := func(l Listen, s rememberedSocket) bool {
		at, err := address.Parse(l.Network, l.Address) // the name of a host is not looked up for this
		return err == nil && at.Same(s.at())
	}
	alike := func(l Listen, s rememberedSocket) bool { return l == s.Listen }
	for _, g := range groups {
		sockets, left := r.Groups[g.Name].Sockets, slices.Clone(g.Listen)
		for _, is := range []func(Listen, rememberedSocket) bool{named, alike} {
			left = slices.DeleteFunc(left, func(l Listen) bool {
				i := slices.IndexFunc(sockets, func(s rememberedSocket) bool { return s.wanted == nil && is(l, s) })
				if i >= 0 {
					sockets[i].wanted = &l
				}
				return i >= 0
			})
		}
	}
}

// listener returns what an earlier launcher listened on for a group, be it by another name, nil if neither its guardian nor a process
// has it any more. A connection that was waiting there goes on waiting, and none is refused. What the group has got already is
// another one, though both may be a port 0. The name of a host is looked up only where there is another group's to be taken for it.
func (r remembered) listener(group string, l Listen, lookUp func() (Listen, error), has inheritance) (net.Listener, error) {
	free := func(s rememberedSocket) bool {
		return !slices.ContainsFunc(has.files, func(f *os.File) bool { return inodeOf(f) == s.Inode })
	}
	if ln, err := r.Groups[group].listener(r.Guardians, func(s rememberedSocket) bool { return s.wanted != nil && *s.wanted == l && free(s) }); ln != nil || err != nil {
		return ln, err
	}
	same := func(s rememberedSocket) bool {
		if s.wanted != nil || !free(s) {
			return false
		}
		found, err := lookUp()
		if err != nil {
			return false // nor can it be listened on
		}
		at, _ := found.resolve()
		return at.Same(s.at())
	}
	for _, name := range slices.Sorted(maps.Keys(r.Groups)) {
		if ln, err := r.Groups[name].listener(r.Guardians, same); ln != nil || err != nil {
			return ln, err
		}
	}
	return nil, nil
}

// listener is that of the first socket of the group that is the one.
func (r rememberedGroup) listener(guardians []proc.Kept, is func(rememberedSocket) bool) (net.Listener, error) {
	holders := slices.Clone(guardians)
	for _, p := range r.Processes {
		holders = append(holders, p.Kept)
	}
	for _, s := range r.Sockets {
		if !is(s) {
			continue
		}
		var failure error
		for _, k := range holders {
			f, err := takeSocket(k, s.Inode)
			if err != nil {
				failure = err
			}
			if f == nil {
				continue
			}
			ln, err := net.FileListener(f)
			f.Close()
			return ln, err
		}
		if failure == nil && s.Listen.Network == "unix" {
			removeStale(s.Listen.Address)
		}
		return nil, failure
	}
	return nil, nil
}

// removeStale removes a socket that an earlier launcher has made and that nobody listens on any more.
func removeStale(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return
	}
	os.Remove(path)
}

// remember has the group go on where an earlier launcher was.
func (g *group) remember(r rememberedGroup) {
	if r.Revision == 0 {
		return
	}
	g.number, g.found = r.Number, r.Processes
	source := g.sources[g.revision]
	d := digest(g.cfg)
	if r.Config.Desired == g.cfg.Desired { // of which the configuration says nothing new
		if r.Config.OnLauncherDeath == Keep && r.Digest == d { // a job that is done is not done again
			g.short.through, g.short.failed = r.Through, r.Failed
		}
		if len(r.Processes) > 0 || g.short.through > 0 { // where nobody is left, and none is through, all begins anew
			g.short.fewer = r.Fewer
		}
	}
	to := r.Revision
	for _, p := range r.Processes {
		to = max(to, p.Revision)
	}
	g.revision = to + 1
	for _, p := range r.Processes {
		if p.Digest == d {
			g.revision = p.Revision
		}
	}
	if r.Digest == d {
		g.revision = r.Revision
	}
	g.configs, g.sources = map[int]GroupConfig{g.revision: g.cfg}, map[int]any{g.revision: source}
	for _, p := range r.Processes {
		if p.Revision != g.revision {
			g.configs[p.Revision] = p.Config // so that its number is not given again
		}
	}
}

// adopt takes over the processes that were kept.
func (g *group) adopt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, found := range g.found {
		cfg := g.cfg
		if found.Digest != digest(g.cfg) {
			cfg = found.Config.withDefaults()
			cfg.PreStop = g.cfg.PreStop
		}
		p := newProcess(g.manager, g, found.ID, found.Revision, cfg)
		p.finds(found, now)
		if found.Asked != 0 {
			g.excused[p.id] = true
		}
		if !g.launch(p) {
			found.letGo() // it is for the next launcher to adopt
		} else {
			g.found = slices.DeleteFunc(slices.Clone(g.found), func(other *rememberedProcess) bool { return other == found })
		}
	}
}

// finds has a process be one that another launcher has started. The next one has to know of it what is known here, also before it is
// heard of: a launcher can be killed at any time.
func (p *process) finds(found *rememberedProcess, now time.Time) {
	p.found, p.digest, p.kept, p.grace, p.spared = found, found.Digest, found.Kept, found.Grace, found.Spared
	p.port.Store(found.Port)
	st := &p.status
	st.Started = now.Add(time.Duration(found.Kept.Born)*tick - sinceBoot())
	st.ReadyAt, st.Asked, st.Reason = fromBoot(found.Ready), fromBoot(found.Asked), found.Reason
	p.asked = asked{fromBoot(found.Began), fromBoot(found.Granted)}
}

// tick is what the kernel counts the ages of processes in, on all machines that Go runs on.
const tick = 10 * time.Millisecond

// replaceFound begins to replace the adopted processes that are of another configuration. There is no way back: what they
// were started with is not in the state file.
func (g *group) replaceFound() {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := func(p *process) bool { return p.revision != g.revision && !g.excused[p.id] }
	if g.roll != nil { // somebody was quicker to order one, and it replaces them, too
		return
	}
	if g.stopping || g.desired() == 0 || !slices.ContainsFunc(slices.Collect(maps.Values(g.all)), old) {
		return
	}
	g.roll = &rolling{from: g.revision, to: g.revision, reason: "the launcher was started with another configuration", leg: &leg{done: make(chan struct{})}}
	g.roll.state = roll.Begin(g.rollRules(), g.view(time.Now()))
	g.tell(Event{Kind: RollBegun, Message: fmt.Sprintf("to revision %d: %s", g.roll.to, g.roll.reason)})
}

// settle waits until the processes that were adopted as ready are counted on, so that none of them is taken for one that is
// not, and another one is stopped too many.
func (g *group) settle() {
	g.mu.Lock()
	all := slices.Collect(maps.Values(g.all))
	g.mu.Unlock()
	for _, p := range all {
		if p.found != nil && p.found.Ready != 0 && p.found.Asked == 0 {
			<-p.settled
		}
	}
}

// recall returns what the next launcher has to know of the group.
func (g *group) recall(sockets []rememberedSocket) rememberedGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := rememberedGroup{Config: forgetful(g.cfg), Revision: g.revision, Digest: g.digest(), Number: g.number, Fewer: g.short.fewer,
		Through: g.short.through, Failed: g.short.failed, Sockets: sockets, Processes: slices.Clone(g.found)}
	for _, p := range g.sorted() {
		found := p.recall()
		found.Spared = p.spared
		if found.Asked == 0 && slices.Contains(p.through, g.revision) { // unhealthy: the next launcher will count it
			r.Through, r.Failed = max(0, r.Through-1), max(0, r.Failed-1)
		}
		r.Processes = append(r.Processes, found)
	}
	return r
}

func (g *group) digest() string { return digest(g.cfg) }

func (p *process) recall() *rememberedProcess {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := &p.status
	r := &rememberedProcess{ID: p.id, Revision: p.revision, Digest: p.digest, Config: forgetful(*p.rules()), Kept: p.kept,
		Reason: st.Reason, Grace: p.grace, Port: p.port.Load()}
	r.Ready, r.Asked = bootMillis(st.ReadyAt), bootMillis(st.Asked)
	r.Began, r.Granted = bootMillis(p.asked.began), bootMillis(p.asked.granted)
	return r
}

// bootMillis returns an instant for another program on this machine, 0 for none.
func bootMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, (sinceBoot() - time.Since(t)).Milliseconds())
}

// fromBoot returns the instant that another program has written down.
func fromBoot(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(ms)*time.Millisecond - sinceBoot())
}

// recall returns what the next launcher has to know.
func (m *Manager) recall() remembered {
	m.mu.Lock()
	guardians := slices.Concat(m.retiring, m.guardian.kept())
	m.mu.Unlock()
	r := remembered{Boot: proc.Boot(), Pen: m.pen, Guardians: guardians, Groups: map[string]rememberedGroup{}}
	for _, g := range m.allGroups() {
		m.mu.Lock()
		in := m.listeners[g.name]
		m.mu.Unlock()
		r.Groups[g.name] = g.recall(in.sockets())
	}
	return r
}

// hold opens what kept processes print to, before the guardian is ended that reads it: where a process has ended, nobody else has
// its pipe open, and what is in it would be lost with the last who has.
func (r remembered) hold(dir string) {
	for _, g := range r.Groups {
		for _, p := range g.Processes {
			for i, stream := range streams {
				p.outputs[i], _ = openFIFO(fifo(dir, p.ID, stream)) // where that fails, it is told of when the process is adopted
			}
		}
	}
}

// letGo closes what is held of a process that is not adopted; nil: there is none.
func (r *rememberedProcess) letGo() {
	if r == nil {
		return
	}
	for i, f := range r.outputs {
		f.Close()
		r.outputs[i] = nil
	}
}

// clearedAway reports whether a pipe of the process is not there since its launcher has seen it end, and died before it could write that
// down. No more is lost then than what a launcher that is killed has in its hands.
func (r *rememberedProcess) clearedAway(err error) bool {
	return errors.Is(err, fs.ErrNotExist) && !r.Kept.Alive()
}

// adopt starts the process that another launcher has started.
func (p *process) adopt() error {
	files := p.found.outputs
	p.found.outputs = [2]*os.File{}
	for i, stream := range streams {
		if files[i] != nil {
			continue
		}
		var err error
		if files[i], err = openFIFO(fifo(p.manager.dir, p.id, stream)); err != nil && !p.found.clearedAway(err) {
			p.tell(Event{Kind: Alarm, Message: "what it prints is lost: " + err.Error()})
		}
	}
	adopted, err := proc.Adopt(p.found.Kept, proc.Spec{Args: []string{p.id}, ReadStdout: files[0], ReadStderr: files[1]})
	if err != nil {
		return fmt.Errorf("launcher: process %q: %w", p.id, err)
	}
	p.started(adopted)
	return nil
}
