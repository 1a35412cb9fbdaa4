package config_test

import (
	"os"
	"testing"

	"github.com/swansong-go/swansong/launcher/config"
	"go.yaml.in/yaml/v4"
)

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
