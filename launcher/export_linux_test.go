package launcher

import (
	"path/filepath"

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

// OwnCgroup returns where cgroups are made, empty where none can be.
func OwnCgroup() string {
	if c := proc.NewPen().Cgroup; c != "" {
		return filepath.Dir(c)
	}
	return ""
}
