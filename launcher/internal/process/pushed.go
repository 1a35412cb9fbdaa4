package process

import (
	"context"
	"fmt"
	"slices"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/notify"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/userdir"
)

// HasPID reports whether pid is that of the process or of one that it has started.
func (p *Process) HasPID(pid int) bool {
	if p.Status().PID == pid {
		return true
	}
	p.mu.Lock()
	contained := p.proc
	p.mu.Unlock()
	return contained != nil && slices.ContainsFunc(contained.Members(), func(m proc.Member) bool { return m.PID == pid })
}

// Ready is called when the process has reported that it is ready. Ready returns false if the
// process has ended.
func (p *Process) Ready(message string) bool {
	p.conn.Redial()
	return p.Send(lifecycle.Event{Kind: lifecycle.OnPushedReady, Reason: message})
}

// ShutdownComplete is called when the process has reported that its drain has ended. It returns
// false if the process has ended.
func (p *Process) ShutdownComplete(message, drainError string) bool {
	return p.Send(lifecycle.Event{Kind: lifecycle.OnPushedEnd, Reason: message, DrainError: drainError})
}

// Serving handles the report of the process on which port it serves: it records the port.
func (p *Process) Serving(ctx context.Context, port int32) error {
	p.group.Gate.Enter()
	err := p.conn.SetPort(port)
	p.group.Gate.Leave()
	if err != nil {
		return err
	}
	if p.isKept() {
		// The process repeats its report until the launcher answers. So if the launcher dies before
		// the port is in the state file, the process reports the port to the next launcher. The
		// error of Flush is ignored: if the call returned it, the process would end, and the Writer
		// has already raised an alarm.
		p.group.StateFile.Flush(ctx.Done())
	}
	p.conn.Redial()
	return nil
}

// listenNotify makes the socket for sd_notify(3) messages, and returns the environment
// variables by which the process finds it. Without the socket, a process that needs it does not
// become ready.
func (p *Process) listenNotify() (env []string) {
	if !p.cfg.Protocol.TakesMessages() {
		return nil
	}
	path := p.sockets.notify
	inherited := p.adopted.TakeNotify()
	var err error
	p.notify, err = notify.Listen(path, inherited, &p.group.Gate, p.HasPID, p.notified)
	if err == nil && inherited == nil && p.sockets.owner >= 0 {
		err = userdir.Give(path, p.user)
	}
	if err != nil {
		if p.cfg.Protocol == spec.Notify {
			p.publish(events.Event{Kind: events.Alarm, Message: err.Error()})
		}
		return nil
	}
	env = append(env, "NOTIFY_SOCKET="+path)
	if w := p.cfg.Watchdog; w > 0 {
		env = append(env, fmt.Sprintf("WATCHDOG_USEC=%d", w.Microseconds()))
	}
	return env
}

// drainNotify handles the messages that have arrived. It is called before a verdict of a probe is
// handled, because after that verdict a process without messages counts as a program that sends
// none. It is also called before the exit of the process is handled, because a message may name
// another process that takes its place.
func (p *Process) drainNotify() {
	<-p.begun
	if p.notify != nil {
		p.notify.Drain()
	}
}

// notified handles an sd_notify(3) message of the process.
func (p *Process) notified(m notify.Message) {
	if m.MainPID != 0 && m.MainPID != p.proc.Pid() && p.proc.Follow(m.MainPID) {
		p.mu.Lock()
		p.status.PID, p.adoptable = m.MainPID, p.proc.Adoptable(p.adoptable.Containment)
		p.mu.Unlock()
		p.publish(events.Event{Kind: events.MainProcess, Message: fmt.Sprintf("pid %d takes the place of the process that was started", m.MainPID)})
		p.group.StateFile.Changed()
	}
	p.Send(lifecycle.Event{Kind: lifecycle.OnNotified, Notification: m})
}
