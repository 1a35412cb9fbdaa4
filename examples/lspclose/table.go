package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swansong-go/swansong/lspconn"
)

// A row is the JSON form of a report. Times are in milliseconds.
type row struct {
	Server    string          `json:"server"`
	Outcome   lspconn.Outcome `json:"outcome"`
	Exit      string          `json:"exit"`
	Failure   string          `json:"failure,omitempty"`
	Drain     float64         `json:"drainMs"`
	Handshake float64         `json:"handshakeMs"`
	Leave     float64         `json:"leaveMs"`
	Total     float64         `json:"totalMs"`
	Left      []string        `json:"left"`
	Survivors []string        `json:"survivors"`
}

func rows(reports []lspconn.Report) []row {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	list := func(s []string) []string { return append([]string{}, s...) }
	out := make([]row, len(reports))
	for i, r := range reports {
		out[i] = row{Server: r.Name, Outcome: r.Outcome, Exit: "unknown", Drain: ms(r.Drain), Handshake: ms(r.Handshake),
			Leave: ms(r.Leave), Total: ms(r.Total), Left: list(r.Left), Survivors: list(r.Survivors)}
		if r.Exit != nil {
			out[i].Exit = r.Exit.String()
		}
		if r.Failure != nil {
			out[i].Failure = r.Failure.Error()
		}
	}
	return out
}

// printTable prints one line for each report, then the reasons of failures and the total time.
func printTable(w io.Writer, reports []lspconn.Report, colour bool) {
	cells := [][]string{{"server", "outcome", "exit", "drain", "handshake", "leave", "total", "left behind", "survivors"}}
	var slowest, sum time.Duration
	for _, r := range reports {
		exit := "unknown"
		if r.Exit != nil {
			exit = strings.TrimPrefix(strings.TrimPrefix(r.Exit.String(), "exit code "), "ended by signal: ")
		}
		cells = append(cells, []string{r.Name, r.Outcome.String(), exit,
			formatDuration(r.Drain), formatDuration(r.Handshake), formatDuration(r.Leave), formatDuration(r.Total),
			joinNames(r.Left), joinNames(r.Survivors)})
		slowest, sum = max(slowest, r.Total), sum+r.Total
	}
	width := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for n, line := range cells {
		var b strings.Builder
		for i, c := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if colour && n > 0 && i == 1 {
				c = colourOutcome(reports[n-1].Outcome, c)
			}
			if i >= 3 && i <= 6 {
				c = pad + c // align durations to the right
			} else {
				c += pad
			}
			b.WriteString(c + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	gap := "\n"
	for _, r := range reports {
		if r.Failure != nil {
			fmt.Fprintf(w, "%s%s: %v\n", gap, r.Name, r.Failure)
			gap = ""
		}
	}
	fmt.Fprintf(w, "\nclosed in parallel in %s; one after another would have taken %s\n", formatDuration(slowest), formatDuration(sum))
}

func formatDuration(d time.Duration) string {
	if d < time.Millisecond {
		return "0"
	}
	return d.Round(time.Millisecond).String()
}

func joinNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

func colourOutcome(o lspconn.Outcome, text string) string {
	code := "31" // the terminal's code for red text
	switch o {
	case lspconn.Clean:
		code = "32" // the code for green text
	case lspconn.ExitedEarly, lspconn.HandshakeTimeout, lspconn.Terminated:
		code = "33" // the code for yellow text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// supportsColour reports whether w is a terminal whose user has not disabled colours.
func supportsColour(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
