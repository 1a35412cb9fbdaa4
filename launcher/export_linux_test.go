package launcher

import (
	"path/filepath"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// DieStarting leaves the files of a launcher that died before it had started the only process of a
// group: a state file, and the empty cgroups of the launcher and of the process. It returns these
// cgroups.
func DieStarting(dir string, cfg GroupConfig) (cgroups []string, err error) {
	g := cfg.resolve()
	own, its := proc.NewContainment(), proc.NewContainment()
	own.Make()
	its.Make()
	p := &statefile.Process{ID: g.Name + "-1", Revision: 1, Digest: statefile.Digest(g), Config: statefile.WithoutSecrets(g), Adoptable: proc.Adoptable{Containment: its}}
	s := statefile.State{Boot: proc.Boot(), Containment: own, Groups: map[string]statefile.Group{
		g.Name: {Config: statefile.WithoutSecrets(g), Revision: 1, Digest: statefile.Digest(g), LastNumber: 1, Processes: []*statefile.Process{p}},
	}}
	return []string{own.Cgroup, its.Cgroup}, statefile.Write(statefile.Path(dir), s)
}

// Remembered lists what the state file contains about a process. Times are given as how long ago
// they were; a negative one is in the future.
type Remembered struct {
	Ready, Stop, Asked, Granted time.Duration
	Reason                      string
	Grace                       time.Duration
	Port                        int32
}

// RestoredAndRecalled restores a process from the given entry of a state file. It returns the entry
// that the new launcher would write while the adopted process has not answered yet.
func RestoredAndRecalled(m *Manager, cfg GroupConfig, r Remembered) Remembered {
	g := newGroup(m, cfg.resolve(), nil)
	defer g.scope.Shutdown()
	p := process.New(g.shared, cfg.Name+"-1", 1, g.config())
	now := time.Now()
	ms := func(ago time.Duration) int64 { return statefile.ToMillis(now.Add(-ago)) }
	p.Restore(&statefile.Process{ReadyAt: ms(r.Ready), StopAt: ms(r.Stop), AskedAt: ms(r.Asked), GrantedUntil: ms(r.Granted), Reason: r.Reason, Grace: r.Grace, Port: r.Port}, now)
	found := p.Record()
	ago := func(ms int64) time.Duration { return now.Sub(statefile.FromMillis(ms)).Round(10 * time.Second) }
	return Remembered{ago(found.ReadyAt), ago(found.StopAt), ago(found.AskedAt), ago(found.GrantedUntil), found.Reason, found.Grace, found.Port}
}

// OwnCgroup returns the cgroup in which the launcher creates cgroups. It returns an empty string if
// the launcher cannot create any.
func OwnCgroup() string {
	if c := proc.NewContainment().Cgroup; c != "" {
		return filepath.Dir(c)
	}
	return ""
}
