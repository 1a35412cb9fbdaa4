package mask_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/mask"
)

// twenty returns 20 secrets with the lengths and the characters of the secrets of real programs.
func twenty() (secrets []string) {
	for i := range 20 {
		secrets = append(secrets, fmt.Sprintf("s3cr3t/%d+%x", i, strings.Repeat(string(rune('a'+i)), 8+i)))
	}
	return secrets
}

// BenchmarkMask masks 20 secrets and their encodings in lines of 100 bytes.
func BenchmarkMask(b *testing.B) {
	m := mask.New(twenty())
	plain := `{"time":"2026-01-02T12:30:00Z","level":"info","msg":"request served","ms":12,"path":"/v1/items/42"}`
	for _, l := range []struct{ name, line string }{
		{"plain", plain},
		{"secret", strings.Replace(plain, "/v1/items/42", twenty()[7], 1)},
		{"base64", strings.Repeat("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo", 3)},
	} {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Mask(l.line)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
