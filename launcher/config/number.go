package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

var (
	digits      = regexp.MustCompile(`^[-+]?[0-9][0-9_]*$`)
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]+$`) // octal in YAML 1.1, but not in 1.2
	durations   = regexp.MustCompile(`^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)
)

// isOutOfRange reports whether text is a whole number that does not fit into an int64. The parser
// can take such a number for a float, so the type of the node does not tell.
func isOutOfRange(text string) bool {
	_, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	return digits.MatchString(text) && errors.Is(err, strconv.ErrRange)
}

const (
	octal      = "begins with a 0, which some programs read as octal; leave the 0 out"
	outOfRange = "%s is out of range"
)

// whole reads a whole number into v, or returns what is wrong with it.
//
// It is strict where YAML is not: a quoted number, an octal one and 3.0 are refused, each with what
// to write instead.
func (d *decoder) whole(n *yaml.Node, v reflect.Value) (rule string) {
	var i int
	switch tag := n.ShortTag(); {
	case tag == "!!str" && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && digits.MatchString(n.Value):
		return "must be a whole number, not a string; leave out the quotes"
	case tag != "!!int" && tag != "!!float":
		return fmt.Sprintf("must be %s, not %s", expected(v, ""), kindOf(n))
	case leadingZero.MatchString(n.Value):
		return octal
	case isOutOfRange(n.Value):
		return fmt.Sprintf(outOfRange, n.Value)
	case n.Value == "-0": // accepted as 0, although the parser reads -0 as a floating-point number
	case tag == "!!float":
		return fmt.Sprintf("must be %s, not %s", expected(v, ""), kindOf(n))
	case n.Load(&i) != nil:
		return "must be a whole number, such as 3"
	}
	v.SetInt(int64(i))
	return ""
}

// duration reads a duration into v, or returns what is wrong with it. If inSeconds is set, a number
// without a unit is a number of seconds.
//
// A duration without a unit is refused, except for 0: 30 could mean seconds or milliseconds, and
// the message shows both spellings.
func (d *decoder) duration(n *yaml.Node, v reflect.Value, inSeconds bool) (rule string) {
	length, err := time.ParseDuration(n.Value)
	tag := n.ShortTag()
	number := tag == "!!int" || tag == "!!float"
	switch {
	case number && leadingZero.MatchString(n.Value):
		return octal
	case number && inSeconds:
		var f float64
		if n.Load(&f) != nil || math.IsNaN(f) {
			return "must be a number of seconds, or " + expected(v, "")
		}
		if math.Abs(f) > math.MaxInt64/float64(time.Second) {
			return fmt.Sprintf(outOfRange, n.Value)
		}
		length = time.Duration(math.Round(f * float64(time.Second)))
	case number && (err != nil || length != 0):
		if _, err := time.ParseDuration(n.Value + "s"); err == nil {
			return fmt.Sprintf("needs a unit: %ss, or %sms?", n.Value, n.Value)
		}
		return fmt.Sprintf("must be %s, not %s", expected(v, ""), kindOf(n))
	case err != nil && tag == "!!str" && durations.MatchString(n.Value):
		return fmt.Sprintf(outOfRange, n.Value)
	case err != nil || tag == "!!null":
		return fmt.Sprintf("must be %s, not %s", expected(v, ""), kindOf(n))
	}
	v.SetInt(int64(length))
	return ""
}

// plain reads a number or a boolean into v, or returns what is wrong with it. NaN and infinity are
// refused: no setting has a use for them, and comparisons with NaN are always false.
func (d *decoder) plain(n *yaml.Node, v reflect.Value) (rule string) {
	tags := []string{"!!int", "!!float"}
	if v.Kind() == reflect.Bool {
		tags = []string{"!!bool"}
	}
	if !slices.Contains(tags, n.ShortTag()) || n.Load(v.Addr().Interface()) != nil ||
		v.Kind() == reflect.Float64 && (math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0)) {
		return fmt.Sprintf("must be %s, not %s", expected(v, ""), kindOf(n))
	}
	return ""
}

// kindOfFloat describes a number that YAML takes for a floating-point number.
func kindOfFloat(text string) string {
	switch {
	case strings.Contains(text, "nan"):
		return ".nan"
	case strings.Contains(text, "inf"):
		return ".inf"
	case strings.Contains(text, "e"):
		return "a number with an exponent"
	case strings.Contains(text, "."):
		return "a fraction"
	}
	return "a number"
}
