package spec_test

import (
	"testing"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A process has a port of its own if {port} occurs in any text in which it is replaced.
func TestUsesPort_FindsPlaceholderEverywhere(t *testing.T) {
	if valid("web").UsesPort() {
		t.Error("a group without {port} uses it")
	}
	for name, edit := range map[string]func(g *spec.Group){
		"command":      func(g *spec.Group) { g.Command = []string{"serve", "--port={port}"} },
		"environment":  func(g *spec.Group) { g.Env = []string{"PORT={port}"} },
		"hook":         func(g *spec.Group) { g.PreStop = []spec.Hook{{Command: []string{"drain", "{port}"}}} },
		"httpGet.port": func(g *spec.Group) { g.StartupProbe.HTTPGet.Port = "{port}" },
		"httpGet.path": func(g *spec.Group) { g.StartupProbe.HTTPGet.Path = "/{port}" },
		"httpGet.host": func(g *spec.Group) { g.StartupProbe.HTTPGet.Host = "{port}.localhost" },
		"httpHeaders": func(g *spec.Group) {
			g.StartupProbe.HTTPGet.Headers = []spec.HTTPHeader{{Name: "Host", Value: "x:{port}"}}
		},
		"tcpSocket.port": func(g *spec.Group) { g.ReadinessProbe.TCPSocket.Port = "{port}" },
		"tcpSocket.host": func(g *spec.Group) { g.ReadinessProbe.TCPSocket.Host = "{port}.localhost" },
		"exec":           func(g *spec.Group) { g.LivenessProbe.Exec.Command = []string{"check", "{port}"} },
		"grpc.port":      func(g *spec.Group) { g.LivenessProbe.GRPC.Port = "{port}" },
		"grpc.service":   func(g *spec.Group) { g.LivenessProbe.GRPC.Service = "s{port}" },
	} {
		g := valid("web")
		edit(&g)
		if !g.UsesPort() {
			t.Errorf("%s: {port} is not found", name)
		}
	}
}

// A process that was started without a port cannot run a hook that needs one.
func TestSameProcess_IsFalseIfNewHookNeedsPort(t *testing.T) {
	without, with := valid("web"), valid("web")
	with.PreStop = []spec.Hook{{Command: []string{"drain", "{port}"}}}
	if without.SameProcess(with) {
		t.Error("a process without a port can keep running with a hook that uses it")
	}
	if !with.SameProcess(without) {
		t.Error("a process with a port cannot keep running without the hook")
	}
}
