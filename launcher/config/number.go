package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// What is beyond all numbers here is read as the largest or the smallest there is, and reported by the checker with the range
// of its key. The text is kept for that.

var (
	digits = regexp.MustCompile(`^[-+]?[0-9][0-9_]*$`)
	// A leading 0 is octal in YAML 1.1, and nothing in 1.2.
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]+$`)
	lengths     = regexp.MustCompile(`^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)
)

// beyond says whether text is a number of digits that no int64 holds, and returns the nearest that one does.
func beyond(text string) (nearest int64, yes bool) {
	nearest, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	return nearest, digits.MatchString(text) && errors.Is(err, strconv.ErrRange)
}

func extreme(text string) int64 {
	if strings.HasPrefix(text, "-") {
		return math.MinInt64
	}
	return math.MaxInt64
}

// whole reads a whole number.
func (d *decoder) whole(n *yaml.Node, key string, v reflect.Value) (rule string) {
	var i int
	most, far := beyond(n.Value)
	switch tag := n.ShortTag(); {
	case tag == "!!str" && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && digits.MatchString(n.Value):
		return "must be a whole number, not a string; leave out the quotes"
	case tag != "!!int" && tag != "!!float":
		return fmt.Sprintf("must be %s, not %s", expected(v), kindOf(n))
	case leadingZero.MatchString(n.Value):
		return octal
	case far:
		d.texts[key] = n.Value
		i = int(max(math.MinInt, min(math.MaxInt, most)))
	case n.Value == "-0": // a fraction, to the parser
	case tag == "!!float":
		return fmt.Sprintf("must be %s, not %s", expected(v), kindOf(n))
	case n.Load(&i) != nil:
		return "must be a whole number, such as 3"
	}
	v.SetInt(int64(i))
	return ""
}

const octal = "begins with a 0, which some take for an octal number; leave that out"

// length reads a duration. In seconds says that a bare number is one of seconds.
func (d *decoder) length(n *yaml.Node, key string, v reflect.Value, seconds bool) (rule string) {
	length, err := time.ParseDuration(n.Value)
	tag := n.ShortTag()
	number := tag == "!!int" || tag == "!!float"
	switch {
	case number && leadingZero.MatchString(n.Value):
		return octal
	case number && seconds:
		var f float64
		if n.Load(&f) != nil || math.IsNaN(f) {
			return "must be a number of seconds, or " + expected(v)
		}
		if math.Abs(f) > math.MaxInt64/float64(time.Second) {
			d.texts[key] = n.Value
			length = time.Duration(extreme(n.Value))
		} else {
			length = time.Duration(math.Round(f * float64(time.Second)))
		}
	case number && (err != nil || length != 0):
		if _, err := time.ParseDuration(n.Value + "s"); err == nil {
			return fmt.Sprintf("needs a unit: %ss, or %sms?", n.Value, n.Value)
		}
		return fmt.Sprintf("must be %s, not %s", expected(v), kindOf(n))
	case err != nil && tag == "!!str" && lengths.MatchString(n.Value):
		d.texts[key] = n.Value
		length = time.Duration(extreme(n.Value))
	case err != nil || tag == "!!null":
		return fmt.Sprintf("must be %s, not %s", expected(v), kindOf(n))
	}
	v.SetInt(int64(length))
	return ""
}

// said returns a value for an error: as it stands in the file, where it is beyond all that can be read.
func (d *decoder) said(key string, value any) any {
	if text, ok := d.texts[key]; ok {
		return text
	}
	return value
}
