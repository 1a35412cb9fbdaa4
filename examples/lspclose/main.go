// Command lspclose starts the language servers that it finds on PATH, opens a file in each, closes all of them side by
// side, and shows how each came to its end.
//
//	go run ./examples/lspclose [-json] [-timeout 10s] [-path dir:dir]
//
// ^C closes what has been started, properly, too. The exit code is 0 when every server is gone with all that it had
// started, 1 when one is not or could not be used, and 2 when the flags are wrong.
//
// To copy from: run, for the life of a Manager, and servers.go, for what a server has to be told.
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

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	flags := flag.NewFlagSet("lspclose", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	timeout := flags.Duration("timeout", 10*time.Second, "the deadline for closing all of them, 5s to 15s")
	path := flags.String("path", "", "`directories` to look in before PATH")
	patience := flags.Duration("patience", time.Minute, "how long a server may take to answer its first request")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "lspclose: unexpected argument %q: it takes flags only (-h for help)\n", flags.Arg(0))
		return 2
	}
	dir, err := workspace()
	defer os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(stderr, "lspclose:", err)
		return 1
	}

	found := map[string]known{}
	for _, k := range servers {
		if file, ok := look(*path, k.command[0]); ok {
			name := k.command[0]
			k.command = append([]string{file}, k.command[1:]...)
			found[name] = k
		}
	}
	if len(found) == 0 {
		fmt.Fprintln(stderr, "lspclose: no language server on PATH; one is quickly there: go install golang.org/x/tools/gopls@latest")
		return 1
	}

	servers := func(name string) (lspconn.Server, error) { return found[name].server(dir), nil }
	manager, err := lspconn.NewManager(ctx, servers, lspconn.WithCloseTimeout(*timeout))
	if err != nil {
		fmt.Fprintln(stderr, "lspclose:", err)
		return 2
	}
	var all sync.WaitGroup
	var unused atomic.Bool
	for name, k := range found {
		all.Go(func() {
			patient, cancel := context.WithTimeout(ctx, *patience)
			defer cancel()
			conn, err := manager.Conn(patient, name)
			if err == nil {
				err = k.open(patient, conn, dir)
			}
			var refused *lspconn.ResponseError
			if err != nil && !(errors.As(err, &refused) && !errors.Is(err, lspconn.ErrClosing)) { // not every server hovers
				fmt.Fprintf(stderr, "lspclose: %s: %v\n", name, err)
				if ctx.Err() == nil { // a ^C is no fault of the server's
					unused.Store(true)
				}
			}
		})
	}
	all.Wait()

	reports, err := manager.Close(context.Background()) // not ctx: a ^C has ended that, and we wait nevertheless
	if err != nil {
		fmt.Fprintln(stderr, "lspclose:", err)
		code = 1
	}
	for _, r := range reports {
		if len(r.Survivors) > 0 || r.Failure != nil {
			code = 1
		}
	}
	if unused.Load() || len(reports) < len(found) {
		code = 1 // one did not answer, or could not be started
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		enc.Encode(rows(reports))
	} else {
		table(stdout, reports, colourful(stdout))
	}
	return code
}

// look finds a program, in dirs first.
func look(dirs, name string) (string, bool) {
	for _, dir := range filepath.SplitList(dirs) {
		if file, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			file, err = filepath.Abs(file)
			return file, err == nil
		}
	}
	file, err := exec.LookPath(name)
	return file, err == nil
}
