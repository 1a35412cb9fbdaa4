//go:build unix

// Package guide contains the programs of docs/guide.md, one for each step. Its tests start the
// programs, send requests, and stop them with SIGTERM.
package guide

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

var bin string // the folder that contains the compiled programs

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "guide"); err != nil {
		panic(err)
	}
	out, err := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./...").CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(bin)
	if err := goleak.Find(); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error())
		code = 1
	}
	os.Exit(code)
}

// A program is a running process of the program that one step of the guide shows.
type program struct {
	*testing.T
	cmd   *exec.Cmd
	addr  string
	admin string
	ended chan struct{} // closed when the process has ended

	mu  sync.Mutex
	log bytes.Buffer // what the program has written to stderr
}

var servingLine = regexp.MustCompile(`serving(?: on |" addr=| addr=)(\S+)(?: admin=(\S+))?`)

// start starts the program of a step on a free port, and waits until it serves.
func start(t *testing.T, step string, args ...string) *program {
	p, serving := launch(t, step, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	select {
	case <-serving:
	case <-p.ended:
		t.Fatalf("the program ended before it served:\n%s", p.log.String())
	}
	return p
}

// launch starts the program of a step, and returns a channel that is closed once it serves.
func launch(t *testing.T, step string, args ...string) (_ *program, serving <-chan struct{}) {
	p := &program{T: t, ended: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(bin, step), args...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		http.DefaultClient.CloseIdleConnections()
	})
	logged := make(chan struct{})
	go func() {
		defer close(p.ended)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			p.mu.Lock()
			p.log.WriteString(in.Text() + "\n")
			p.mu.Unlock()
			if m := servingLine.FindStringSubmatch(in.Text()); m != nil && p.addr == "" {
				p.addr, p.admin = m[1], m[2]
				close(logged)
			}
		}
		p.cmd.Wait()
	}()
	return p, logged
}

// stop sends SIGTERM, waits for the end of the program, and checks its exit code and log.
func (p *program) stop(code int, logs ...string) {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	p.wait(code, logs...)
}

// wait waits for the end of the program, and checks its exit code and log.
func (p *program) wait(code int, logs ...string) {
	p.Helper()
	<-p.ended
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code %d, want %d", got, code)
	}
	for _, want := range logs {
		if !strings.Contains(p.log.String(), want) {
			p.Errorf("the log does not contain %q", want)
		}
	}
	if p.Failed() {
		p.Log(p.log.String())
	}
}

type response struct {
	Status int
	Body   string
}

// send sends a request, and returns a channel that receives the response.
func (p *program) send(method, path, body string) <-chan response {
	received := make(chan response, 1)
	go func() {
		req, err := http.NewRequest(method, "http://"+p.addr+path, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			received <- response{Body: err.Error()}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			b = append(b, err.Error()...)
		}
		received <- response{resp.StatusCode, string(b)}
	}()
	return received
}

// A program that cannot listen on its port exits with 1 and logs the reason. The exit code would be
// 2 if the program had started a stage before and never stopped it: Run would have to cut that
// stage short.
func TestSteps_ExitWith1WhenPortIsTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	for name, args := range map[string][]string{
		"1-bare":             {"-addr", taken},
		"2-drain":            {"-addr", taken},
		"3-work":             {"-addr", taken},
		"4-order":            {"-addr", taken},
		"5-streams":          {"-addr", taken},
		"6-time":             {"-addr", taken},
		"7-production":       {"-addr", taken, "-admin", "127.0.0.1:0"},
		"7-production/admin": {"-addr", "127.0.0.1:0", "-admin", taken},
	} {
		t.Run(name, func(t *testing.T) {
			step, _, _ := strings.Cut(name, "/")
			p, _ := launch(t, step, args...)
			p.wait(1, "listen tcp "+taken+": bind: address already in use")
			if strings.Contains(p.log.String(), "drained after force") {
				t.Error("a stage was started and not stopped")
			}
		})
	}
}

func TestDrain_AnswersRunningRequest(t *testing.T) {
	p := start(t, "2-drain")
	testkit.Equal(t, "GET /hello", <-p.send("GET", "/hello", ""), response{200, "hello\n"})
	// If the program stops listening before this request has connected, the request fails with
	// status 0. A request that has connected must be answered.
	inFlight := p.send("GET", "/hello", "")
	p.stop(0)
	if got := <-inFlight; got.Status != 0 {
		testkit.Equal(t, "request during the stop", got, response{200, "hello\n"})
	}
}

func TestWorkStep_SendsMailOfRunningRequest(t *testing.T) {
	p := start(t, "3-work")
	testkit.Equal(t, "POST /signup", <-p.send("POST", "/signup", ""), response{200, "welcome\n"})
	p.stop(0, "mail sent: welcome")
}

func TestOrderStep_StoppedProgramHasWrittenAllAcceptedEvents(t *testing.T) {
	name := filepath.Join(t.TempDir(), "events")
	p := start(t, "4-order", "-file", name)
	for _, event := range []string{"one", "two", "three"} {
		testkit.Equal(t, "POST /event", <-p.send("POST", "/event", event), response{202, ""})
	}
	p.stop(0)
	written, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "file", string(written), "one\ntwo\nthree\n")
}

func TestStreamsStep_SendsLastEventAtStop(t *testing.T) {
	p := start(t, "5-streams")
	resp, err := http.Get("http://" + p.addr + "/clock")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if _, err := in.ReadString('\n'); err != nil { // once a line has arrived, the stream has begun
		t.Fatal(err)
	}
	p.stop(0)
	rest, err := io.ReadAll(in)
	if !strings.HasSuffix(string(rest), "event: bye\nretry: 1000\ndata: back in a second\n\n") || err != nil {
		t.Errorf("the stream ends with %q, error %v", rest, err)
	}
}

func TestTimeStep_SlowRequestGetsMoreTimeToDrain(t *testing.T) {
	p := start(t, "6-time")
	resp, err := http.Get("http://" + p.addr + "/export")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p.stop(0, "extension granted: true")
	if b, err := io.ReadAll(resp.Body); !strings.HasSuffix(string(b), "row 9\n") || err != nil {
		t.Errorf("the export ends with %q, error %v", b, err)
	}
}

func TestProductionStep_ServesRequestsDuringLameDuckPhase(t *testing.T) {
	p := start(t, "7-production", "-admin", "127.0.0.1:0", "-lame-duck", "24h")
	testkit.Equal(t, "GET /hello", <-p.send("GET", "/hello", ""), response{200, "hello\n"})
	p.cmd.Process.Signal(syscall.SIGTERM)
	admin := &program{addr: p.admin}
	for {
		if got := <-admin.send("GET", "/readyz", ""); got.Status == 503 {
			testkit.Equal(t, "GET /readyz", got, response{503, "lame duck\n"})
			break
		}
	}
	testkit.Equal(t, "GET /hello", <-p.send("GET", "/hello", ""), response{200, "hello\n"})
	testkit.Equal(t, "GET /livez", <-admin.send("GET", "/livez", ""), response{200, "live\n"})
	// ends the lame duck of 24 hours; within a second, another SIGTERM would be ignored as a
	// repetition
	p.cmd.Process.Signal(os.Interrupt)
	p.wait(0, "no longer ready", "draining", "drained")
}
