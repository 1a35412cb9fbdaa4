package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The packages of this module get these import paths, because the standard library cannot import
// packages of other modules.
const (
	modulePath = "github.com/swansong-go/swansong"
	stdPath    = "swansong"
)

// edits are what is changed in httptest's server.go. Each old text must occur exactly once.
var edits = []struct{ old, new string }{
	{"\n\t\ts.Config.Serve(s.Listener)\n", "\n\t\tserve(s)\n"},
	{"\n\ts.Listener = tls.NewListener(s.Listener, s.TLS)\n", "\n\ts.Listener = listenTLS(s)\n"},
}

// added is a file that is added to httptest.
const added = `package httptest

import (
	"context"
	"crypto/tls"
	"net"
	"os"

	"swansong/ctxshutdown"
	"swansong/httpdrain"
)

var callServeTLS = os.Getenv("` + wayVariable + `") == "` + serveTLS + `"

// listenTLS returns the listener of a server that uses TLS.
func listenTLS(s *Server) net.Listener {
	if callServeTLS {
		s.Config.TLSConfig = s.TLS
		return s.Listener
	}
	return tls.NewListener(s.Listener, s.TLS)
}

// serve does not wait for the drain, which would wait for hijacked connections.
func serve(s *Server) {
	scope := ctxshutdown.New(context.Background())
	if callServeTLS && s.TLS != nil {
		go httpdrain.ServeTLS(scope, s.Config, s.Listener, "", "")
	} else {
		go httpdrain.Serve(scope, s.Config, s.Listener)
	}
}
`

// writeOverlay writes an overlay for the go command into the folder dir, with which the servers of
// httptest are served by httpdrain. root is the root of this module. It returns the overlay's file.
func writeOverlay(root, dir string) (string, error) {
	goroot, err := output(root, "go", "env", "GOROOT")
	if err != nil {
		return "", err
	}
	src := filepath.Join(strings.TrimSpace(string(goroot)), "src")
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
		if n := bytes.Count(server, []byte(e.old)); n != 1 {
			return "", fmt.Errorf("%s contains %q %d times instead of once; adapt the edits to this release of Go", name, e.old, n)
		}
		server = bytes.ReplaceAll(server, []byte(e.old), []byte(e.new))
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

// addModule adds httpdrain, and the packages of this module that it imports, to the standard
// library.
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
			// This changes import paths and, in package stacks, the prefix of functions of this module.
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
