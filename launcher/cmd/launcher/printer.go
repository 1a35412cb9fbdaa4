package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/output"
)

// A printer queues text for stdout and stderr, so that the caller never blocks. The reader can be
// slow, for example a pager, a terminal after ^S, or a log collector that hangs. Then output beyond
// the queue is dropped.
type printer struct{ out, errs *output.File }

// printed returns the printer for the output of the command run. Other commands write to stdout
// directly, and can block: no process depends on them. Only their errors go through the printer;
// see execute.
var printed = sync.OnceValue(func() *printer { return newPrinter(os.Stdout, os.Stderr) })

// newPrinter returns a printer with a queue of 1 MiB for stdout and another one for stderr, so that
// a flood on one does not displace the lines of the other.
func newPrinter(out, errs io.Writer) *printer {
	const bufferSize = 1 << 20
	return &printer{output.To(out, bufferSize, nil), output.To(errs, bufferSize, nil)}
}

// flushTimeout bounds the time to write the rest of the output at the end. A reader that hangs must
// not keep the launcher from exiting: a service manager waits for that.
const flushTimeout = 2 * time.Second

// end prints err unless it is nil. Then it flushes stdout and stderr, both at the same time, which
// takes at most flushTimeout.
func (p *printer) end(err error) {
	if err != nil {
		fmt.Fprintln(p.errs, err)
	}
	var all sync.WaitGroup
	all.Go(func() { p.out.Close(flushTimeout) })
	all.Go(func() { p.errs.Close(flushTimeout) })
	all.Wait()
}

// printAddresses prints the addresses of the admin service and of the listeners of the groups. The
// port of an address can be the choice of the kernel (port 0), so the actual addresses are printed.
func printAddresses(w io.Writer, m *launcher.Manager, groups []launcher.GroupConfig) {
	if addr := m.AdminAddr(); addr != nil {
		fmt.Fprintln(w, "operators at", addr)
	}
	for _, g := range groups {
		for _, addr := range m.Addrs(g.Name) {
			fmt.Fprintln(w, "listening on", addr)
		}
	}
}
