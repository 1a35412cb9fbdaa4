package launcher

import (
	"path/filepath"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// DieStarting leaves in a directory what a launcher leaves there that dies before it has started the only process of a group:
// its own pen, and that of the process, with nobody in them. It returns their cgroups.
func DieStarting(dir string, g GroupConfig) (cgroups []string, err error) {
	g = g.withDefaults()
	own, its := proc.NewPen(), proc.NewPen()
	own.Make()
	its.Make()
	p := &rememberedProcess{ID: g.Name + "-1", Revision: 1, Digest: digest(g), Config: forgetful(g), Kept: proc.Kept{Pen: its}}
	r := remembered{Boot: proc.Boot(), Pen: own, Groups: map[string]rememberedGroup{
		g.Name: {Config: forgetful(g), Revision: 1, Digest: digest(g), Number: 1, Processes: []*rememberedProcess{p}},
	}}
	return []string{own.Cgroup, its.Cgroup}, writeState(stateIn(dir), r)
}

// A Remembered is what the state file has of a process, with instants as how long ago they are, negative: yet to come.
type Remembered struct {
	Ready, Asked, Began, Granted time.Duration
	Reason                       string
	Grace                        time.Duration
	Port                         int32
}

// FoundAndRecalled returns what the next launcher is to know of a process that this one has found as that, and not heard of yet.
func FoundAndRecalled(m *Manager, cfg GroupConfig, r Remembered) Remembered {
	g := newGroup(m, cfg.withDefaults(), nil)
	defer g.scope.Shutdown()
	p := newProcess(m, g, cfg.Name+"-1", 1, g.cfg)
	now := time.Now()
	ms := func(ago time.Duration) int64 { return bootMillis(now.Add(-ago)) }
	p.finds(&rememberedProcess{Ready: ms(r.Ready), Asked: ms(r.Asked), Began: ms(r.Began), Granted: ms(r.Granted), Reason: r.Reason, Grace: r.Grace, Port: r.Port}, now)
	found := p.recall()
	ago := func(ms int64) time.Duration { return now.Sub(fromBoot(ms)).Round(10 * time.Second) }
	return Remembered{ago(found.Ready), ago(found.Asked), ago(found.Began), ago(found.Granted), found.Reason, found.Grace, found.Port}
}

// ThroughAndRecalled returns how many jobs are through for the next launcher where one is unhealthy, and was asked to stop, or is about to be.
func ThroughAndRecalled(m *Manager, cfg GroupConfig, asked bool) int {
	g := newGroup(m, cfg.withDefaults(), nil)
	defer g.scope.Shutdown()
	p := newProcess(m, g, cfg.Name+"-1", 1, g.cfg)
	if asked {
		p.status.Asked = time.Now()
	}
	g.all[p.id] = p
	g.ends(p, g.revision, true)
	return g.recall(nil).Through
}

// OwnCgroup returns where cgroups are made, empty where none can be.
func OwnCgroup() string {
	if c := proc.NewPen().Cgroup; c != "" {
		return filepath.Dir(c)
	}
	return ""
}
