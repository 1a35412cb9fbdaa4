// Package figures is shared by the programs that measure this module and write the pages of
// docs/measured. It orders the rounds of a measurement, computes quantiles, and writes tables and
// pages.
package figures

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
)

// A Page is a Markdown file of figures. Text that is written to the Page is also printed to
// standard output, so that a long measurement shows its progress.
type Page struct {
	name string
	text strings.Builder
}

// NewPage returns a page for the named file. The file begins with head, which is not printed to
// standard output.
func NewPage(name, head string) *Page {
	p := &Page{name: name}
	p.text.WriteString(head)
	return p
}

// Write implements [io.Writer].
func (p *Page) Write(b []byte) (int, error) {
	p.text.Write(b)
	return os.Stdout.Write(b)
}

// Save writes the file. Its name is relative to the root of the repository.
func (p *Page) Save() error {
	if err := os.WriteFile(p.name, []byte(p.text.String()), 0o666); err != nil {
		return fmt.Errorf("%w; run this program from the root of the repository", err)
	}
	return nil
}

// Row writes a row of a Markdown table. The second row of a table aligns its columns: ---, or ---:
// for numbers.
func Row(w io.Writer, cells ...string) { fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |") }

// Rounds returns an iterator over n rounds of a measurement: the number of the round, from 0, and
// the sides that are compared, in the order in which the caller runs them in this round. Each round
// begins with another side, so that no side has the advantage of always running first.
func Rounds[T any](n int, sides ...T) iter.Seq2[int, []T] {
	return func(yield func(int, []T) bool) {
		for i := range n {
			first := i % len(sides)
			if !yield(i, slices.Concat(sides[first:], sides[:first])) {
				return
			}
		}
	}
}

// Median returns the median of the values, and 0 if there are none.
func Median[T cmp.Ordered](values []T) T { return Quantile(values, 0.5) }

// Quantile returns the value that the fraction q of the values does not exceed, from 0 for the
// smallest to 1 for the largest. It returns 0 if there are no values.
func Quantile[T cmp.Ordered](values []T, q float64) (v T) {
	if len(values) == 0 {
		return v
	}
	return slices.Sorted(slices.Values(values))[int(q*float64(len(values)-1)+0.5)]
}
