package deploy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/swansong-go/swansong/internal/testkit"
)

// buildExample builds the program that the manifests and units run.
func buildExample(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", path, "../../../examples/guide/7-production").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// A process runs the example program in the way that a manifest or a unit file says.
type process struct {
	*testing.T
	cmd         *exec.Cmd
	addr, admin string // the local addresses on which the process listens; empty if the process ended before it served
	log         bytes.Buffer
	ended       chan struct{}
}

var listensOn = regexp.MustCompile(`serving" addr=\S*(:\d+) admin=\S*(:\d+)|serving addr=\S*(:\d+) admin=\S*(:\d+)`)

// startExample starts the program with these arguments and this environment, and waits until it
// serves or has ended. If another process uses one of the ports, startExample starts the program
// again with free ports. If the program inherits a socket, only the port of -admin is replaced.
func startExample(t *testing.T, program string, args, env []string, inherited ...*os.File) *process {
	t.Helper()
	p := &process{T: t, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.ExtraFiles = inherited
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
	serving := make(chan []string, 1)
	go func() {
		defer close(p.ended)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			fmt.Fprintln(&p.log, in.Text())
			if m := listensOn.FindStringSubmatch(in.Text()); m != nil && len(serving) == 0 {
				serving <- []string{m[1] + m[3], m[2] + m[4]}
			}
		}
		p.cmd.Wait()
	}()
	select {
	case ports := <-serving:
		p.addr, p.admin = "127.0.0.1"+ports[0], "127.0.0.1"+ports[1]
	case <-p.ended:
		port := regexp.MustCompile(`^-(addr|admin)=.*`)
		if len(inherited) > 0 {
			port = regexp.MustCompile(`^-(admin)=.*`)
		}
		if strings.Contains(p.log.String(), "address already in use") {
			free := slices.Clone(args)
			for i, a := range args {
				free[i] = port.ReplaceAllString(a, "-$1=127.0.0.1:0")
			}
			if slices.Equal(free, args) {
				t.Fatalf("no free port:\n%s", p.log.String())
			}
			return startExample(t, program, free, env, inherited...)
		}
	}
	return p
}

func (p *process) get(addr, path string) (status int, body string) {
	p.Helper()
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// wait waits for the end of the program and checks its exit code.
func (p *process) wait(code int) {
	p.Helper()
	<-p.ended
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code %d, want %d:\n%s", got, code, p.log.String())
	}
}

// listensAt returns the port in the argument with this flag, such as 8080 for -addr=:8080.
func listensAt(args []string, flag string) string {
	for _, a := range args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			return value[strings.LastIndex(value, ":")+1:]
		}
	}
	return ""
}

// The example runs with the arguments and the environment of the manifests, listens on their ports,
// and answers their probes.
func TestDeploymentFile_RunsExample(t *testing.T) {
	program := buildExample(t)
	d := deployment(t, "deployment.yaml")
	c := d.Spec.Template.Spec.Containers[0]
	service := decode[corev1.Service](t, "service.yaml")
	var env []string
	for _, e := range c.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	for name, args := range map[string][]string{
		"deployment.yaml": c.Args,
		"prestop.yaml":    deployment(t, "prestop.yaml").Spec.Template.Spec.Containers[0].Args,
	} {
		t.Run(name, func(t *testing.T) {
			number := map[string]string{}
			for _, port := range c.Ports {
				number[port.Name] = fmt.Sprint(port.ContainerPort)
			}
			testkit.Equal(t, "port of the service", listensAt(args, "-addr"), number[service.Spec.Ports[0].TargetPort.String()])
			p := startExample(t, program, args, env)
			if p.addr == "" {
				t.Fatalf("the program ended:\n%s", p.log.String())
			}
			probe := func(probe *corev1.Probe) (status int) {
				testkit.Equal(t, "port of the probe", listensAt(args, "-admin"), number[probe.HTTPGet.Port.String()])
				status, _ = p.get(p.admin, probe.HTTPGet.Path)
				return status
			}
			for _, pr := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				testkit.Equal(t, "answer to "+pr.HTTPGet.Path, probe(pr), 200)
			}
			if status, body := p.get(p.admin, "/metrics"); status != 200 || !strings.Contains(body, "\nswansong_guards ") {
				t.Errorf("/metrics: %d\n%s", status, body)
			}
			status, _ := p.get(p.addr, "/hello")
			testkit.Equal(t, "answer of the service", status, 200)
			p.cmd.Process.Signal(syscall.SIGTERM)
			if phases, _ := parsePhases(args); phases.lameDuck > 0 {
				for probe(c.ReadinessProbe) == 200 {
				}
				testkit.Equal(t, "answer to the liveness probe after SIGTERM", probe(c.LivenessProbe), 200)
				p.cmd.Process.Signal(os.Interrupt) // ends the lame duck; a second SIGTERM within a second would not count
			}
			p.wait(0)
		})
	}
	t.Run("grace period too short", func(t *testing.T) {
		p := startExample(t, program, c.Args, []string{graceVariable + "=22"})
		p.wait(1)
		if !strings.Contains(p.log.String(), graceVariable) {
			t.Errorf("the log does not name %s:\n%s", graceVariable, p.log.String())
		}
	})
}

// The example runs with the command line and the environment of the unit, with the socket of the
// .socket unit, and tells systemd when it is ready and when it stops. A client that connects while
// no process runs is answered by the next one.
func TestServiceFile_RunsExample(t *testing.T) {
	program := buildExample(t)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(docs, "deploy/systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	unit := read("example.service")
	args := strings.Fields(setting(unit, "ExecStart"))[1:]
	port := setting(read("example.socket"), "ListenStream")
	testkit.Equal(t, "port in ExecStart", listensAt(args, "-addr"), port)
	ln, err := net.Listen("tcp", ":"+port)
	if err != nil { // another process uses the port of the unit, so use a free one
		if ln, err = net.Listen("tcp", ":0"); err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(ln.Addr().String())
		args[slices.Index(args, "-addr=:"+setting(read("example.socket"), "ListenStream"))] = "-addr=:" + port
	}
	defer ln.Close()
	socket, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	dir, err := os.MkdirTemp("", "") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	env := []string{setting(unit, "Environment"), "LISTEN_FDS=1", "NOTIFY_SOCKET=" + notify.LocalAddr().String()}
	for range 2 {
		client, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		fmt.Fprint(client, "GET /hello HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n")
		p := startExample(t, program, args, env, socket)
		if p.addr == "" {
			t.Fatalf("the program ended:\n%s", p.log.String())
		}
		answer, err := io.ReadAll(client)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") {
			t.Fatalf("%v: %q", err, answer)
		}
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.wait(0)
		for _, want := range []string{"READY=1", "STOPPING=1"} {
			for message := ""; !strings.Contains(message, want); {
				b := make([]byte, 4096)
				n, err := notify.Read(b)
				if err != nil {
					t.Fatal(err)
				}
				message = string(b[:n])
			}
		}
	}
}
