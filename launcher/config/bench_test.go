package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/launcher/config"
	"go.yaml.in/yaml/v4"
)

// BenchmarkText redacts typical lines of output.
func BenchmarkText(b *testing.B) {
	r := config.NewRedactor()
	filler := strings.Repeat(`,"note":"nothing of interest is said here"`, 25)
	for _, l := range []struct{ name, text, want string }{
		{"plain", "2026-01-02T12:30:00Z request served in 12 ms", "2026-01-02T12:30:00Z request served in 12 ms"},
		{"fields", "login failed, user=kv password=hunter2 n=1", "login failed, user=kv password=[redacted] n=1"},
		{"flags", "exec web --verbose --token hunter2 -n 1", "exec web --verbose --token [redacted] -n 1"},
		{"json", `{"level":"info","msg":"served","ms":12,"user":"kv"}`, `{"level":"info","msg":"served","ms":12,"user":"kv"}`},
		{"json with a secret", `{"level":"info","msg":"login","password":"hunter2"}`, `{"level":"info","msg":"login","password":"[redacted]"}`},
		{"json in json", `{"msg":"{\"password\":\"hunter2\",\"n\":1}"}`, `{"msg":"{\"password\":\"[redacted]\",\"n\":1}"}`},
		{"json of 1 KiB", `{"token":"hunter2"` + filler + `}`, `{"token":"[redacted]"` + filler + `}`},
	} {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(l.text)))
			for b.Loop() {
				if got := r.Text(l.text); got != l.want {
					b.Fatalf("got  %s\nwant %s", got, l.want)
				}
			}
		})
	}
}

// BenchmarkParse parses a file with every key, compared with the YAML parser alone.
func BenchmarkParse(b *testing.B) {
	text, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("config", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := config.Parse("full.yaml", text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("yaml.Node", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var n yaml.Node
			if err := yaml.Load(text, &n); err != nil {
				b.Fatal(err)
			}
		}
	})
}
