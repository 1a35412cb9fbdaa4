package launcher

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/client"
)

// runHooks runs the pre-stop hooks, one after the other.
func (p *process) runHooks() {
	for _, h := range p.rules().PreStop {
		if p.hurried() {
			return
		}
		message := h.Command[0]
		if err := p.runHook(h); err != nil {
			message += ": " + err.Error()
		}
		p.tell(Event{Kind: HookRun, Message: message})
	}
}

func (p *process) runHook(h Hook) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	env := append(withoutOurs(os.Environ()), client.EnvID+"="+p.id, "SWANSONG_PROCESS_GROUP="+p.group,
		fmt.Sprintf("SWANSONG_PROCESS_PID=%d", p.proc.Pid()))
	args := make([]string, len(h.Command))
	for i, expand := 0, p.placeholders(); i < len(args); i++ {
		args[i] = expand.Replace(h.Command[i])
	}
	hook, err := proc.Start(proc.Spec{Args: args, Env: env, Stdin: null, Stdout: null, Stderr: null,
		In: p.manager.pen, ParentDeath: parentDeath})
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-p.hurry:
			hook.Kill()
		case <-p.scope.Work().Done():
			hook.Kill()
		case <-p.proc.Done():
			hook.Kill()
		case <-hook.Done():
		}
	}()
	late := time.Now().Add(h.Timeout)
	exit, err := hook.End(proc.Deadlines{Terminate: late, Kill: late, GiveUp: late.Add(reapPatience)})
	switch {
	case err != nil:
		return err
	case exit.Killed && p.hurried():
		return errors.New("killed, since the process has ended, or has no more time to stop")
	case exit.Terminated || exit.Killed:
		return fmt.Errorf("killed after %v", h.Timeout)
	case exit.Code != 0:
		return errors.New(exit.String())
	}
	return nil
}

// hurried reports whether the time for hooks is over, whatever time they have for themselves.
func (p *process) hurried() bool {
	select {
	case <-p.hurry:
		return true
	case <-p.scope.Work().Done():
		return true
	case <-p.proc.Done(): // its number may be that of somebody else by now
		return true
	default:
		return false
	}
}
