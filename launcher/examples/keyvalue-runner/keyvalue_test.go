//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/internal/load"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"
)

// asServer is the environment variable that makes the test binary act as the server.
const asServer = "KEYVALUE_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		os.Exit(run(os.Args[1:], os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// tooLong is a timeout that only broken code reaches.
const tooLong = time.Minute

// A keyvalue is a group of processes of this server, run by a launcher.
type keyvalue struct {
	*launcher.Manager
	t      *testing.T
	ctx    context.Context
	dir    string // contains the database file and the directory of the launcher
	addr   string
	events <-chan launcher.Event
}

// launch starts a group with the settings of launcher.yaml.
func launch(t *testing.T, args ...string) *keyvalue {
	t.Helper()
	dir, err := os.MkdirTemp("", "kv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	t.Cleanup(cancel)
	m, err := launcher.Start(ctx, launcher.Config{Dir: filepath.Join(dir, "l"), Groups: []launcher.GroupConfig{{
		Name:    "keyvalue",
		Command: append([]string{os.Args[0], "--db", filepath.Join(dir, "db")}, args...),
		// A program built with the race detector waits for a second before it exits; this setting
		// avoids that.
		Env:        []string{asServer + "=1", "GORACE=atexit_sleep_ms=0"},
		Desired:    1,
		MinHealthy: launcher.Int(0),
		Listen:     []launcher.Listen{{Address: "127.0.0.1:0"}},
		Shutdown:   launcher.ShutdownConfig{Grace: 10 * time.Second, Max: tooLong, Poll: 50 * time.Millisecond},
		Restart:    launcher.RestartConfig{MinBackoff: time.Millisecond, ResetAfter: time.Millisecond},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	events, stop := m.Watch()
	t.Cleanup(stop)
	kv := &keyvalue{m, t, ctx, dir, m.Addrs("keyvalue")[0].String(), events}
	t.Cleanup(kv.stop)
	return kv
}

func (kv *keyvalue) stop() {
	kv.t.Helper()
	if err := kv.Shutdown().Wait(kv.ctx); err != nil {
		kv.Force(errors.New("the test is over"))
		kv.t.Errorf("the launcher does not drain: %v", err)
	}
}

func (kv *keyvalue) ready() *keyvalue {
	kv.t.Helper()
	if err := kv.Ready(kv.ctx); err != nil {
		kv.t.Fatal(err)
	}
	return kv
}

func (kv *keyvalue) client(keepAlive bool) *load.Client {
	return &load.Client{KeepAlive: keepAlive, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", kv.addr)
	}}
}

// waitForState waits for a process to enter a state.
func (kv *keyvalue) waitForState(id string, state launcher.State) {
	kv.t.Helper()
	kv.await(fmt.Sprintf("%s is %v", id, state), func(p launcher.Status) bool { return p.ID == id && p.State == state })
}

// waitForReplacement waits until a process with another pid is ready.
func (kv *keyvalue) waitForReplacement(pid int) {
	kv.t.Helper()
	kv.await("another process is ready", func(p launcher.Status) bool { return p.PID != pid && p.State == launcher.Ready })
}

// await waits until a process meets a condition, which it checks after each event.
func (kv *keyvalue) await(what string, want func(launcher.Status) bool) {
	kv.t.Helper()
	for !slices.ContainsFunc(kv.Health()[0].Processes, want) {
		select {
		case _, ok := <-kv.events:
			if ok {
				continue
			}
		case <-kv.ctx.Done():
		}
		kv.t.Fatalf("waited in vain until %s", what)
	}
}

// serving returns the pid of the process that is ready.
func (kv *keyvalue) serving() int {
	kv.t.Helper()
	for _, p := range kv.Health()[0].Processes {
		if p.State == launcher.Ready {
			return p.PID
		}
	}
	kv.t.Fatal("no process is ready")
	return 0
}

// file stops the group, and returns the content of the file.
func (kv *keyvalue) file() map[string]string {
	kv.t.Helper()
	kv.stop()
	all := map[string]string{}
	db, err := bbolt.Open(filepath.Join(kv.dir, "db"), 0o600, &bbolt.Options{Timeout: tooLong})
	if err != nil {
		kv.t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(k, v []byte) error {
			all[string(k)] = string(v)
			return nil
		})
	}); err != nil {
		kv.t.Fatal(err)
	}
	return all
}

// missing returns the keys whose values are not in the file.
func missing(file, want map[string]string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for k, v := range want {
			if got, ok := file[k]; (!ok || got != v) && !yield(k) {
				return
			}
		}
	})
}

// Rolls under load lose no request and no acknowledged write, synchronous or asynchronous.
func TestRoll_LosesNoRequestAndNoWrite(t *testing.T) {
	const rolls = 5
	kv := launch(t).ready()
	var l load.Ledger
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for n := range 2 {
		clients.Go(func() { l.Write(ctx, fmt.Sprint("kept", n), kv.client(true), nil) })
		clients.Go(func() { l.Write(ctx, fmt.Sprint("closed", n), kv.client(false), nil) })
	}
	clients.Go(func() { l.Write(ctx, "async", kv.client(false), nil, load.Async) })
	for range rolls {
		if err := kv.Restart(kv.ctx, "keyvalue", "test"); err != nil {
			t.Error(err)
		}
	}
	stop()
	clients.Wait()
	for _, err := range l.Failures() {
		t.Error(err)
	}
	file := kv.file()
	testkit.Equal(t, "lost synchronous writes", missing(file, l.Stored()), []string(nil))
	testkit.Equal(t, "lost asynchronous writes", missing(file, l.Accepted()), []string(nil))
	if len(l.Stored()) == 0 || len(l.Accepted()) == 0 {
		t.Error("nothing was written")
	}
	sent, longest := l.Sent()
	t.Logf("%d rolls, %d requests, the longest of which took %v, %d and %d writes", rolls, sent, longest, len(l.Stored()), len(l.Accepted()))
}

// A kill -9 under load loses no write that was acknowledged as being on disk.
func TestKill_LosesNoAcknowledgedWrite(t *testing.T) {
	const kills = 5
	kv := launch(t).ready()
	var l load.Ledger
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	var cut atomic.Int64
	for n := range 4 {
		clients.Go(func() {
			l.Write(ctx, fmt.Sprint("c", n), kv.client(n%2 == 0), func(time.Time, error) bool { cut.Add(1); return kv.ctx.Err() == nil })
		})
	}
	probe := kv.client(false)
	for range kills {
		for range 10 { // so that each kill interrupts other requests than the kill before
			if a, err := probe.Do(kv.ctx, "PUT", "/kv/probe", "value"); err != nil || a.Status != http.StatusNoContent {
				t.Fatalf("%v, %+v", err, a)
			}
		}
		pid := kv.serving()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		kv.waitForReplacement(pid)
	}
	stop()
	clients.Wait()
	testkit.Equal(t, "lost writes", missing(kv.file(), l.Stored()), []string(nil))
	sent, _ := l.Sent()
	t.Logf("%d kills, %d requests, %d cut off by them, %d writes", kills, sent, cut.Load(), len(l.Stored()))
}

// A write survives a kill -9 that follows its answer immediately.
func TestPut_AnsweredWriteSurvivesImmediateKill(t *testing.T) {
	kv := launch(t, "--slow-disk", "50ms").ready()
	c := kv.client(false)
	want := map[string]string{}
	for n := range 5 {
		key := fmt.Sprint("key", n)
		pid := kv.serving()
		a, err := c.Do(kv.ctx, "PUT", "/kv/"+key, "on disk")
		syscall.Kill(pid, syscall.SIGKILL)
		if err != nil || a.Status != http.StatusNoContent {
			t.Fatalf("%v, %+v", err, a)
		}
		want[key] = "on disk"
		kv.waitForReplacement(pid)
	}
	testkit.Equal(t, "lost writes", missing(kv.file(), want), []string(nil))
}

// The successor is started while its predecessor still serves, and waits for the file as WARMING.
func TestRoll_SuccessorWaitsUntilPredecessorClosesFile(t *testing.T) {
	kv := launch(t).ready()
	conn, err := net.Dial("tcp", kv.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /kv/slow HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
	answers := bufio.NewReader(conn)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err) // the answer 100 Continue shows that the handler has begun
	}
	answers.ReadString('\n')

	rolled := make(chan error, 1)
	go func() { rolled <- kv.Restart(kv.ctx, "keyvalue", "test") }()
	kv.waitForState("keyvalue-2", launcher.Warming)
	successor, err := kv.Process("keyvalue-2")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "message of the successor", successor.Message, "waiting for the lock of "+filepath.Join(kv.dir, "db"))

	io.WriteString(conn, "the rest.\n")
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	testkit.Equal(t, "answer of the predecessor", resp.StatusCode, http.StatusNoContent)
	if err := <-rolled; err != nil {
		t.Fatal(err)
	}
	// The predecessor ends although no client connects to the shared listener.
	predecessor, err := kv.Wait(kv.ctx, "keyvalue-1")
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "end of the predecessor", predecessor.Outcome, launcher.Clean)
	a, err := kv.client(false).Do(kv.ctx, "GET", "/kv/slow", "")
	testkit.Equal(t, "value in the successor", a, load.Answer{Status: 200, Body: "the rest.\n"})
	testkit.Equal(t, "error", err, nil)
}

// A process that is stopped while it waits for the file exits at once, with success.
func TestStop_WhileWaitingForLockedFileExitsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	kv := launch(t, "--db", path)
	kv.waitForState("keyvalue-1", launcher.Warming)
	if err := kv.StopProcess("keyvalue-1", launcher.Stop{NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	st, err := kv.Wait(kv.ctx, "keyvalue-1")
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
}

// Asynchronous writes are on disk when the server has drained.
func TestDrain_FlushesAsynchronousWrites(t *testing.T) {
	kv := launch(t, "--flush-interval", "1h").ready()
	want := kv.putLater(100)
	testkit.Equal(t, "lost writes", missing(kv.file(), want), []string(nil))
}

// putLater makes n asynchronous writes, and returns them.
func (kv *keyvalue) putLater(n int) map[string]string {
	kv.t.Helper()
	c := kv.client(true)
	defer c.Close()
	written := map[string]string{}
	for i := range n {
		key := fmt.Sprintf("later%d", i)
		if a, err := c.Do(kv.ctx, "PUT", "/kv/"+key, "value", load.Async); err != nil || a.Status != http.StatusAccepted {
			kv.t.Fatalf("%v, %+v", err, a)
		}
		written[key] = "value"
	}
	return written
}

// A flush that takes longer than the grace period requests more time, and gets it.
func TestDrain_RequestsMoreTimeForSlowFlush(t *testing.T) {
	kv := launch(t, "--slow-disk", "300ms", "--flush-interval", "1h").ready()
	c := kv.client(true)
	defer c.Close()
	if a, err := c.Do(kv.ctx, "PUT", "/kv/first", "measures the speed of the disk"); err != nil || a.Status != http.StatusNoContent {
		t.Fatalf("%v, %+v", err, a)
	}
	want := kv.putLater(8 * chunk)
	if err := kv.StopProcess("keyvalue-1", launcher.Stop{Grace: 1500 * time.Millisecond, NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	kv.waitForState("keyvalue-1", launcher.Blocked)
	blocked, err := kv.Process("keyvalue-1")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "blocked by", blocked.Metrics.GetBlockingOperations(), []string{"flush to " + filepath.Join(kv.dir, "db")})
	if blocked.Metrics.GetBufferedBytes() == 0 {
		t.Error("the status does not have the buffered bytes")
	}
	st, err := kv.Wait(kv.ctx, "keyvalue-1")
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	if st.Extension == 0 {
		t.Error("the process has not requested more time")
	}
	testkit.Equal(t, "lost writes", missing(kv.file(), want), []string(nil))
}

// A flush that is cut short reports how many writes are lost.
func TestClose_ReportsWritesLostAtDeadline(t *testing.T) {
	scope := ctxshutdown.New(context.Background())
	defer scope.Shutdown()
	s, err := openStore(scope, options{path: filepath.Join(t.TempDir(), "db"), interval: time.Hour, buffered: func(int64) {}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * chunk {
		if err := s.putLater([]byte{byte(n), byte(n >> 8)}, []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	cause := errors.New("no time")
	ctx, cancel := context.WithCancelCause(context.Background())
	err = s.close(ctx, func(time.Duration) { cancel(cause) })
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), fmt.Sprintf("asynchronous writes lost: %d (bytes: %d)", chunk, 3*chunk)) {
		t.Errorf("close: %v", err)
	}
}

// Synchronous and asynchronous writes reach the file in the order of the calls.
func TestStore_SyncAndAsyncWritesReachFileInOrder(t *testing.T) {
	scope := ctxshutdown.New(context.Background())
	defer scope.Shutdown()
	s, err := openStore(scope, options{path: filepath.Join(t.TempDir(), "db"), interval: time.Hour, buffered: func(int64) {}})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("key")
	if err := errors.Join(s.putLater(key, []byte("1")), s.put(t.Context(), key, []byte("2")), s.putLater(key, []byte("3"))); err != nil {
		t.Fatal(err)
	}
	value, _, err := s.get(key)
	testkit.Equal(t, "value on disk", string(value), "2")
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "bytes in the queue", s.bytes, int64(4))
	if err := s.putLater(key, make([]byte, mostWaiting)); !errors.Is(err, errFull) {
		t.Errorf("putLater with a full queue: %v", err)
	}
	if err := s.put(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	_, found, _ := s.get(key)
	testkit.Equal(t, "found after its removal", found, false)
	testkit.Equal(t, "error", s.close(t.Context(), func(time.Duration) {}), nil)
}

func TestHandler_AnswersGetPutAndDelete(t *testing.T) {
	kv := launch(t).ready()
	c := kv.client(true)
	defer c.Close()
	for _, x := range []struct {
		method, path, body string
		header             []string
		want               load.Answer
	}{
		{"GET", "/kv/a", "", nil, load.Answer{Status: 404, Body: "no such key\n"}},
		{"PUT", "/kv/a", "1", nil, load.Answer{Status: 204}},
		{"PUT", "/kv/a/b%20c", "", nil, load.Answer{Status: 204}},
		{"GET", "/kv/a", "", nil, load.Answer{Status: 200, Body: "1"}},
		{"GET", "/kv/a/b%20c", "", nil, load.Answer{Status: 200}},
		{"DELETE", "/kv/a", "", nil, load.Answer{Status: 204}},
		{"DELETE", "/kv/a", "", nil, load.Answer{Status: 204}},
		{"GET", "/kv/a", "", nil, load.Answer{Status: 404, Body: "no such key\n"}},
		{"PUT", "/kv/a", "2", []string{load.Async}, load.Answer{Status: 202}},
		{"PUT", "/kv/", "1", nil, load.Answer{Status: 400, Body: "keys have 1 to 1024 bytes\n"}},
		{"PUT", "/kv/" + strings.Repeat("k", longestKey+1), "1", nil, load.Answer{Status: 400, Body: "keys have 1 to 1024 bytes\n"}},
		{"PUT", "/kv/a", strings.Repeat("v", longestValue+1), nil, load.Answer{Status: 413, Body: "values have at most 1 MiB\n"}},
	} {
		got, err := c.Do(kv.ctx, x.method, x.path, x.body, x.header...)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, fmt.Sprintf("%s %.20s", x.method, x.path), got, x.want)
	}
}

func TestRun_RefusesInvalidFlags(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no store ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 2, "--db must name a file"},
		{[]string{"--db", garbage, "argument"}, 2, "no arguments"},
		{[]string{"--db", garbage}, 1, garbage},
		{[]string{"--db", filepath.Join(t.TempDir(), "db")}, 1, "nothing to listen on"},
	} {
		var stderr strings.Builder
		testkit.Equal(t, fmt.Sprint(x.args, " code"), run(x.args, &stderr), x.code)
		if !strings.Contains(stderr.String(), x.says) {
			t.Errorf("%q: stderr is %q, want it to contain %q", x.args, stderr.String(), x.says)
		}
	}
}

// launcher.yaml is valid, and its timeouts fit together.
func TestLauncherYAML_IsValidAndItsTimeoutsFitTogether(t *testing.T) {
	text, err := os.ReadFile("launcher.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("launcher.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	g := c.Group("keyvalue")
	testkit.Equal(t, "desired, min healthy, surge", []int{g.Desired, *g.MinHealthy, *g.MaxSurge}, []int{1, 0, 1})
	if g.HealthCheckTimeout <= g.StopBound() {
		t.Errorf("a successor has %v to become ready, but its predecessor may take %v to stop", g.HealthCheckTimeout, g.StopBound())
	}
}
