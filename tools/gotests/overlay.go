package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The overlay puts packages of this module into the standard library, which cannot import packages
// of other modules. There, stdPath replaces modulePath in their import paths.
const (
	modulePath = "github.com/swansong-go/swansong"
	stdPath    = "swansong"
)

// edits are what is changed in httptest's server.go. Each must match at least once.
var edits = []struct {
	old *regexp.Regexp
	new string
}{
	{regexp.MustCompile(`\bs\.Config\.Serve\(`), "serve(s, "},
	{regexp.MustCompile(`\btls\.NewListener\((.*), s\.TLS\)`), "listenTLS(s, $1)"},
}

// added is a Go file that the overlay adds to package httptest.
const added = `package httptest

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync"

	"swansong/ctxshutdown"
	"swansong/httpdrain"
)

// A tlsListener is a listener without TLS, for which ServeTLS is called.
type tlsListener struct{ net.Listener }

// listenTLS returns a listener for which serve uses TLS.
func listenTLS(s *Server, ln net.Listener) net.Listener {
	if os.Getenv("` + wayVariable + `") == "` + serveTLS + `" {
		return tlsListener{ln}
	}
	return tls.NewListener(ln, s.TLS)
}

// serve returns when Accept has failed. It does not wait for the drain, which would wait for
// hijacked connections. As with net/http, the server has seen all connections as new when serve
// returns.
func serve(s *Server, ln net.Listener) {
	scope := ctxshutdown.New(context.Background())
	plain, isTLS := ln.(tlsListener)
	if isTLS {
		ln = plain.Listener
	}
	l := &failingListener{Listener: ln, failed: make(chan struct{})}
	if isTLS {
		s.Config.TLSConfig = s.TLS
		go httpdrain.ServeTLS(scope, s.Config, l, "", "")
	} else {
		go httpdrain.Serve(scope, s.Config, l)
	}
	<-l.failed
}

// A failingListener closes failed when Accept has failed.
type failingListener struct {
	net.Listener
	once   sync.Once
	failed chan struct{}
}

func (l *failingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		l.once.Do(func() { close(l.failed) })
	}
	return c, err
}
`

// writeOverlay writes an overlay for the go command into the folder dir, with which the servers of
// httptest are served by httpdrain. root is the root of this module. It returns the overlay's file.
func writeOverlay(root, dir string) (string, error) {
	goroot, err := findGOROOT(root, dir)
	if err != nil {
		return "", err
	}
	src := filepath.Join(goroot, "src")
	replace := map[string]string{}
	add := func(name string, content []byte) error {
		file := filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Ext(name))
		replace[filepath.Join(src, name)] = file
		return os.WriteFile(file, content, 0o666)
	}
	if err := addModule(root, add); err != nil {
		return "", err
	}
	name := filepath.Join("net", "http", "httptest", "server.go")
	server, err := os.ReadFile(filepath.Join(src, name))
	if err != nil {
		return "", err
	}
	for _, e := range edits {
		if !e.old.Match(server) {
			return "", fmt.Errorf("%s does not contain %v; adapt the edits in tools/gotests to this release of Go", name, e.old)
		}
		server = e.old.ReplaceAll(server, []byte(e.new))
	}
	if err := errors.Join(add(name, server), add(filepath.Join("net", "http", "httptest", "swansong.go"), []byte(added))); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, b, 0o666)
}

// findGOROOT returns the GOROOT of the go command. If that is in the module cache, where overlays
// have no effect, findGOROOT makes a link to it in the folder dir, and makes the go command use the
// link.
func findGOROOT(root, dir string) (string, error) {
	env, err := output(root, "go", "env", "GOROOT", "GOMODCACHE")
	if err != nil {
		return "", err
	}
	goroot, cache, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	if !strings.HasPrefix(goroot, cache+string(filepath.Separator)) {
		return goroot, nil
	}
	link := filepath.Join(dir, "goroot")
	if err := os.Symlink(goroot, link); err != nil {
		return "", err
	}
	os.Setenv("GOROOT", link)
	os.Setenv("GOTOOLCHAIN", "local")
	return link, nil
}

// addModule calls add for the files of httpdrain, and of the packages of this module that it
// imports, so that they become packages of the standard library.
func addModule(root string, add func(name string, content []byte) error) error {
	list, err := output(root, "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,EmbedFiles", "./httpdrain")
	if err != nil {
		return err
	}
	for dec := json.NewDecoder(bytes.NewReader(list)); dec.More(); {
		var p struct {
			ImportPath, Dir     string
			GoFiles, EmbedFiles []string
		}
		if err := dec.Decode(&p); err != nil {
			return err
		}
		below, ok := strings.CutPrefix(p.ImportPath, modulePath)
		if !ok {
			continue
		}
		for _, name := range append(p.GoFiles, p.EmbedFiles...) {
			content, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return err
			}
			// Replace modulePath by stdPath in the import paths, and in package stacks also in the
			// string with which the names of this module's functions begin.
			content = bytes.ReplaceAll(content, []byte(`"`+modulePath+"/"), []byte(`"`+stdPath+"/"))
			if err := add(filepath.Join(stdPath, below, name), content); err != nil {
				return err
			}
		}
	}
	return nil
}

// output runs a command in the folder dir, and returns what it prints.
func output(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	return out, nil
}
