package graceful

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A logger logs every change of status.
type logger struct {
	*Process
	last Status
}

func (l *logger) watch(st Status) {
	was := l.last
	l.last = st
	attrs := []slog.Attr{slog.String("phase", st.Phase.String())}
	if st.Cause != nil {
		attrs = append(attrs, slog.String("cause", st.Cause.Error()), slog.Any("guards", l.lastBlockers(st.Phase)))
	}
	if st.Why != nil && st.Why != st.Cause && st.Phase != was.Phase {
		attrs = append(attrs, slog.String("why", withoutPrefix(st.Why)))
	}
	if !st.Until.IsZero() {
		attrs = append(attrs, slog.Duration("next", st.Until.Sub(st.Since)))
	}
	level, message := slog.LevelInfo, ""
	switch {
	case st.Phase == Serving && st.Ready:
		message = "ready"
	case st.Phase == Serving:
		message = "serving"
	case st.Phase == Exit:
		now := l.current()
		attrs = append(attrs, slog.Duration("took", now.Since.Sub(now.stopped)))
		switch now.outcome {
		case clean:
			message = "drained"
		case cutShort:
			level, message = slog.LevelWarn, "drained after force"
		case abandoned:
			level, message = slog.LevelError, "abandoned"
		}
	case st.Extended > was.Extended:
		message = "drain extended"
		attrs = append(attrs, slog.Duration("by", st.Extended-was.Extended), slog.String("reason", st.Reason))
	case st.Phase == was.Phase:
		message = "already stopping"
		attrs = append(attrs, slog.Int("signals", st.Signals))
	case st.Phase == LameDuck:
		message = "no longer ready, still serving"
	case st.Phase == Soft:
		message = "draining"
	case st.Phase == Hard:
		level, message = slog.LevelWarn, "drain cut short"
	}
	l.config.logger.LogAttrs(context.Background(), level, message, attrs...)
}

// frameInterval is the shortest time between two updates of the progress line.
const frameInterval = 100 * time.Millisecond

// A progressLine shows on a terminal how far the drain has come. Each update overwrites the line
// with a single write, and only if the text has changed, so the line does not flicker. The cursor
// stays at the beginning of the line, so that log output begins there. At the end, a line that
// stays says how long the drain took. A drain shorter than frameInterval shows nothing.
type progressLine struct {
	*Process
	out  *os.File
	quit chan struct{}
	done chan struct{}
}

// newProgressLine returns a progress line that updates itself until its method stop is called. If
// the output is not a terminal, the line does nothing.
func newProgressLine(p *Process) *progressLine {
	l := &progressLine{Process: p, quit: make(chan struct{}), done: make(chan struct{})}
	out, ok := p.config.output.(*os.File)
	if term := os.Getenv("TERM"); !ok || term == "" || term == "dumb" || columns(out) == 0 {
		close(l.done)
		return l
	}
	l.out = out
	go l.draw()
	return l
}

// stop replaces the progress line by the final line, and returns when that is written.
func (l *progressLine) stop() {
	close(l.quit)
	<-l.done
}

const (
	eraseToEnd = "\x1b[K"
	erase      = "\r" + eraseToEnd
)

func (l *progressLine) draw() {
	defer close(l.done)
	select {
	case <-l.lameDuck:
	case <-l.quit:
		return
	}
	tick := time.NewTimer(frameInterval)
	defer tick.Stop()
	shown := ""
	for {
		select {
		case <-l.quit:
			if shown != "" {
				l.out.WriteString(erase + l.final())
			}
			return
		case <-tick.C:
		}
		began := time.Now()
		st := l.Status()
		text := describe(st, began, l.scope.GuardReport(), l.interruptsNeeded(st), columns(l.out)-1)
		if text != shown {
			shown = text
			l.out.WriteString("\r" + text + eraseToEnd + "\r")
		}
		// If making the report takes long because the tree of scopes is large, update the line less
		// often.
		tick.Reset(max(frameInterval, 20*time.Since(began)))
	}
}

// final returns the line that says how the drain ended. It is empty if work was abandoned, because
// Run then prints the guards that are still held.
func (l *progressLine) final() string {
	now, text := l.current(), "drained in "
	switch now.outcome {
	case cutShort:
		text = "cut short, drained in "
	case abandoned:
		return ""
	}
	if text = cut(text+seconds(now.Since.Sub(now.stopped)), columns(l.out)-1); text == "" {
		return ""
	}
	return text + "\n"
}

// describe returns the text of the progress line in at most width columns, as in
//
//	draining · 2.1 s of 10 s · 3 requests and 1 job, oldest 12 s: GET /export from 192.0.2.1:4711
func describe(st Status, now time.Time, held ctxshutdown.GuardReport, interrupts string, width int) string {
	var b strings.Builder
	switch st.Phase {
	case LameDuck:
		b.WriteString("not ready, still serving")
	case Hard:
		b.WriteString("cut short")
	default:
		b.WriteString("draining")
	}
	switch spent, total := now.Sub(st.Since), st.Until.Sub(st.Since); {
	case !st.Until.IsZero():
		fmt.Fprintf(&b, " · %s of %s", seconds(min(total, spent)), strings.Replace(seconds(total), ".0", "", 1))
	case st.Phase == Soft:
		fmt.Fprintf(&b, " · %s", seconds(spent))
	}
	if st.Extended > 0 {
		fmt.Fprintf(&b, " · extended by %s", seconds(st.Extended))
		if st.Reason != "" {
			fmt.Fprintf(&b, " (%s)", st.Reason)
		}
	}
	if interrupts != "" && st.Phase != LameDuck && now.Sub(st.Since) >= firstWaitReport {
		effect := "cuts it short"
		if st.Phase == Hard {
			effect = "exits"
		}
		fmt.Fprintf(&b, " · ^C %s %s", interrupts, effect)
	}
	b.WriteString(" · " + held.Summary())
	return cut(b.String(), width)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// cut shortens s to the width of a terminal line and replaces unprintable characters: a reason may
// contain text from outside the program. The width of a character depends on the terminal, so every
// non-ASCII character counts as two columns.
func cut(s string, width int) string {
	const ellipsis = "…"
	var b strings.Builder
	// The variable used is the number of columns of the text in b. The variable fits is the number
	// of leading bytes of b after which the line still has room for an ellipsis.
	used, fits := 0, 0
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = '?'
		}
		columns := 1
		if r >= utf8.RuneSelf {
			columns = 2
		}
		if used+columns > width {
			if width < 2 {
				return ""
			}
			return b.String()[:fits] + ellipsis
		}
		b.WriteRune(r)
		if used += columns; used+2 <= width {
			fits = b.Len()
		}
	}
	return b.String()
}
