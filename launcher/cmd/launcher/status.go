package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/internal/worktext"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// refreshInterval is the time between two requests of --watch. Events would tell of most changes at
// once, but not of the times and of the work in flight, which a view shows as well.
const refreshInterval = 500 * time.Millisecond

// statusCommand returns the command status. With --watch, a terminal is redrawn at each interval,
// because the times in it change, and another output gets a text only if the state has changed.
// JSON is then one line each time, so a script can read line by line. The end of the launcher then
// ends the command without an error.
func statusCommand(at *place) *cobra.Command {
	var goesOn bool
	cmd := &cobra.Command{
		Use:   "status [group ...]",
		Short: "Show the state of all processes, and what is waited for",
		Long: "Show the state of all processes, and what a stop, a roll or the start is waiting for: in colour on a terminal (unless NO_COLOR is set), " +
			"as JSON otherwise. With --watch, continue until ^C or the end of the launcher.",
		Args:              takes(0, many, ""),
		ValidArgsFunction: at.complete(groups),
		RunE: func(cmd *cobra.Command, args []string) error {
			terminal := isTerminal(cmd.OutOrStdout())
			asJSON := printsJSON(cmd)
			show := func(out *pb.GetGroupHealthResponse) error {
				if asJSON {
					return printJSON(cmd.OutOrStdout(), out, !goesOn)
				}
				text := newView(cmd.OutOrStdout(), time.Now()).health(out)
				if goesOn && terminal {
					// The cursor goes to the top left corner, and the screen is cleared.
					text = "\x1b[H\x1b[2J" + text
				}
				_, err := io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			return watch(cmd, at, goesOn, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				var last *pb.GetGroupHealthResponse
				for {
					out, err := healthOf(ctx, to, args)
					// If the first request returns Unavailable, no launcher was running, and status
					// fails. After that, the code means that the launcher has exited.
					if last != nil && status.Code(err) == codes.Unavailable {
						fmt.Fprintln(cmd.ErrOrStderr(), "the launcher has exited")
						return nil
					}
					if err != nil {
						return err
					}
					if terminal || last == nil || !proto.Equal(out, last) {
						if err := show(out); err != nil {
							return err
						}
					}
					if last = out; !goesOn {
						return nil
					}
					select {
					case <-time.After(refreshInterval):
					case <-ctx.Done():
						return nil
					}
				}
			})
		},
	}
	cmd.Flags().Bool("json", false, "print JSON, as is the default unless on a terminal; --json=false prints the view for people")
	cmd.Flags().BoolVar(&goesOn, "watch", false, "continue: on a terminal twice a second, otherwise on each change")
	return cmd
}

// healthOf returns the health of these groups, or of all groups if there is no name. Each name is a
// call, so groups may differ by what has happened in between.
func healthOf(ctx context.Context, to pb.LauncherAdminInterfaceClient, names []string) (*pb.GetGroupHealthResponse, error) {
	all := &pb.GetGroupHealthResponse{}
	for _, name := range orAll(names) {
		out, err := to.GetGroupHealth(ctx, &pb.GetGroupHealthRequest{Group: name})
		if err != nil {
			return nil, err
		}
		all.Groups = append(all.Groups, out.GetGroups()...)
	}
	return all, nil
}

// isTerminal reports whether w is a terminal, which only an open file can be.
func isTerminal(w io.Writer) bool {
	if c, ok := w.(*counter); ok {
		w = c.to
	}
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// A view formats the state of groups for people.
type view struct {
	now                         time.Time
	good, busy, bad, dim, title lipgloss.Style
}

// newView returns a view, with colours if w is a terminal that has colours and NO_COLOR is not set.
//
// The view computes all ages for the time now, so that its rows agree.
func newView(w io.Writer, now time.Time) view {
	r := lipgloss.NewRenderer(w)
	colour := func(c string) lipgloss.Style { return r.NewStyle().Foreground(lipgloss.Color(c)) }
	return view{now: now, good: colour("2"), busy: colour("3"), bad: colour("1").Bold(true), dim: r.NewStyle().Faint(true), title: r.NewStyle().Bold(true)}
}

// health returns the view: for each group a line and a table of its processes, and then what is
// waited for.
func (v view) health(out *pb.GetGroupHealthResponse) string {
	var b strings.Builder
	for _, g := range out.GetGroups() {
		health := v.good.Render("healthy")
		switch {
		case g.GetStopped():
			health = v.busy.Render("stopped")
		case !g.GetHealthy():
			health = v.bad.Render("NOT HEALTHY")
		}
		fmt.Fprintf(&b, "%s  %s, %d of %d ready, revision %d", v.title.Render(clean(g.GetGroup())), health, g.GetReady(), g.GetDesired(), g.GetRevision())
		if m := clean(g.GetMessage()); m != "" {
			b.WriteString(", " + v.busy.Render(m))
		}
		b.WriteString("\n")
		var rows [][]string
		for _, p := range g.GetProcesses() {
			rows = append(rows, []string{clean(p.GetProcessId()), fmt.Sprintf("pid %d", p.GetPid()), v.state(p), v.since(p), v.progress(p), describe(p)})
		}
		v.table(&b, rows)
	}
	b.WriteString(v.waitingFor(out))
	return b.String()
}

// table writes rows with aligned columns. Colour codes do not count towards the width of a cell,
// which is why package tabwriter is not used: it would count them. A column in which every cell is
// empty is left out.
func (v view) table(b *strings.Builder, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], lipgloss.Width(cell))
		}
	}
	for _, row := range rows {
		line := " "
		for n, cell := range row {
			if widths[n] > 0 {
				line += " " + cell + strings.Repeat(" ", widths[n]-lipgloss.Width(cell)+1)
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// state returns the name of the state in a colour: green if the process serves, red if something is
// wrong, faint if it has ended as intended, and yellow in all states on the way.
func (v view) state(p *pb.ProcessStatus) string {
	name := p.GetState().String()
	switch p.GetState() {
	case pb.ProcessState_READY:
		return v.good.Render(name)
	case pb.ProcessState_COMPLETE:
		return v.dim.Render(name)
	case pb.ProcessState_BLOCKED, pb.ProcessState_UNHEALTHY, pb.ProcessState_FORCED, pb.ProcessState_CRASHED, pb.ProcessState_GONE:
		return v.bad.Render(name)
	}
	return v.busy.Render(name)
}

// since returns for how long the process has been in its state, in whole seconds.
func (v view) since(p *pb.ProcessStatus) string {
	return v.now.Sub(p.GetSince().AsTime()).Round(time.Second).String()
}

// progress returns a bar that shows how much of the time allowed for its stop a process has used. A
// full bar does not mean that the process has ended: it may be about to be killed.
func (v view) progress(p *pb.ProcessStatus) string {
	took, bound := p.GetShutdownDuration().AsDuration(), p.GetBound().AsDuration()
	if !stopping(p) || bound <= 0 {
		return ""
	}
	const width = 10
	full := min(width, int(took*width/bound))
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}

// stopping reports whether a process was asked to stop, or is about to be, and has not ended. The
// states of the protocol are numbered in the order in which a process passes through them.
func stopping(p *pb.ProcessStatus) bool {
	return p.GetState() >= pb.ProcessState_SHUTDOWN_REQUESTED && p.GetState() < pb.ProcessState_COMPLETE
}

// waitingFor lists what a stop, a roll, or the start of the launcher is waiting for.
//
// Each line names one thing that has to happen, and what it depends on: the blocking operations of
// a process, or an order of the operator. The lines are sorted, so that they do not change places
// while they are watched.
func (v view) waitingFor(out *pb.GetGroupHealthResponse) string {
	var lines []string
	for _, g := range out.GetGroups() {
		if r := g.GetRoll(); r.GetPaused() {
			lines = append(lines, fmt.Sprintf("%s: %s; launcher restart %[1]s --resume, or --rollback", clean(g.GetGroup()), clean(r.GetMessage())))
		}
		unfinished := 0
		for _, p := range g.GetProcesses() {
			if p.GetOutcome() == pb.Outcome_NOT_ENDED {
				unfinished++
			}
			took := p.GetShutdownDuration().AsDuration().Round(100 * time.Millisecond)
			switch by := p.GetMetrics().GetBlockingOperations(); {
			case stopping(p):
				line := fmt.Sprintf("%s: stopping for %v, of %v at most", clean(p.GetProcessId()), took, p.GetBound().AsDuration())
				if len(by) > 0 {
					line += ", blocked by " + clean(strings.Join(by, ", "))
				} else if n := p.GetMetrics().GetInFlightRequests(); n > 0 {
					line += ", " + inFlight(n)
				}
				lines = append(lines, line)
			// A healthy group already has enough processes that are ready. A process that is still
			// starting is an additional one, and the group does not wait for it.
			case p.GetState() > 0 && p.GetState() < pb.ProcessState_READY && !g.GetHealthy():
				lines = append(lines, fmt.Sprintf("%s: %s for %s%s", clean(p.GetProcessId()), p.GetState(), v.since(p), prefixed(": ", clean(p.GetMessage()))))
			}
		}
		if g.GetStopping() {
			// The stopping processes of the group are listed above. If there are none, the group
			// has stopped, or it waits for other groups, which are listed themselves.
			continue
		}
		// List the group itself if it has too few processes that could be listed above, such as
		// none at all.
		if !g.GetHealthy() && unfinished < max(int(g.GetMinHealthy()), 1) && !g.GetRoll().GetPaused() {
			lines = append(lines, fmt.Sprintf("%s: %d of %d ready%s", clean(g.GetGroup()), g.GetReady(), g.GetDesired(), prefixed(": ", clean(g.GetMessage()))))
		}
	}
	if len(lines) == 0 {
		return v.dim.Render("waiting for nothing") + "\n"
	}
	slices.Sort(lines)
	return v.title.Render("waiting for") + "\n  " + strings.Join(lines, "\n  ") + "\n"
}

// describe returns what a process reports about itself, or how it ended.
func describe(p *pb.ProcessStatus) string {
	var words []string
	switch outcome := p.GetOutcome(); outcome {
	case pb.Outcome_NOT_ENDED, pb.Outcome_FORCED: // after a kill, the metrics say what was lost
		if n := p.GetMetrics().GetInFlightRequests(); n > 0 {
			words = append(words, inFlight(n))
		}
		if n := p.GetMetrics().GetBufferedBytes(); n > 0 {
			words = append(words, worktext.Pluralize(int(n), "byte")+" to write")
		}
		if b := p.GetMetrics().GetBlockingOperations(); len(b) > 0 && outcome == pb.Outcome_NOT_ENDED {
			words = append(words, "blocked by "+strings.Join(b, ", "))
		}
	// Add no word for the outcome: the state, which is printed as well, already says that the
	// process crashed.
	case pb.Outcome_CRASHED:
	default:
		words = append(words, outcome.String())
	}
	// Leave out a message that only repeats the exit status.
	words = append(words, p.GetExit())
	if m := p.GetMessage(); m != p.GetExit() {
		words = append(words, m)
	}
	// If a process was stopped because it failed a check, show that as well: its outcome can be
	// CLEAN.
	if why := p.GetReason(); strings.HasPrefix(why, "unhealthy") && p.GetOutcome() != pb.Outcome_NOT_ENDED {
		words = append(words, why)
	}
	return clean(strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "; "))
}

// inFlight returns the number of requests, in the singular for one.
func inFlight(requests int32) string {
	return worktext.Pluralize(int(requests), "request") + " in flight"
}

// clean replaces control characters in s, so that text from a process cannot change colours or move
// the cursor of the terminal. It also replaces line breaks, because a text is a cell or a line. The
// characters from 0x80 to 0x9f are control characters as well, which some terminals obey.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// prefixed returns s behind the prefix, and nothing if s is empty.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
