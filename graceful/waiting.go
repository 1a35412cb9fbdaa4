package graceful

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

const (
	firstWaitReport    = time.Second     // the time from the beginning of Soft to the first report of a waitReporter
	waitReportInterval = 5 * time.Second // the time between two reports of a waitReporter
)

// A waitReporter reports at regular intervals what a long drain waits for: to the logger, or to the
// output if there is neither a logger nor a progress line, and to the service manager. The fields
// are protected by the mutex of the Process.
type waitReporter struct {
	*Process
	manager  *manager
	progress *progressLine
	timer    *time.Timer   // makes the next report; nil before the beginning of Soft
	writing  chan struct{} // closed when the current report has been written; nil before the first report
	stopped  bool
}

// start starts the timer for the first report on what the drain waits for. Only the first call has
// an effect.
func (w *waitReporter) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(firstWaitReport, w.report)
	}
}

// stop ends the reports. It returns a channel that is closed when the last one has been written, or
// nil if there was none.
func (w *waitReporter) stop() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.writing
}

// report writes one report and schedules the next one.
func (w *waitReporter) report() {
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return
	}
	done := make(chan struct{})
	w.writing = done
	w.mu.Unlock()
	began := time.Now()
	catchPanic(func() error { w.write(); return nil }, func(err error) {
		defer close(done)
		if err != nil {
			w.fail(err)
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.stopped {
			// If making the report takes long because the tree of scopes is large, report less
			// often.
			w.timer = time.AfterFunc(max(waitReportInterval, 20*time.Since(began)), w.report)
		}
	})
}

func (w *waitReporter) write() {
	// Read the status before the guards are listed. Afterwards the phase may be Exit, which has no
	// time limit that the report could name.
	now := w.current()
	held := w.scope.GuardReport()
	if held.Count() == 0 || now.Phase == Exit {
		return
	}
	st := now.shown()
	text := describeWait(st, time.Now(), held)
	w.manager.notify("STATUS=" + text)
	hint := ""
	if out, ok := w.config.output.(*os.File); ok && columns(out) > 0 {
		if times := w.interruptsNeeded(st); times != "" {
			hint = "press ^C " + times + " to cut it short"
			if now.Phase == Hard {
				hint = "press ^C " + times + " to exit"
			}
		}
	}
	switch {
	case w.config.logger != nil:
		attrs := []slog.Attr{slog.String("phase", now.Phase.String()), slog.Any("guards", held), slog.Duration("for", time.Since(now.stopped))}
		if !st.Until.IsZero() {
			attrs = append(attrs, slog.Duration("next", time.Until(st.Until)))
		}
		if hint != "" {
			attrs = append(attrs, slog.String("hint", hint))
		}
		w.config.logger.LogAttrs(context.Background(), slog.LevelInfo, "waiting for "+held.Summary(), attrs...)
	case w.progress.out == nil:
		if hint != "" {
			text += "; " + hint
		}
		io.WriteString(w.config.output, "graceful: "+text+"\n")
	}
}

// interruptsNeeded returns how often the user of a terminal must press ^C to cut the drain short:
// "again", or "twice" if the drain has another reason than a signal, since the first signal does
// not count then. It returns an empty string if SIGINT has no effect.
func (p *Process) interruptsNeeded(st Status) string {
	switch {
	case !slices.Contains(p.config.signals, os.Interrupt), signal.Ignored(os.Interrupt):
		return ""
	case st.Signals == 0:
		return "twice"
	}
	return "again"
}

// describeWait says what the drain waits for, and until when, as in
//
//	waiting for 3 requests and 1 job, oldest 12 s: GET /export from 192.0.2.1:4711; cancelling them in 8 s
func describeWait(st Status, now time.Time, held ctxshutdown.GuardReport) string {
	if st.Until.IsZero() {
		return "waiting for " + held.Summary()
	}
	what, left := "cancelling them", wholeSeconds(st.Until.Sub(now))
	if st.Phase == Hard {
		what = "giving up"
	}
	return fmt.Sprintf("waiting for %s; %s in %s", held.Summary(), what, left)
}

// wholeSeconds formats a duration that is not negative, rounded up.
func wholeSeconds(d time.Duration) string {
	return fmt.Sprintf("%d s", (max(0, d)+time.Second-1)/time.Second)
}
