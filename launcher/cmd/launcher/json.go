package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A failure is the JSON output of a command that has failed before it has printed anything.
type failure struct {
	Error string `json:"error"`
}

// printErrorsAsJSON makes a command that prints JSON print a [failure] to stdout if it fails, in
// addition to the text on stderr, also if its arguments are wrong. A command that has printed
// something prints no failure after that, because its output is one document, or has the errors of
// its orders already.
func printErrorsAsJSON(cmd *cobra.Command) {
	cmd.RunE = withFailure(cmd.RunE)
	if cmd.Args != nil {
		cmd.Args = withFailure(cmd.Args)
	}
}

// withFailure wraps the function run of a command, for printErrorsAsJSON: if run returns an error
// and has printed nothing, the wrapper prints the error as JSON.
func withFailure(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if !printsJSON(cmd) {
			return run(cmd, args)
		}
		out := &counter{to: cmd.OutOrStdout()}
		cmd.SetOut(out)
		defer cmd.SetOut(out.to)
		err := run(cmd, args)
		if err != nil && out.n == 0 {
			printLine(out, failure{err.Error()})
		}
		return err
	}
}

// printsJSON reports whether a command prints JSON. The flag --json decides. Without the flag, the
// command status prints JSON unless stdout is a terminal, and all others do not.
func printsJSON(cmd *cobra.Command) bool {
	if cmd.Name() == "status" && !cmd.Flags().Changed("json") {
		return !isTerminal(cmd.OutOrStdout())
	}
	asJSON, err := cmd.Flags().GetBool("json") // an error means that the command has no such flag
	return err == nil && asJSON
}

// A counter counts the bytes that are written to another writer.
type counter struct {
	to io.Writer
	n  int
}

func (c *counter) Write(b []byte) (n int, err error) {
	n, err = c.to.Write(b)
	c.n += n
	return n, err
}

// printLine prints a value as JSON in one line. Characters such as & and < stay as they are,
// because the output is not for a web page.
func printLine(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(v)
}

// longNumber matches the only 64-bit number in the output. protojson prints such a number as a
// string, because JavaScript would round large ones; this number of bytes stays far below that.
var longNumber = regexp.MustCompile(`("bufferedBytes":\s*)"(\d+)"`)

// unspecified matches a key of the JSON output whose value is an enum that was not set, such as the
// previous state in an event that is no transition. The comma is part of the match, because another
// key always follows. The pattern cannot match inside of a text, where each quote has a backslash
// before it.
var unspecified = regexp.MustCompile(`"\w+":\s*"[A-Z_]+_UNSPECIFIED",\s*`)

// printJSON prints a message with its empty fields, so that a script finds every key in every
// output. Only enums that are not set are left out.
func printJSON(w io.Writer, m proto.Message, indent bool) error {
	text, err := protojson.MarshalOptions{Multiline: indent, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return err
	}
	text = unspecified.ReplaceAll(longNumber.ReplaceAll(text, []byte("$1$2")), nil)
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
