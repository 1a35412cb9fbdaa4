package main

import (
	"fmt"
	"strings"

	"github.com/swansong-go/swansong/internal/mask"
)

// maskRows measure how long the launcher takes to mask secrets in the output of processes.
func maskRows() []row {
	line := `{"time":"2026-01-02T12:30:00Z","level":"info","msg":"request served","ms":12,"path":"/v1/items/42"}`
	return []row{{
		// The launcher must mask 200,000 lines per second of processor time, so a line may take 5
		// µs.
		what: "mask 20 secrets and their encodings in a line of 100 bytes", peer: "strings.Replacer for the same texts", limit: 0.5,
		ours: func() func(int) {
			m := mask.New(secrets())
			return func(n int) {
				for range n {
					m.Mask(line)
				}
			}
		},
		their: func() func(int) {
			var pairs []string
			for _, text := range mask.Texts(secrets()) {
				pairs = append(pairs, text, mask.Mark)
			}
			r := strings.NewReplacer(pairs...)
			r.Replace(line) // the first call builds the Replacer
			return func(n int) {
				for range n {
					r.Replace(line)
				}
			}
		},
	}}
}

// secrets returns 20 secrets of the length and form that real programs have.
func secrets() (all []string) {
	for i := range 20 {
		all = append(all, fmt.Sprintf("s3cr3t/%d+%x", i, strings.Repeat(string(rune('a'+i)), 8+i)))
	}
	return all
}
