//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

// If the environment contains roleVariable, this program runs as one of its own subprocesses. The
// value is a role, followed by its argument.
const roleVariable = "LSPCONN_MEASURE_ROLE"

// A fake describes how this program behaves as a language server.
type fake struct {
	fakelsp.Behaviour
	// Child says how the server starts a process that ignores SIGTERM: "fork" starts a child in the
	// process group of the server, "setsid" a child in a session of its own. "twice" starts a child
	// that starts the process in a session of its own and exits. Empty starts none.
	Child string
}

func play(role string) {
	role, argument, _ := strings.Cut(role, " ")
	switch role {
	case "spin":
		//lint:ignore SA5002 the process keeps a processor busy
		for {
		}
	case "child":
		signal.Ignore(syscall.SIGTERM)
		forever()
	case "parent": // this process exits, so that init becomes the parent of the child
		spawn("child", true)
	case "user":
		runs, _ := strconv.Atoi(argument)
		json.NewEncoder(os.Stdout).Encode(userRuns(runs))
	case "server":
		var f fake
		if err := json.Unmarshal([]byte(argument), &f); err != nil {
			panic(err)
		}
		if f.IgnoreTerm {
			signal.Ignore(syscall.SIGTERM)
		}
		switch f.Child {
		case "fork", "setsid":
			spawn("child", f.Child == "setsid")
		case "twice":
			spawn("parent", false).Wait()
		}
		os.Exit((&fakelsp.Server{Behaviour: f.Behaviour}).Serve(os.Stdin, os.Stdout, forever))
	default:
		fmt.Fprintf(os.Stderr, "measure: no role %q\n", role)
		os.Exit(2)
	}
}

// forever sleeps longer than any measurement takes. It ends eventually, so that no process remains
// for good.
func forever() {
	time.Sleep(5 * time.Minute)
	os.Exit(99)
}

func self(role string) *exec.Cmd {
	cmd := exec.Command(executable())
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GOMAXPROCS=1")
	return cmd
}

func spawn(role string, session bool) *exec.Cmd {
	cmd := self(role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

func executable() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// server returns the lspconn.Server that starts this program as a language server.
func (f fake) server(name string) lspconn.Server {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	cmd := self("server " + string(text))
	return lspconn.Server{Name: name, Command: cmd.Args, Env: cmd.Env}
}

// startLoad starts busy processes and returns the function that ends them.
func startLoad(n int) (stop func()) {
	var all []*exec.Cmd
	for range n {
		cmd := self("spin")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		all = append(all, cmd)
	}
	return func() {
		for _, cmd := range all {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
}
