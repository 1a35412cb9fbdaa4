//go:build unix

package statefile_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// obstruct makes writing the state file fail, also for root, until clear is called.
func obstruct(t *testing.T, path string) (clear func()) {
	t.Helper()
	next := path + ".next"
	err := os.Mkdir(next, 0o700)
	for errors.Is(err, fs.ErrExist) { // the Writer has this file at the moment, so try again
		err = os.Mkdir(next, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(next); err != nil {
			t.Error(err)
		}
	}
}

// start returns a Writer, which it has started, and the error of Start. The Writer calls the
// function state before each write.
func start(path string, state func(), report func(error)) (*statefile.Writer, error) {
	w := statefile.NewWriter(path, statefile.State{}, func() statefile.State { state(); return statefile.State{} }, report)
	return w, w.Start(nil)
}

// A failing write is repeated after pauses that double up to a maximum, and begin anew after a
// success.
func TestWriter_RetriesFailedWriteWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := statefile.Path(t.TempDir())
		writes, reports := make(chan time.Time, 1000), make(chan error, 1000)
		w, err := start(path, func() { writes <- time.Now() }, func(err error) { reports <- err })
		if err != nil {
			t.Fatal(err)
		}
		fail := func(d time.Duration) (pauses []time.Duration, clear func()) {
			clear = obstruct(t, path)
			w.Changed()
			last := time.Now()
			time.Sleep(d)
			synctest.Wait()
			for <-writes; len(writes) > 0; {
				at := <-writes
				pauses, last = append(pauses, at.Sub(last)), at
			}
			return pauses, clear
		}
		<-writes // skip the first write, which Start makes
		const ms = time.Millisecond
		pauses, clear := fail(2 * time.Minute)
		testkit.Equal(t, "pauses", pauses, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms,
			25600 * ms, 30 * time.Second, 30 * time.Second})
		clear()
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, "reports of failure", []bool{<-reports != nil, <-reports != nil}, []bool{true, false})
		testkit.Equal(t, "further reports", len(reports), 0)
		<-writes // the write after the failed ones, which succeeds
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, "writes after the success", len(writes), 0)
		pauses, _ = fail(time.Second)
		testkit.Equal(t, "pauses of the next failure", pauses, []time.Duration{100 * ms, 200 * ms, 400 * ms})
		w.Close(true, func() {})
	})
}

// If a write has failed, further changes do not lengthen the pause before the next attempt.
func TestWriter_ChangesDoNotProlongPauseAfterFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := statefile.Path(t.TempDir())
		w, err := start(path, func() {}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		clear := obstruct(t, path)
		for range 20 {
			w.Changed()
			synctest.Wait()
		}
		testkit.Equal(t, "failing", w.Failing(), true)
		clear()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		testkit.Equal(t, "failing after the first pause", w.Failing(), false)
		w.Close(true, func() {})
	})
}

// Flush waits at most ten seconds for a disk that hangs, and at most one second after the stop.
func TestFlush_ReturnsWhenDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock, passes := make(chan bool), make(chan bool, 1)
		passes <- true // lets the first write, which start makes, succeed
		w, err := start(statefile.Path(t.TempDir()), func() {
			select {
			case <-passes:
			case <-unblock:
			}
		}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ stopAfter, want time.Duration }{
			{time.Hour, 10 * time.Second},
			{time.Second, 2 * time.Second},
			{9900 * time.Millisecond, 10 * time.Second},
			{0, time.Second},
		} {
			begin := time.Now()
			stop := make(chan struct{})
			timer := time.AfterFunc(c.stopAfter, func() { close(stop) })
			if err := w.Flush(stop); err == nil || !strings.Contains(err.Error(), "the disk did not write") {
				t.Errorf("Flush: %v", err)
			}
			timer.Stop()
			testkit.Equal(t, "time that Flush took", time.Since(begin), c.want)
		}
		close(unblock)
		if err := w.Flush(nil); err != nil {
			t.Error(err)
		}
		w.Close(true, func() {})
	})
}

// Start waits at most ten seconds for the disk, and then returns an error.
func TestStart_ReturnsWithinTenSecondsIfDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock, begin := make(chan bool), time.Now()
		w, err := start(statefile.Path(t.TempDir()), func() { <-unblock }, func(error) {})
		if err == nil || !strings.Contains(err.Error(), "the disk did not write") {
			t.Errorf("Start: %v", err)
		}
		testkit.Equal(t, "time that Start took", time.Since(begin), 10*time.Second)
		close(unblock)
		w.Close(true, func() {})
	})
}

// A disk that hangs is reported like a write that fails, and so is its recovery.
func TestWriter_ReportsHangingDiskAndRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock, passes, reports := make(chan bool), make(chan bool, 1), make(chan error, 2)
		passes <- true // lets the first write, which start makes, succeed
		w, err := start(statefile.Path(t.TempDir()), func() {
			select {
			case <-passes:
			case <-unblock:
			}
		}, func(err error) { reports <- err })
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		w.Changed()
		if err := <-reports; err == nil || !strings.Contains(err.Error(), "the disk did not write") {
			t.Errorf("the report is %v", err)
		}
		testkit.Equal(t, "time until the report", time.Since(begin), 10*time.Second)
		close(unblock)
		if err := <-reports; err != nil {
			t.Errorf("the report of the recovery is %v", err)
		}
		w.Close(true, func() {})
		testkit.Equal(t, "further reports", len(reports), 0)
	})
}

// A group without newer keys has the digest that the previous release of the launcher recorded,
// so that an update of the launcher alone rolls nothing.
func TestDigest_IsAsInPreviousRelease(t *testing.T) {
	g := spec.Group{Name: "web", Command: []string{"serve", "--fast"}, WorkDir: "/srv", Env: []string{"A=1"}, Protocol: spec.GRPC,
		Transport: spec.Transport{Network: "unix"}, Listen: []spec.Listen{{Network: "tcp", Address: ":8080"}}, Log: spec.Log{Dir: "/var/log"},
		OnLauncherDeath: spec.Keep, Limits: spec.Limits{IfUnavailable: spec.Refuse}}
	const recorded = "f5983574109279e5b8954a5d59564abfd18e89ee2c970c6edc1427f7fcc9c145"
	testkit.Equal(t, "digest", statefile.Digest(g), recorded)
	for _, change := range []func(g *spec.Group){
		func(g *spec.Group) { g.LivenessProbe.Exec.Command = []string{"true"} },
		func(g *spec.Group) { g.Watchdog = time.Second },
		func(g *spec.Group) { g.ClearEnv = true },
		func(g *spec.Group) { g.User = "www" },
		func(g *spec.Group) { g.Rlimits = []spec.Rlimit{{Name: "nofile", Soft: 1, Hard: 1}} },
		func(g *spec.Group) { g.Limits.Memory = 1 },
		func(g *spec.Group) { g.PreStop = []spec.Hook{{Command: []string{"drain", "{port}"}}} },
	} {
		other := g
		change(&other)
		if statefile.Digest(other) == recorded {
			t.Errorf("the digest does not change with the configuration: %+v", other)
		}
	}
}

// A launcher reads the file that a launcher of the previous version has written. The file in
// testdata is such a file.
func TestRead_ReadsFileOfPreviousVersion(t *testing.T) {
	s, err := statefile.Read("testdata/version-1.json")
	if err != nil {
		t.Fatal(err)
	}
	g := s.Groups["keeper"]
	if len(g.Processes) != 1 || g.Processes[0].ID != "keeper-1" || g.Processes[0].Adoptable.PID == 0 || len(g.Sockets) != 1 || g.Sockets[0].Address == "" {
		t.Errorf("the group is %+v", g)
	}
	testkit.Equal(t, "mark of the containment", s.Containment.Mark, "R5V2QPNFEP2GPLDGGFJXJQQNAJ")
	text, err := os.ReadFile("testdata/version-1.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.json")
	for _, version := range []string{"0", "3"} {
		other := strings.Replace(string(text), `"version":1`, `"version":`+version, 1)
		if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := statefile.Read(path); err == nil || !strings.Contains(err.Error(), "unsupported version "+version+", want 1 or 2") {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

// Some keys of the state file were renamed. A file with the old keys can still be read, and is
// written with the new keys. The name of a group is also a key in the file, and must not be renamed
// even if it is an old key: so the group in this file has the name pen, which is an old key.
func TestRead_ReadsFileWithOldKeys(t *testing.T) {
	s, err := statefile.Read("testdata/old-keys.json")
	if err != nil {
		t.Fatal(err)
	}
	cfg := spec.Group{Name: "pen", OnLauncherDeath: spec.Keep}
	want := statefile.State{Boot: "boot", Containment: proc.Containment{Mark: "C"}, Guardians: []proc.Adoptable{{Containment: proc.Containment{Mark: "G"}, PID: 2, Born: 3}},
		Groups: map[string]statefile.Group{"pen": {Config: cfg, Revision: 4, Digest: "d", LastNumber: 5, ScaledDown: 6, Stopped: true, Finished: 7, FinishedFailed: 8,
			Sockets: []statefile.Socket{{Listen: spec.Listen{Network: "tcp", Address: ":0"}, Inode: 9, Address: "[::]:10"}},
			Processes: []*statefile.Process{{ID: "pen-5", Revision: 4, Digest: "d", Config: cfg, Adoptable: proc.Adoptable{Containment: proc.Containment{Mark: "P"}, PID: 11, Born: 12},
				State: lifecycle.Ready, Since: 13, ReadyAt: 14, StopAt: 15, AskedAt: 16, GrantedUntil: 17, Signals: 18, Reason: "r", Grace: time.Second, NotReplaced: true}}}}}
	testkit.Equal(t, "state", s, want)

	path := filepath.Join(t.TempDir(), "state.json")
	if err := statefile.Write(path, s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{`"pen":{"mark"`, `"fewer"`, `"through"`, `"asked"`, `"began"`, `"spared"`, `"has"`} {
		if strings.Contains(string(text), old) {
			t.Errorf("the file is written with the old key %s: %s", old, text)
		}
	}
	again, err := statefile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "state that was written and read", again, want)
}

// To read a state file with a field that this version does not know is an error, wherever in the
// file the field is.
func TestRead_RefusesUnknownField(t *testing.T) {
	text, err := os.ReadFile("testdata/old-keys.json")
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(strings.TrimSuffix(string(text), "}"), `"state":`)
	for _, known := range []string{"boot", "fewer", "spared", "has", "born"} {
		changed := strings.Replace(state, `"`+known+`":`, `"new":`, 1)
		path := filepath.Join(t.TempDir(), "state.json")
		file := fmt.Sprintf(`{"format":"swansong launcher state","version":2,"sha256":"%x","state":%s}`, sha256.Sum256([]byte(changed)), changed)
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := statefile.Read(path); err == nil || !strings.Contains(err.Error(), `unknown field "new"`) {
			t.Errorf("with an unknown field in the place of %q: %v", known, err)
		}
	}
}
