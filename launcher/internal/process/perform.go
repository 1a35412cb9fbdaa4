package process

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/transport"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// perform carries out an action that the state machine of the process has returned.
//
// The goroutine of run calls it and must not wait here, because the events in the inbox would not
// be handled meanwhile. So all that can take long happens in goroutines that p.calls counts: calls
// of the process and the router, and the hooks. They report their results through the inbox.
// Signals are sent at once.
func (p *Process) perform(m *lifecycle.Machine, a lifecycle.Action) {
	cfg := m.Config()
	switch a.Kind {
	case lifecycle.DoAskReadiness:
		timeout := cfg.Shutdown.Poll
		if m.Running() {
			timeout = cfg.LivenessTimeout
		}
		p.call(lifecycle.OnReadiness, timeout, p.askReadiness)
	case lifecycle.DoShutdown:
		in := p.shutdownRequest(m)
		p.call(lifecycle.OnAck, cfg.Shutdown.Poll, func(ctx context.Context, e *lifecycle.Event) (err error) {
			// If the process has used the protocol before, do not wait for a connection: the call
			// fails at once when nothing listens on the socket any more. If it has not, and
			// something listens, wait: grpc may be in its back-off after a failed attempt to
			// connect. If it has not, and nothing listens, it is a program without the protocol.
			known := p.usedProtocol() == spec.GRPC
			if !known && !p.conn.IsServed() {
				return status.Error(codes.Unavailable, "the process does not use the lifecycle protocol")
			}
			e.Ack, err = p.child.Shutdown(ctx, in, grpc.WaitForReady(!known))
			return err
		})
	case lifecycle.DoAskStatus:
		p.call(lifecycle.OnStatus, cfg.Shutdown.Poll, func(ctx context.Context, e *lifecycle.Event) (err error) {
			e.Status, err = p.child.GetShutdownStatus(ctx, &pb.ShutdownStatusRequest{ProcessId: p.id, WithReport: a.Report})
			return err
		})
	case lifecycle.DoRegister:
		p.setRouted(true)
		p.calls.Go(p.register)
	case lifecycle.DoLeaveRouting:
		p.setRouted(false)
		p.calls.Go(func() { p.route() })
	case lifecycle.DoDeregister:
		p.calls.Go(func() {
			p.deregister()
			p.runHooks()
			p.Send(lifecycle.Event{Kind: lifecycle.OnDeregistered})
		})
	case lifecycle.DoSignal:
		p.publish(events.Event{Kind: events.Signalled, Message: a.Signal + ": " + m.Message})
		p.proc.Signal(lifecycle.StopSignals[a.Signal])
		if m.SignalsSent == 1 && lifecycle.Continue != 0 { // without SIGCONT, a process that was suspended by SIGSTOP would not handle the signal
			p.proc.Signal(lifecycle.Continue)
		}
	case lifecycle.DoTerminate:
		p.cutHooks()
		p.publish(events.Event{Kind: events.Signalled, Message: "SIGTERM to all: " + m.ForceReason})
		p.proc.Terminate()
	case lifecycle.DoKill:
		p.cutHooks()
		p.publish(events.Event{Kind: events.Signalled, Message: "SIGKILL to all: " + m.ForceReason})
		p.proc.Kill()
	case lifecycle.DoReportUnconfirmed:
		names := make([]string, 0, 4)
		for _, member := range p.proc.Members() {
			names = append(names, member.String())
		}
		p.publish(events.Event{Kind: events.Alarm, Outcome: lifecycle.Unconfirmed, Message: fmt.Sprintf("the process is not known to have ended %v after SIGKILL; still there: %s",
			spec.ReapTimeout, strings.Join(names, ", "))})
	case lifecycle.DoReportGrace:
		p.publish(events.Event{Kind: events.GraceOver, Message: m.GraceReport()})
	case lifecycle.DoReportExtension:
		p.publish(events.Event{Kind: events.Extension, Message: fmt.Sprintf("the process requested more time (request %d): it must exit within %v of the stop request; the maximum is %v",
			a.Request, m.Deadline.Sub(m.AskedAt).Round(time.Millisecond), m.MaxAt.Sub(m.AskedAt).Round(time.Millisecond))})
	}
}

// askReadiness asks the process whether it is ready.
func (p *Process) askReadiness(ctx context.Context, e *lifecycle.Event) (err error) {
	// Over TCP a call fails until the port is known. Waiting for the port here is faster than
	// waiting for the next poll.
	wait := grpc.WaitForReady(p.cfg.Transport.Network == "tcp")
	e.Readiness, err = p.child.GetReadinessStatus(ctx, &pb.ReadinessRequest{ProcessId: p.id}, wait)
	if p.cfg.Protocol == spec.Auto && p.usedProtocol() == "" {
		err = p.conn.UnavailableIfUnserved(err)
	}
	return err
}

// shutdownRequest returns a request with the time that the process has from now on. That is less
// than the configured time if the process is asked again, or if the total deadline of the launcher
// leaves less. It is never 0, which would mean no limit.
func (p *Process) shutdownRequest(m *lifecycle.Machine) *pb.ShutdownRequest {
	limit := max(p.group.Deadline.Remaining(time.Until(m.MaxAt)), time.Millisecond)
	grace := min(m.Grace, limit)
	if m.GraceEnforced {
		grace = min(grace, time.Until(m.Deadline))
	}
	grace = max(grace, time.Millisecond)
	return &pb.ShutdownRequest{ProcessId: p.id, Reason: cmp.Or(m.Reason, "shutdown"),
		GracePeriodSeconds: wireSeconds(grace), GracePeriodMs: wireMillis(grace),
		MaxShutdownSeconds: wireSeconds(limit), MaxShutdownMs: wireMillis(limit),
		GraceEnforced: m.GraceEnforced}
}

// call calls the process and sends the result to the inbox.
//
// The call is cancelled after the timeout, which is at most the time between two calls of the same
// kind. If the call fails, the event has the code and the text of the error, and no answer.
func (p *Process) call(kind lifecycle.EventKind, timeout time.Duration, f func(ctx context.Context, e *lifecycle.Event) error) {
	p.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		e := lifecycle.Event{Kind: kind}
		if err := f(ctx, &e); err != nil {
			e.Readiness, e.Ack, e.Status = nil, nil, nil
			e.Code, e.Err = status.Code(err), transport.Explain(err)
			if e.Code == codes.OK {
				e.Code = codes.Unknown
			}
		}
		p.Send(e)
	})
}

// AskDrain asks the process what it would have to drain, and stops nothing. The message is that of
// the process, or says why the process could not be asked.
func (p *Process) AskDrain(ctx context.Context) (metrics *pb.ShutdownMetrics, message string) {
	p.mu.Lock()
	child := p.child
	p.mu.Unlock()
	switch {
	case p.Status().State.Ended():
		return nil, "the process has ended"
	case p.cfg.Protocol.CallsProcess() && child == nil:
		return nil, "the process is being started"
	case !p.cfg.Protocol.CallsProcess() || p.usedProtocol() != spec.GRPC && !p.conn.IsServed():
		return nil, "the process does not use the lifecycle protocol"
	}
	ctx, cancel := context.WithTimeout(ctx, p.Config().Shutdown.Poll)
	defer cancel()
	answer, err := child.GetShutdownStatus(ctx, &pb.ShutdownStatusRequest{ProcessId: p.id}, grpc.WaitForReady(true))
	if err != nil {
		return nil, "the process does not answer: " + transport.Explain(err)
	}
	return p.group.Secrets.MaskMetrics(answer.GetMetrics()), p.group.Secrets.Mask(answer.GetMessage())
}

// Stop begins to stop the process. If grace is not 0, it replaces the configured grace period. If
// the process is being stopped already, nothing changes.
func (p *Process) Stop(reason string, grace time.Duration) {
	p.Send(lifecycle.Event{Kind: lifecycle.OnStop, Reason: reason, Grace: grace})
}

// Signal sends a signal to the process. It returns false if the process does not run yet.
func (p *Process) Signal(sig syscall.Signal, reason string) (bool, error) {
	p.mu.Lock()
	running := p.proc
	p.mu.Unlock()
	if running == nil {
		return false, nil
	}
	if err := running.Signal(sig); err != nil {
		return false, fmt.Errorf("launcher: cannot signal process %q: %w", p.id, err)
	}
	p.publish(events.Event{Kind: events.Signalled, Message: lifecycle.SignalName(sig) + ": " + reason})
	return true, nil
}

// wireSeconds and wireMillis round up, because 0 would mean no limit in a request.
func wireSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

func wireMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
