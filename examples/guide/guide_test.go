//go:build unix

// Package guide has the steps of docs/guide.md, each a program. They are tried here as the guide says: a real process, a request
// under way, a real SIGTERM.
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

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var bin string

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

// A program is a step that is running.
type program struct {
	*testing.T
	cmd   *exec.Cmd
	addr  string
	admin string
	ended chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

var serving = regexp.MustCompile(`serving(?: on |" addr=| addr=)(\S+)(?: admin=(\S+))?`)

func start(t *testing.T, step string, args ...string) *program {
	p, up := launch(t, step, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	select {
	case <-up:
	case <-p.ended:
		t.Fatalf("it does not start:\n%s", p.log.String())
	}
	return p
}

// launch starts a step, and returns a channel that is closed once it serves.
func launch(t *testing.T, step string, args ...string) (_ *program, up chan struct{}) {
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
	up = make(chan struct{})
	go func() {
		defer close(p.ended)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			p.mu.Lock()
			p.log.WriteString(in.Text() + "\n")
			p.mu.Unlock()
			if m := serving.FindStringSubmatch(in.Text()); m != nil && p.addr == "" {
				p.addr, p.admin = m[1], m[2]
				close(up)
			}
		}
		p.cmd.Wait()
	}()
	return p, up
}

// stop sends SIGTERM, and checks the exit code and what was logged.
func (p *program) stop(code int, says ...string) {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	p.over(code, says...)
}

func (p *program) over(code int, says ...string) {
	p.Helper()
	<-p.ended
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code %d, want %d", got, code)
	}
	for _, want := range says {
		if !strings.Contains(p.log.String(), want) {
			p.Errorf("the log does not say %q", want)
		}
	}
	if p.Failed() {
		p.Log(p.log.String())
	}
}

type answer struct {
	Status int
	Body   string
}

// send asks for something, and returns a channel with the answer.
func (p *program) send(method, path, body string) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		req, err := http.NewRequest(method, "http://"+p.addr+path, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- answer{Body: err.Error()}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			b = append(b, err.Error()...)
		}
		answered <- answer{resp.StatusCode, string(b)}
	}()
	return answered
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A step that cannot listen has failed, which is exit code 1, and says why and nothing else. Had it started anything before that
// nobody stops now, it would wait for that, cut it short, and say so: exit code 2.
func TestPortTaken(t *testing.T) {
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
			p.over(1, "listen tcp "+taken+": bind: address already in use")
			if strings.Contains(p.log.String(), "drained after force") {
				t.Error("something had been started that nobody has stopped")
			}
		})
	}
}

func TestDrain(t *testing.T) {
	p := start(t, "2-drain")
	equal(t, <-p.send("GET", "/hello", ""), answer{200, "hello\n"})
	under := p.send("GET", "/hello", "") // before the signal or after it, it is answered; unless it came too late to connect
	p.stop(0)
	if got := <-under; got.Status != 0 {
		equal(t, got, answer{200, "hello\n"})
	}
}

func TestWork(t *testing.T) {
	p := start(t, "3-work")
	equal(t, <-p.send("POST", "/signup", ""), answer{200, "welcome\n"})
	p.stop(0, "mail sent: welcome")
}

func TestOrder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "events")
	p := start(t, "4-order", "-file", name)
	for _, event := range []string{"one", "two", "three"} {
		equal(t, <-p.send("POST", "/event", event), answer{202, ""})
	}
	p.stop(0)
	written, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, string(written), "one\ntwo\nthree\n")
}

func TestStreams(t *testing.T) {
	p := start(t, "5-streams")
	resp, err := http.Get("http://" + p.addr + "/clock")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if _, err := in.ReadString('\n'); err != nil { // it has begun
		t.Fatal(err)
	}
	p.stop(0)
	rest, err := io.ReadAll(in)
	if !strings.HasSuffix(string(rest), "event: bye\nretry: 1000\ndata: back in a second\n\n") || err != nil {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
}

func TestTime(t *testing.T) {
	p := start(t, "6-time")
	resp, err := http.Get("http://" + p.addr + "/export")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p.stop(0, "extension granted: true")
	if b, err := io.ReadAll(resp.Body); !strings.HasSuffix(string(b), "row 9\n") || err != nil {
		t.Errorf("the export ends with %q, %v", b, err)
	}
}

func TestProduction(t *testing.T) {
	p := start(t, "7-production", "-admin", "127.0.0.1:0", "-lame-duck", "24h")
	equal(t, <-p.send("GET", "/hello", ""), answer{200, "hello\n"})
	p.cmd.Process.Signal(syscall.SIGTERM)
	probe := &program{addr: p.admin}
	for {
		if got := <-probe.send("GET", "/readyz", ""); got.Status == 503 { // the lame duck
			equal(t, got, answer{503, "lame duck\n"})
			break
		}
	}
	equal(t, <-p.send("GET", "/hello", ""), answer{200, "hello\n"})
	equal(t, <-probe.send("GET", "/livez", ""), answer{200, "live\n"})
	p.stop(0, "no longer ready", "draining", "drained") // the second signal does not wait for the rest of 24 hours
}
