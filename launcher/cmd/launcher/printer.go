package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/capture"
)

// A printer prints what it is told without waiting for somebody to read: a pager, a terminal that ^S has stopped, a collector of logs
// that hangs. What is more than it holds is not printed.
type printer struct{ out, errs *capture.File }

// printed is what the launcher, or the command, says on stdout and stderr by itself. The other commands wait for who reads them.
var printed = sync.OnceValue(func() *printer { return newPrinter(os.Stdout, os.Stderr) })

func newPrinter(out, errs io.Writer) *printer {
	const held = 1 << 20
	return &printer{capture.To(out, held, nil), capture.To(errs, held, nil)}
}

// lastPatience is how long the last words wait for somebody to read them.
const lastPatience = 2 * time.Second

// end says why the command ends, if anything has failed, and waits until all is printed that there is, but not for long. Who does not read the
// one takes no time from the other.
func (p *printer) end(err error) {
	if err != nil {
		fmt.Fprintln(p.errs, err)
	}
	var all sync.WaitGroup
	all.Go(func() { p.out.Close(lastPatience) })
	all.Go(func() { p.errs.Close(lastPatience) })
	all.Wait()
}
