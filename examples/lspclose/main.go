// Command lspclose starts the language servers that it finds on PATH, opens a file in each, closes
// all of them in parallel, and prints how each one ended.
//
//	go run ./examples/lspclose [-json] [-timeout 10s] [-start-timeout 1m] [-path dir:dir]
//
// The first ^C also closes the servers that have been started, in the same way. The exit code is 0
// if every server has ended together with all processes that it had started, 1 if one has not or
// could not be used, and 2 if the flags are wrong.
//
// To copy from: useServers and closeServers show the life of a Manager, servers.go shows what a
// client tells a server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/lspconn"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	json         bool
	timeout      time.Duration
	startTimeout time.Duration
	path         string
}

// parseFlags parses the command line. It prints an error, or the help text, to stderr before it
// returns the error.
func parseFlags(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("lspclose", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "the deadline for closing all servers, 1s to 15s")
	flags.DurationVar(&o.startTimeout, "start-timeout", time.Minute, "how long a server may take to start and to answer its first request")
	flags.StringVar(&o.path, "path", "", "`directories` to search before PATH")
	err = flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("lspclose: unexpected argument %q: only flags are accepted (-h for help)", flags.Arg(0))
		fmt.Fprintln(stderr, err)
	}
	return o, err
}

// run runs the program and returns its exit code. The end of ctx makes it close the servers at
// once.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	o, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	dir, err := createWorkspace()
	defer os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(stderr, "lspclose:", err)
		return 1
	}
	found := findServers(o.path)
	if len(found) == 0 {
		fmt.Fprintln(stderr, "lspclose: no language server on PATH; to install one: go install golang.org/x/tools/gopls@latest")
		return 1
	}

	servers := func(name string) (lspconn.Server, error) { return found[name].server(dir), nil }
	manager, err := lspconn.NewManager(ctx, servers, lspconn.WithCloseTimeout(o.timeout))
	if err != nil {
		fmt.Fprintln(stderr, "lspclose:", err)
		return 2
	}
	if !useServers(ctx, manager, found, dir, o.startTimeout, stderr) {
		code = 1
	}
	reports, ok := closeServers(manager, stderr)
	if !ok || len(reports) < len(found) { // a server that could not be started has no report
		code = 1
	}
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		enc.Encode(rows(reports))
	} else {
		printTable(stdout, reports, supportsColour(stdout))
	}
	return code
}

// findServers returns the language servers that are installed, by name.
func findServers(path string) map[string]languageServer {
	found := map[string]languageServer{}
	for _, s := range knownServers {
		name := s.command[0]
		if file, ok := findProgram(path, name); ok {
			s.command = append([]string{file}, s.command[1:]...)
			found[name] = s
		}
	}
	return found
}

// findProgram returns the path of a program. It searches the directories in path before PATH.
func findProgram(path, name string) (string, bool) {
	for _, dir := range filepath.SplitList(path) {
		if file, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			file, err = filepath.Abs(file)
			return file, err == nil
		}
	}
	file, err := exec.LookPath(name)
	return file, err == nil
}

// useServers starts all servers in parallel and opens a file in each. It reports whether every
// server worked. A request that failed because ctx ended is not a failure of the server.
func useServers(ctx context.Context, manager *lspconn.Manager, found map[string]languageServer, dir string, timeout time.Duration, stderr io.Writer) bool {
	var all sync.WaitGroup
	var failed atomic.Bool
	for name, s := range found {
		all.Go(func() {
			startCtx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			conn, err := manager.Conn(startCtx, name)
			if err == nil {
				err = s.openFile(startCtx, conn, dir)
			}
			if err == nil || isRefused(err) {
				return
			}
			fmt.Fprintf(stderr, "lspclose: %s: %v\n", name, err)
			if ctx.Err() == nil {
				failed.Store(true)
			}
		})
	}
	all.Wait()
	return !failed.Load()
}

// isRefused reports whether the server answered the request with an error. That is expected of
// servers that do not support hover.
func isRefused(err error) bool {
	var response *lspconn.ResponseError
	return errors.As(err, &response) && !errors.Is(err, lspconn.ErrClosing)
}

// closeServers closes all connections. ok is true if no server has failed, and no process that a
// server had started is left.
func closeServers(manager *lspconn.Manager, stderr io.Writer) (reports []lspconn.Report, ok bool) {
	// The context of run would be wrong here: after a ^C it has ended, and Close would not wait.
	reports, err := manager.Close(context.Background())
	ok = err == nil
	if err != nil {
		fmt.Fprintln(stderr, "lspclose:", err)
	}
	for _, r := range reports {
		if len(r.Survivors) > 0 || r.Failure != nil {
			ok = false
		}
	}
	return reports, ok
}
