package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A Role says what follows from the verdict of a probe.
type Role int

const (
	Startup   Role = iota // the other probes begin when the startup probe has succeeded; a failure of the startup probe ends the process
	Readiness             // a failure of the readiness probe keeps requests away from the process
	Liveness              // a failure of the liveness probe ends the process
)

func (r Role) String() string { return [...]string{"startup", "readiness", "liveness"}[r] }

// A Check makes one check. It must return soon after its context has ended. The error says in plain
// words what is wrong.
type Check func(ctx context.Context, p spec.Probe) error

// Watch probes a process until ctx ends: with the startup probe until it has succeeded, and then
// with the readiness probe and the liveness probe, each on a goroutine of its own. A probe that is
// not set is left out. It calls the function report with the first verdict of each probe, and with
// each change of the verdict; a success is reported with a nil error. After a failure of the
// startup or liveness probe, that probe ends. Watch returns when all probes have ended.
//
// The initial delay of the probes counts from started, the time at which the process was started.
//
// The function report is called on the goroutines of the probes. So two of its calls can happen at
// the same time, and one call can come after ctx has ended.
func Watch(ctx context.Context, g spec.Group, started time.Time, check Check, report func(r Role, err error)) {
	if g.StartupProbe.IsSet() && !run(ctx, Startup, g.StartupProbe, started, check, report) {
		return
	}
	var probes sync.WaitGroup
	if p := g.ReadinessProbe; p.IsSet() {
		probes.Go(func() { run(ctx, Readiness, p, started, check, report) })
	}
	if p := g.LivenessProbe; p.IsSet() {
		probes.Go(func() { run(ctx, Liveness, p, started, check, report) })
	}
	probes.Wait()
}

// run runs one probe. It reports whether a startup probe has succeeded.
//
// The period counts from the beginning of one check to that of the next. A check that takes longer
// is followed by the next one at once, and checks that were missed are not made up for.
func run(ctx context.Context, r Role, p spec.Probe, started time.Time, check Check, report func(r Role, err error)) (succeeded bool) {
	threshold := Threshold{Success: p.SuccessThreshold, Failure: p.FailureThreshold}
	verdict, decided := false, false
	// The delay has passed already for a process that was adopted, so its first check is made at
	// once.
	timer := time.NewTimer(time.Until(started.Add(p.InitialDelay)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
		begun := time.Now()
		err := checkOnce(ctx, p, check)
		// The process is being stopped, which may have made the check fail, so the result is not
		// used.
		if ctx.Err() != nil {
			return false
		}
		if ok := err == nil; threshold.Add(ok) && (!decided || verdict != ok) {
			verdict, decided = ok, true
			if err != nil {
				err = failure(r, p, threshold.row, err)
			}
			report(r, err)
			if r == Startup || r == Liveness && !ok {
				return ok
			}
		}
		timer.Reset(time.Until(begun.Add(p.Period)))
	}
}

// checkOnce makes one check, and waits for its result no longer than the timeout of the probe.
//
// When the context has ended, the error is that of the context, which says how long the probe has
// waited. The errors of the methods would differ, such as "i/o timeout".
func checkOnce(ctx context.Context, p spec.Probe, check Check) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, fmt.Errorf("no answer within %v", p.Timeout))
	defer cancel()
	err := check(ctx, p)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// failure returns the error of a verdict: which probe has failed, how often, and why the last time.
func failure(r Role, p spec.Probe, times int, err error) error {
	row := ""
	if times > 1 {
		row = fmt.Sprintf(" %d times in a row", times)
	}
	return fmt.Errorf("the %s probe, %s, has failed%s: %w", r, p.Describe(), row, err)
}
