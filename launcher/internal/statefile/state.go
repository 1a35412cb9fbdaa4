// Package statefile manages what remains after a launcher has ended: its directory, the lock on
// that directory, and the state file. The state file tells the next launcher with the same
// directory what this launcher was doing.
package statefile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A State is the content of a state file. Times are in milliseconds since boot; see [ToMillis].
//
// A State contains no secrets: commands and environments are represented only by a digest.
type State struct {
	Boot        string           `json:"boot"`        // identifies the boot of the machine
	Containment proc.Containment `json:"containment"` // what holds together the processes that must die with the launcher: a cgroup, or a mark in their environment
	Guardians   []proc.Adoptable `json:"guardians"`   // processes that end the launcher's processes if it is killed: those of earlier launchers that still run, and last that of this launcher
	Groups      map[string]Group `json:"groups"`
}

// A Group is the state of a group of processes.
type Group struct {
	Config         spec.Group `json:"config"` // configuration of the current revision; see [WithoutSecrets]
	Revision       int        `json:"revision"`
	Digest         string     `json:"digest"`                // digest of Config; see [Digest]
	LastNumber     int        `json:"number"`                // number in the id of the process that was started last
	ScaledDown     int        `json:"scaled_down,omitempty"` // how many fewer processes than Config.Desired an operator has ordered; negative: more
	Stopped        bool       `json:"stopped,omitempty"`     // an operator has stopped the group
	Finished       int        `json:"finished,omitempty"`    // number of finished processes, which are not replaced
	FinishedFailed int        `json:"failed,omitempty"`      // number of finished processes that ended with a failure
	Sockets        []Socket   `json:"sockets,omitempty"`
	Processes      []*Process `json:"processes,omitempty"`
}

// A Process is the state of a process. Each time is 0 if its event has not happened.
type Process struct {
	ID           string          `json:"id"`
	Revision     int             `json:"revision"`
	Digest       string          `json:"digest"`             // digest of Config; see [Digest]
	Config       spec.Group      `json:"config"`             // configuration of the process; see [WithoutSecrets]
	Adoptable    proc.Adoptable  `json:"process"`            // identifies the process; its PID is 0 if the process was about to be started
	State        lifecycle.State `json:"state,omitempty"`    // 0 in the file of an earlier version, which did not record the state
	Since        int64           `json:"since,omitempty"`    // when the process entered State
	ReadyAt      int64           `json:"ready,omitempty"`    // when the process became ready
	StopAt       int64           `json:"stop_at,omitempty"`  // when the stop of the process was ordered
	AskedAt      int64           `json:"asked_at,omitempty"` // when the process was first asked to stop
	GrantedUntil int64           `json:"granted,omitempty"`  // the deadline after the last request of the process for more time
	Signals      int             `json:"signals,omitempty"`  // how many stop signals the process got; since version 2
	Reason       string          `json:"reason,omitempty"`   // why the process is stopped
	Grace        time.Duration   `json:"grace,omitempty"`
	Port         int32           `json:"port,omitempty"`         // port of the process's lifecycle service over TCP
	ServicePort  int             `json:"service_port,omitempty"` // what {port} stands for; 0: nothing
	Uses         spec.Protocol   `json:"uses,omitempty"`         // with protocol auto, the protocol that the process uses
	// Warming is set if the process was ready before and its readiness probe fails now.
	Warming     bool `json:"warming,omitempty"`
	NotReplaced bool `json:"not_replaced,omitempty"` // after the stop of the process, no other is started in its place

	lifecycle.Reported

	// Outputs are the pipes of the process, in the order of [output.Streams]. They are not written
	// to the file: OpenOutputs opens them, and they stay here until the process is adopted.
	Outputs [2]*os.File `json:"-"`
	Notify  *os.File    `json:"-"` // the socket for sd_notify(3) messages; nil if the launcher has to make it
	Kept    [2][]byte   `json:"-"` // beginnings of lines, which the earlier launcher has read from Outputs before the lines were complete

	// Args and Env are the arguments and the environment with which the process was started. The
	// launcher that adopts the process masks the secrets in them. ReadStartedWith reads them from
	// the running process, because they are not written to the file.
	Args []string `json:"-"`
	Env  []string `json:"-"`
}

// A Socket is a listening socket of a group.
type Socket struct {
	Listen  spec.Listen `json:"listen"`
	Inode   uint64      `json:"inode"`
	Address string      `json:"address"` // the actual address, with the port and the IP address that Listen may leave open

	// ReservedFor is the listener that takes over this socket, as the configuration of the group
	// describes it; nil if no listener takes it over. It is not written to the file.
	ReservedFor *spec.Listen `json:"-"`
}

// Resolve returns the actual address, as the kernel reports it, so no host name has to be looked
// up.
func (s Socket) Resolve() address.Address {
	a, _ := address.Resolve(s.Listen.Network, s.Address)
	return a
}

// String returns the configured address. If that has port 0, String also returns the actual
// address.
func (s Socket) String() string {
	configured := s.Listen.Network + " " + s.Listen.Address
	if a, err := address.Parse(s.Listen.Network, s.Listen.Address); err == nil && a.AnyPort() {
		return configured + ", which is " + s.Address
	}
	return configured
}

// IsKept reports whether the next launcher adopts the process.
func (p *Process) IsKept() bool { return p.Config.OnLauncherDeath == spec.Keep }

// WithoutSecrets returns the configuration without what may be secret. The rest is enough to stop a
// process.
func WithoutSecrets(g spec.Group) spec.Group {
	g.Command, g.Env, g.PreStop, g.Roll.Check = nil, nil, nil, spec.CanaryCheck{}
	g.StartupProbe, g.ReadinessProbe, g.LivenessProbe = spec.Probe{}, spec.Probe{}, spec.Probe{}
	return g
}

// Digest returns a digest of the fields of a configuration that a process cannot change while it
// runs. A process has to be replaced if the digest changes.
//
// The next launcher cannot compare the configurations themselves, because the file does not have
// all of them; see [WithoutSecrets]. There is one digest of all fields together, because a short
// secret could be guessed from a digest of its own. Only its user can read the file.
func Digest(g spec.Group) string {
	d := struct {
		Command  []string
		WorkDir  string
		Env      []string
		Protocol spec.Protocol
		At       spec.Transport
		Listen   []spec.Listen
		Log      spec.Log
		OnDeath  spec.LauncherDeath

		// These fields are omitted where they are not set, so that digests of launchers that did
		// not have them stay valid.
		Probes   []spec.Probe  `json:",omitempty"`
		Watchdog time.Duration `json:",omitempty"`
		ClearEnv bool          `json:",omitempty"`
		User     string        `json:",omitempty"`
		Rlimits  []spec.Rlimit `json:",omitempty"`
		Limits   spec.Limits   `json:",omitzero"`
		Port     bool          `json:",omitempty"` // whether the launcher chooses a port for the process, even if only a hook uses it
	}{g.Command, g.WorkDir, g.Env, g.Protocol, g.Transport, g.Listen, g.Log, g.OnLauncherDeath, nil, g.Watchdog, g.ClearEnv, "", g.Rlimits, spec.Limits{}, g.UsesPort()}
	if probes := g.Probes(); slices.ContainsFunc(probes, spec.Probe.IsSet) {
		d.Probes = probes
	}
	if g.User != "" || g.UserGroup != "" {
		d.User = g.User + ":" + g.UserGroup
	}
	if g.Limits.AreSet() {
		d.Limits = g.Limits
	}
	text, _ := json.Marshal(d)
	return checksum(text)
}

// checksum returns the SHA-256 of b in hexadecimal digits.
func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// WithContainment returns the state of an earlier launcher with c added, the containment (a cgroup,
// or a mark in the environment) that a new launcher is about to create for its processes.
func (s State) WithContainment(c proc.Containment) State {
	s.Boot, s.Containment = proc.Boot(), c
	if s.Groups == nil {
		s.Groups = map[string]Group{}
	}
	return s
}

// Processes returns the processes of all groups, in no particular order. If there is none, the next
// launcher does not need the state, and a launcher that ends removes the file.
func (s State) Processes() (all []*Process) {
	for _, g := range s.Groups {
		all = append(all, g.Processes...)
	}
	return all
}

// HasKept reports whether the state contains anything for the next launcher to adopt: processes
// that outlive the launcher, their listeners, finished processes, which must not be run again, or
// stopped groups.
func (s State) HasKept() bool {
	for _, g := range s.Groups {
		if g.Stopped || g.Config.OnLauncherDeath == spec.Keep && (len(g.Sockets) > 0 || g.Finished > 0) || slices.ContainsFunc(g.Processes, (*Process).IsKept) {
			return true
		}
	}
	return false
}

// ReadStartedWith sets Args and Env of each process, as far as the system tells them. A call of the
// system may take long, so the caller should hold no lock.
func (s State) ReadStartedWith() {
	for _, p := range s.Processes() {
		read := func(name string) []string {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Adoptable.PID, name))
			if err != nil {
				return nil
			}
			return strings.Split(string(text), "\x00")
		}
		p.Args, p.Env = read("cmdline"), read("environ")
	}
}

// OpenOutputs opens the pipes of all processes. A new launcher must call it before it ends the
// guardian, a process that reads the pipes after the earlier launcher was killed: the content of
// the pipe of an ended process is lost when its last reader closes it. OpenOutputs ignores errors;
// they are reported when the process is adopted.
func (s State) OpenOutputs(dir string) {
	for _, p := range s.Processes() {
		for i, stream := range output.Streams {
			p.Outputs[i], _ = output.OpenFIFO(FileOf(dir, p.ID, stream))
		}
	}
}

// CloseOutputs closes the pipes of a process that this launcher does not adopt after all. The
// process can be nil.
func (p *Process) CloseOutputs() {
	if p == nil {
		return
	}
	for i, f := range p.Outputs {
		f.Close()
		p.Outputs[i] = nil
	}
}

// TakeNotify returns the socket for messages that was handed over, nil if there is none. The
// process can be nil.
func (p *Process) TakeNotify() *os.File {
	if p == nil {
		return nil
	}
	return p.Notify
}

// OutputRemoved reports whether err, which opening a pipe of the process has returned, means that
// the earlier launcher removed the pipe after the process had ended, and was killed before it wrote
// the state file. In this case, only the output that the killed launcher had in memory is lost.
func (p *Process) OutputRemoved(err error) bool {
	return errors.Is(err, fs.ErrNotExist) && !p.Adoptable.Alive()
}

// Orphans returns the groups that are not configured any more, and have processes that have
// outlived an earlier launcher. In the result their number of desired processes is 0, so that these
// processes are adopted and then stopped.
func (s State) Orphans(configured []spec.Group) (orphans []spec.Group) {
	for _, name := range slices.Sorted(maps.Keys(s.Groups)) {
		g := s.Groups[name]
		if len(g.Processes) == 0 || slices.ContainsFunc(configured, func(c spec.Group) bool { return c.Name == name }) {
			continue
		}
		c := g.Config
		c.Desired, c.MinHealthy, c.DependsOn, c.Listen = 0, 0, nil, nil
		orphans = append(orphans, c)
	}
	return orphans
}
