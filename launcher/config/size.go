package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. In a file it is a number of bytes, or a number with the unit KiB, MiB or GiB.
type Bytes int64

var units = []struct {
	name string
	size Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String returns the size in the largest unit that divides it, so that a size that is printed and
// read again is the same.
func (b Bytes) String() string {
	for _, u := range units {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// parseBytes reads a size of 0 or more. The units are powers of 1,024 and nothing else: KB and M
// mean different sizes in different programs, so they are refused.
func parseBytes(s string) (Bytes, error) {
	size := Bytes(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < 0 || n > math.MaxInt64/int64(size)):
		return 0, fmt.Errorf("must be 0 to %v", Bytes(math.MaxInt64>>30<<30))
	case err != nil:
		return 0, errors.New("must be a size, such as 65536 or 64KiB (KiB, MiB, GiB)")
	}
	return Bytes(n) * size, nil
}
