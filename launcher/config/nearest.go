package config

import (
	"slices"
	"strings"
)

// nearest suggests a known key that is similar to name or contains it, or else lists the known
// keys. About one letter in three may be wrong. The text continues an error, and begins with a
// semicolon.
func nearest(name string, keys []*setting) string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	best, at := 1+len(name)/3, ""
	for _, n := range names {
		d := distance(name, n)
		if len(name) > 3 && strings.Contains(n, name) {
			d = min(d, best)
		}
		if d <= best {
			best, at = d-1, n
		}
	}
	if at == "" {
		slices.Sort(names)
		return "; the keys here are " + strings.Join(names, ", ")
	}
	return "; did you mean " + at + "?"
}

// distance returns the number of bytes to change, insert or delete to get from a to b. It keeps one
// row of the table of Levenshtein's algorithm at a time.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
