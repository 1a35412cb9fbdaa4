//go:build linux

// Command measure measures how package lspconn ends language servers: real ones at rest and under
// load, whether a thousand starts and stops leave anything behind, and whether servers of an
// ordinary user end by the deadline on a busy machine. It runs on Linux, from the root of the
// repository.
//
//	go run ./lspconn/internal/measure [-starts 1000] [-runs 30] [-load 20] [-servers bin/lsp] [-only gopls,tsc] [-write]
//
// It fails if anything is left, if a Close returns after its deadline, or if a real server is
// Unconfirmed. A server of the runs as an ordinary user may be Unconfirmed, but its report must
// then name a process.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/swansong-go/swansong/internal/figures"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Unsetenv(roleVariable)
		play(role)
		return
	}
	starts := flag.Int("starts", 1000, "`number` of servers to start and stop")
	runs := flag.Int("runs", 30, "`number` of runs as an ordinary user")
	load := flag.Int("load", 20, "`number` of busy processes that make the load")
	servers := flag.String("servers", "bin/lsp", "the `folder` in which tools/lsp/install has installed real servers")
	only := flag.String("only", "", "the `names` of the real servers to measure, separated by commas; empty for all")
	write := flag.Bool("write", false, "also write docs/measured/lspconn-figures.md")
	flag.Parse()
	w := figures.NewPage("docs/measured/lspconn-figures.md", head)
	fmt.Fprintf(w, "%s.\n", figures.Origin())
	err := measure(w, *starts, *runs, *load, *servers, *only)
	if err == nil && *write {
		err = w.Save()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

const head = `# lspconn, measured

Produced by ` + "`make bench`" + `; do not edit. [How servers are stopped](../reference/lspconn.md) explains the outcomes.

`

func measure(w io.Writer, starts, runs, load int, servers, only string) error {
	if err := realServers(w, servers, only, load); err != nil {
		return err
	}
	if err := startsAndStops(w, starts); err != nil {
		return err
	}
	return ordinaryUser(w, runs, load)
}
