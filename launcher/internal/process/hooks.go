package process

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// runHooks runs the pre-stop hooks one after the other.
//
// It runs in a goroutine of its own, which p.calls counts, so the state machine of the process goes
// on when the time for leaving routing has passed, even if a hook hangs. A failed hook is published
// as an event. The next hook and the stop follow nevertheless.
func (p *Process) runHooks() {
	for _, h := range p.Config().PreStop {
		if p.mustEndHooks() {
			return
		}
		message := h.Command[0]
		if err := p.runHook(h); err != nil {
			message += ": " + err.Error()
		}
		p.publish(events.Event{Kind: events.HookRun, Message: message})
	}
}

// runHook runs one hook, and kills it when its timeout has passed, the scope of the process is
// forced, the process ends or it is being killed. A goroutine waits for these events, and ends when
// runHook returns. The hook runs in the working directory of the launcher, not in that of the
// process.
func (p *Process) runHook(h spec.Hook) error {
	ctx, cancel := context.WithTimeoutCause(p.scope.Work(), h.Timeout, fmt.Errorf("the hook was killed after its timeout of %v", h.Timeout))
	defer cancel()
	go func() {
		select {
		case <-p.hooksCut:
		case <-p.proc.Done():
		case <-ctx.Done():
		}
		cancel()
	}()
	args, env := p.placeholders().HookCommand(p.cfg, h, p.proc.Pid(), spawn.Inherited(p.cfg, os.Environ()))
	exit, _, err := spawn.Run(ctx, p.group.Containment, "", args, env)
	switch {
	case err != nil && ctx.Err() != nil && p.mustEndHooks():
		return errors.New("the hook was killed because its process has ended or is being killed")
	case err == nil && (exit.Code != 0 || exit.Signal != 0):
		return errors.New(exit.String())
	}
	return err
}

// mustEndHooks reports whether hooks must not run any more, even if their timeout has not passed.
func (p *Process) mustEndHooks() bool {
	select {
	case <-p.hooksCut:
		return true
	case <-p.scope.Work().Done():
		return true
	// The process has ended. A hook gets the pid of the process, which another process may have by
	// now.
	case <-p.proc.Done():
		return true
	default:
		return false
	}
}
