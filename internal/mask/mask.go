// Package mask replaces secret values in text by [Mark]. It searches for the values themselves and
// for the encodings in which programs usually print them. It changes nothing else in a text,
// whatever names, patterns or format the text has.
package mask

import (
	"cmp"
	"slices"
	"strings"
)

// Mark replaces a secret value. It is shorter than every value that is masked, so that masking
// never makes a text longer.
const Mark = "***"

// MinLength is the length in bytes of the shortest value that is masked. A shorter one, such as "1"
// or "true", also occurs where it is not the secret, and would make logs unreadable.
const MinLength = 6

// A Masker masks a fixed set of values. Its methods may be called concurrently. A nil Masker masks
// nothing.
type Masker struct {
	// texts contains the texts to mask. The key is made from the first bytes of a text. Texts with
	// the same key are ordered by length, the longest first.
	texts   map[uint32][]string
	filter  [1 << (filterBits - 6)]uint64 // has a bit set for each key of the map texts; see mayStart
	longest int                           // length of the longest of the texts to mask
}

// New returns a Masker for the values and their encodings; see [Texts]. It returns nil if there is
// no value to mask.
func New(values []string) *Masker {
	m := &Masker{texts: map[uint32][]string{}}
	for _, text := range Texts(values) {
		key := start(text, 0)
		m.texts[key] = append(m.texts[key], text)
		m.filter[hash(key)/64] |= 1 << (hash(key) % 64)
		m.longest = max(m.longest, len(text))
	}
	if len(m.texts) == 0 {
		return nil
	}
	for _, same := range m.texts {
		slices.SortFunc(same, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	}
	return m
}

// startLength is the number of bytes in a key of the map texts. No text is shorter.
const startLength = 4

// start returns the key in the map texts that stands for the startLength bytes of s from index i
// on.
func start(s string, i int) uint32 {
	s = s[i : i+startLength]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

const filterBits = 16

func hash(key uint32) uint32 { return key * 0x9E3779B1 >> (32 - filterBits) }

// mayStart reports whether a text may begin with the bytes that key stands for. It exists for
// speed: for almost every position in a log line it returns false, and the map need not be
// searched.
func (m *Masker) mayStart(key uint32) bool { return m.filter[hash(key)/64]&(1<<(hash(key)%64)) != 0 }

// lengthAt returns the length of the longest text that begins at index i of s, and 0 if none begins
// there.
func (m *Masker) lengthAt(s string, i int) int {
	if i+startLength > len(s) {
		return 0
	}
	key := start(s, i)
	if !m.mayStart(key) {
		return 0
	}
	for _, text := range m.texts[key] {
		if strings.HasPrefix(s[i:], text) {
			return len(text)
		}
	}
	return 0
}

// next returns the indexes at which a secret part of s begins and ends: the first part that begins
// at or after the index from. Texts that overlap are one part. The first covered bytes of s are
// known to be secret. If no part is left, start is len(s).
func (m *Masker) next(s string, from, covered int) (start, end int) {
	start, end = from, covered
	for end <= start {
		if start = m.skip(s, start); start == len(s) {
			return start, start
		}
		if end = start + m.lengthAt(s, start); end == start {
			start++
		}
	}
	for i := start; i < end; i++ {
		end = max(end, i+m.lengthAt(s, i))
	}
	return start, end
}

// skip returns the first position of s, at or after from, where a text may start, and len(s) if
// there is none.
func (m *Masker) skip(s string, from int) int {
	for i := from; i+startLength <= len(s); i++ {
		if m.mayStart(start(s, i)) {
			return i
		}
	}
	return len(s)
}

// Mask returns s with each secret part of it replaced by Mark. It does not allocate if s has no
// secret.
func (m *Masker) Mask(s string) string { return m.mask(s, 0) }

// mask returns s with each secret part of it replaced by Mark, and without its first bytes, whose
// number is covered. They are the rest of a secret that began in an earlier piece of the line, and
// was replaced by Mark there.
func (m *Masker) mask(s string, covered int) string {
	if m == nil {
		return s
	}
	start, end := m.next(s, 0, covered)
	if start == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	copied := 0
	for start < len(s) {
		b.WriteString(s[copied:start])
		if start >= covered {
			b.WriteString(Mark)
		}
		copied = end
		start, end = m.next(s, end, covered)
	}
	b.WriteString(s[copied:])
	return b.String()
}

// Lookahead returns how many bytes after a piece [Masker.Split] needs in order to know whether a
// secret begins in the piece.
func (m *Masker) Lookahead() int {
	if m == nil {
		return 1
	}
	return m.longest
}

// Split returns the first piece of a line, masked, and the rest of the line, empty if the line is
// not longer than limit. The piece has at most limit bytes.
//
// No value is cut in two, except for one that is longer than limit. In the first piece, Mark stands
// for such a value. The next pieces leave out the remaining bytes of the value, so they may be
// empty. stillCovered is the number of these bytes, with which the rest of the line begins. The
// caller passes it as covered with the next call, and 0 with the first call for a line.
//
// If s is not the whole rest of the line, s must have at least limit + Lookahead bytes.
func (m *Masker) Split(s string, limit, covered int) (piece, rest string, stillCovered int) {
	if len(s) <= limit {
		return m.mask(s, covered), "", 0
	}
	if m == nil {
		return s[:limit], s[limit:], 0
	}
	cut := limit
	for start, end := m.next(s, 0, covered); start < limit; start, end = m.next(s, end, covered) {
		switch {
		case end <= limit:
			continue
		case start > 0:
			cut = start
		case covered > 0:
			return "", s[limit:], end - limit
		default:
			return Mark, s[limit:], end - limit
		}
		break
	}
	return m.mask(s[:cut], covered), s[cut:], 0
}
