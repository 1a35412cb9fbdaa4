package launcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/address"
)

// A memory is the state file: what the next launcher has to know should this one die. One goroutine, loop, writes it,
// whenever something has changed, and as a whole. Invariants:
//
//   - At its path is always a whole file, or none: a new one is written beside it and renamed.
//   - A process that is to be kept is in it before it is started, with the pen that it will be in. So one that was started a
//     moment before the launcher died is found.
//   - There is nothing secret in it: of commands and environments only a digest. It is 0600 nevertheless.
//
// While it cannot be written, it is tried again, with pauses that double up to retryMost, and at each change; its readers would
// believe what was, else, until something changes again. That it begins to fail is told, a disk that hangs included, and that
// it works again.
//
// The file is synced before it is renamed, so that after a crash of the machine it is not empty. That the rename is lost then
// does not matter: nothing in it lives on.
type memory struct {
	path    string
	recall  func() remembered // what there is to remember
	told    func(error)       // that it begins to fail, or with nil, that it works again
	failing atomic.Bool
	poke    chan struct{}
	quit    chan struct{}
	ended   chan struct{}
	mu      sync.Mutex
	waiting []chan error
}

// remembered is what is in the file. Instants are milliseconds since the boot.
type remembered struct {
	Boot      string                     `json:"boot"`
	Pen       proc.Pen                   `json:"pen"`       // of what dies with the launcher
	Guardians []proc.Kept                `json:"guardians"` // before its own, which is the last, those that it has not ended yet
	Groups    map[string]rememberedGroup `json:"groups"`
}

type rememberedGroup struct {
	Config    GroupConfig          `json:"config"` // of the wanted revision, see forgetful
	Revision  int                  `json:"revision"`
	Digest    string               `json:"digest"`            // see digest
	Number    int                  `json:"number"`            // of the process that was started last
	Fewer     int                  `json:"fewer,omitempty"`   // than Config.Desired, by order
	Through   int                  `json:"through,omitempty"` // who are not among Processes any more, or were asked to stop; see shortfall
	Failed    int                  `json:"failed,omitempty"`  // of these
	Sockets   []rememberedSocket   `json:"sockets,omitempty"`
	Processes []*rememberedProcess `json:"processes,omitempty"`
}

type rememberedProcess struct {
	ID       string        `json:"id"`
	Revision int           `json:"revision"`
	Digest   string        `json:"digest"`
	Config   GroupConfig   `json:"config"` // see forgetful
	Kept     proc.Kept     `json:"process"`
	Ready    int64         `json:"ready,omitempty"`   // when it became so
	Asked    int64         `json:"asked,omitempty"`   // when it was to be stopped
	Began    int64         `json:"began,omitempty"`   // when it was asked to, from which its times count
	Granted  int64         `json:"granted,omitempty"` // until when it has, where it has asked for more
	Reason   string        `json:"reason,omitempty"`
	Grace    time.Duration `json:"grace,omitempty"`
	Port     int32         `json:"port,omitempty"`   // where it serves the protocol over TCP
	Spared   bool          `json:"spared,omitempty"` // nobody follows it, by order, or since it was one too many

	outputs [2]*os.File // of streams, open until it is adopted; see hold
}

type rememberedSocket struct {
	Listen Listen `json:"listen"`
	Inode  uint64 `json:"inode"`
	Has    string `json:"has"` // the address: what a port 0 has become, and what the name of a host stood for

	wanted *Listen // as what the group that had it wants it; nil: it does not
}

// at is where it listens.
func (s rememberedSocket) at() address.Address {
	at, _ := address.Resolve(s.Listen.Network, s.Has)
	return at
}

// anyPort reports whether another one would have done.
func (s rememberedSocket) anyPort() bool {
	at, err := address.Parse(s.Listen.Network, s.Listen.Address)
	return err == nil && at.AnyPort()
}

// String says where it listens, as it was written.
func (s rememberedSocket) String() string {
	if s.anyPort() {
		return s.Listen.at() + ", which is " + s.Has
	}
	return s.Listen.at()
}

// kept reports whether it is for the next launcher to adopt.
func (p *rememberedProcess) kept() bool { return p.Config.OnLauncherDeath == Keep }

// envelope is the file. Its digest tells a file that somebody, or a disk, has changed: by a wrong number a process would be
// lost, or taken for another one.
type envelope struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of State
	State   json.RawMessage `json:"state"`
}

const (
	stateFormat  = "swansong launcher state"
	stateVersion = 1
)

// stateIn returns where a launcher with this directory remembers its processes.
func stateIn(dir string) string { return filepath.Join(dir, "state.json") }

// A StateError says that the state file of an earlier launcher cannot be used. It has been left as it was.
type StateError struct {
	Path  string
	Cause error
}

func (e *StateError) Error() string {
	return fmt.Sprintf("launcher: the state file %s cannot be used: %v; it has been left as it is. Bring back a whole one, or move it away "+
		"to start without it: processes that an earlier launcher has kept then run on unseen, with SWANSONG_PROC in their environment, "+
		"and are yours to end", e.Path, e.Cause)
}

func (e *StateError) Unwrap() error { return e.Cause }

// readState returns what an earlier launcher has remembered, nothing if there was none.
func readState(path string) (r remembered, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		r, err = decodeState(text)
	}
	if err != nil {
		return remembered{}, &StateError{path, err}
	}
	return r, nil
}

func decodeState(text []byte) (r remembered, err error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return r, fmt.Errorf("it is no whole JSON: %w", err)
	}
	switch {
	case e.Format != stateFormat:
		return r, fmt.Errorf("its format is %q and not %q, so it is somebody else's", e.Format, stateFormat)
	case e.Version != stateVersion:
		return r, fmt.Errorf("it is of version %d, and this launcher reads version %d; use the launcher that wrote it", e.Version, stateVersion)
	case e.SHA256 != sumOf(e.State):
		return r, errors.New("it has been changed since it was written: the digest is another one")
	}
	d := json.NewDecoder(bytes.NewReader(e.State))
	d.DisallowUnknownFields()
	return r, d.Decode(&r)
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// nextOf is where a state file is written before it is renamed.
func nextOf(path string) string { return path + ".next" }

func writeState(path string, r remembered) error {
	state, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text, err := json.Marshal(envelope{stateFormat, stateVersion, sumOf(state), state})
	if err != nil {
		return err
	}
	next := nextOf(path)
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		os.Remove(next)
	}
	return err
}

// forgetful returns the configuration without what may be secret: enough to stop a process by.
func forgetful(g GroupConfig) GroupConfig {
	g.Command, g.Env, g.PreStop = nil, nil, nil
	return g
}

// digest tells configurations apart whose processes are not the same.
func digest(g GroupConfig) string {
	text, _ := json.Marshal(struct {
		Command  []string
		WorkDir  string
		Env      []string
		Protocol Protocol
		At       TransportConfig
		Listen   []Listen
		Log      LogConfig
		OnDeath  LauncherDeath
	}{g.Command, g.WorkDir, g.Env, g.Protocol, g.Transport, g.Listen, g.Log, g.OnLauncherDeath})
	return sumOf(text)
}

// expecting returns what an earlier launcher has left, and a pen that is about to be made.
func (r remembered) expecting(pen proc.Pen) remembered {
	r.Boot, r.Pen = proc.Boot(), pen
	if r.Groups == nil {
		r.Groups = map[string]rememberedGroup{}
	}
	return r
}

// dispensable reports whether there is nothing in it that the next launcher has to know.
func (r remembered) dispensable() bool {
	for _, g := range r.Groups {
		if len(g.Processes) > 0 {
			return false
		}
	}
	return true
}

func newMemory(path string, recall func() remembered, told func(error)) *memory {
	return &memory{path: path, recall: recall, told: told, poke: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
}

// begin writes what there is, and goes on to write what becomes of it, until close. It waits for the disk as written does.
func (m *memory) begin(stop <-chan struct{}) error {
	go m.loop()
	return m.written(stop)
}

// note has the file written anew, soon.
func (m *memory) note() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// writePatience is how long a disk may take for what somebody waits for.
const writePatience = 10 * time.Second

// written returns when all that was to be remembered by now is in the file. It waits for the disk no longer than
// writePatience, and than closePatience when there is no more use for it, which is when stop is closed.
func (m *memory) written(stop <-chan struct{}) error {
	done := make(chan error, 1)
	m.mu.Lock()
	m.waiting = append(m.waiting, done)
	m.mu.Unlock()
	m.note()
	by := time.Now().Add(writePatience)
	late := time.NewTimer(writePatience)
	defer late.Stop()
	hangs := m.hangs()
	for {
		select {
		case err := <-done:
			return err
		case <-m.ended:
			return fs.ErrClosed
		case <-stop:
			stop = nil
			late.Reset(min(closePatience, time.Until(by)))
			hangs = fmt.Errorf("the disk has not taken %s within %v of the stop", m.path, closePatience)
		case <-late.C:
			m.mu.Lock()
			defer m.mu.Unlock()
			m.waiting = slices.DeleteFunc(m.waiting, func(w chan error) bool { return w == done })
			return hangs
		}
	}
}

// Between tries to write the file.
const (
	retryLeast = 100 * time.Millisecond
	retryMost  = 30 * time.Second
)

func (m *memory) loop() {
	defer close(m.ended)
	pause := retryLeast
	again := time.NewTimer(pause)
	defer again.Stop()
	again.Stop()
	for {
		select {
		case <-m.poke:
		case <-again.C:
		case <-m.quit:
			return
		}
		m.mu.Lock()
		waiting := m.waiting
		m.waiting = nil
		m.mu.Unlock()
		err := m.write()
		again.Stop()
		if err == nil {
			pause = retryLeast
		} else {
			again.Reset(pause)
			pause = min(2*pause, retryMost)
		}
		for _, w := range waiting {
			w <- err
		}
	}
}

// write writes the file, however long that takes, and tells when it fails, or takes too long.
func (m *memory) write() error {
	told := make(chan struct{})
	late := time.AfterFunc(writePatience, func() {
		defer close(told)
		m.fails(m.hangs())
	})
	err := writeState(m.path, m.recall())
	if !late.Stop() {
		<-told
	}
	m.fails(err)
	return err
}

// fails tells of a failure that was not there before, or with nil, of the end of one.
func (m *memory) fails(err error) {
	if was := m.failing.Swap(err != nil); was != (err != nil) {
		m.told(err)
	}
}

func (m *memory) hangs() error {
	return fmt.Errorf("the disk has not taken %s within %v; see why it hangs", m.path, writePatience)
}

// closePatience is how long a disk may take for the file once everything is about to stop.
const closePatience = time.Second

// close removes the file, if it is no more use, and then calls closed: nobody else may write it before. Where the disk hangs, close
// returns nevertheless, and that is done should the disk go on.
func (m *memory) close(remove bool, closed func()) {
	close(m.quit)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer closed()
		<-m.ended
		if remove {
			os.Remove(m.path)
		}
	}()
	late := time.NewTimer(closePatience)
	defer late.Stop()
	select {
	case <-over:
	case <-late.C:
	}
}
