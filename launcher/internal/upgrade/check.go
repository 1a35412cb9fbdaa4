package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// answer is the last line of the output of a program that can take over. An exit code of 0 would
// not do: a program that ignores the arguments, such as true, exits with it as well.
const answer = "swansong upgrade ok"

// CheckTimeout bounds how long the new program may take for its check. The launcher goes on as
// usual meanwhile, except that no reload and no other upgrade can begin.
const CheckTimeout = 30 * time.Second

// Check runs a program with these arguments, to ask whether it could take over. The program is
// started like a process of the launcher, in the same cgroup if there is one, so that it cannot
// outlive the launcher. An error says what the program has printed.
//
// The program gets the handoff on its stdin, as it would get it in the upgrade. It need not read
// all of it: a program that exits early ends the copying.
func (h *Handoff) Check(ctx context.Context, program string, args, env []string, in proc.Containment) error {
	h.Version = Version
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	p, err := proc.Start(proc.Spec{Args: append([]string{program}, args...), Env: env, In: in, ParentDeath: syscall.SIGKILL})
	if err != nil {
		return err
	}
	defer p.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, CheckTimeout, fmt.Errorf("the program gave no answer within %v", CheckTimeout))
	defer cancel()
	out, errs := proc.NewTail(4<<10), proc.NewTail(4<<10)
	var copying sync.WaitGroup
	copying.Go(func() { io.Copy(out, p.Stdout()) })
	copying.Go(func() { io.Copy(errs, p.Stderr()) })
	copying.Go(func() { // ends when p has read the text, or at the latest when p exits
		io.Copy(p.Stdin(), bytes.NewReader(text))
		p.Stdin().Close()
	})
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
	now := time.Now()
	exit, err := p.End(proc.Deadlines{Terminate: now, Kill: now, GiveUp: now.Add(spec.ReapTimeout)})
	// Close stdin here. A process that the program has left behind may still have the other end of
	// the pipe open; then the goroutine above would not end otherwise.
	p.Stdin().Close()
	if err != nil { // the program has not ended and may have its output open; Close makes the goroutine above return
		p.Close()
	}
	copying.Wait()
	said := strings.TrimSpace(errs.String())
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case (exit.Code != 0 || exit.Signal != 0) && said != "":
		return errors.New(strings.TrimPrefix(said, "launcher: "))
	case exit.Code != 0 || exit.Signal != 0:
		return errors.New(exit.String())
	case !strings.HasSuffix(strings.TrimSpace(out.String()), answer):
		return fmt.Errorf("the program is not a launcher that can take over: it printed %q instead of %q", strings.TrimSpace(out.String()), answer)
	}
	return nil
}

// Answer is the other side of Check, in the program that is checked: it reads the handoff from r,
// and calls the function check. If check returns nil, Answer writes to w that the program can take
// over.
//
// The program prints an error of Answer to stderr, and Check returns the text that was printed
// there.
func Answer(r io.Reader, w io.Writer, check func(*Handoff) error) error {
	h, err := decode(r)
	if err != nil {
		return err
	}
	if err := check(h); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, answer)
	return err
}
