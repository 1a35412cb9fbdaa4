package export_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/export"
)

// In a configuration that a program has made, MinHealthy and MaxSurge can be nil: then they have
// the defaults of package launcher. The export of a configuration that is not valid returns an
// error.
func TestExport_ConvertsConfigurationMadeByProgram(t *testing.T) {
	read, err := config.Parse("f", []byte("process_groups: [{name: kv}]"))
	if err != nil {
		t.Fatal(err)
	}
	g := config.Group{GroupConfig: launcher.DefaultGroup(), Export: read.Groups[0].Export}
	g.Name, g.Command, g.MaxSurge = "kv", []string{"kv"}, nil
	for _, target := range export.Targets() {
		r := to(t, target, &config.Config{Groups: []config.Group{g}})
		if diff := cmp.Diff(to(t, target, read), r); diff != "" {
			t.Errorf("%s (-of the file +of the program):\n%s", target, diff)
		}
		unfinished := g
		unfinished.Command = nil
		_, err := export.To(target, &config.Config{Groups: []config.Group{unfinished}})
		if !strings.Contains(testkit.ErrorText(err), "export: kv: has no Command") {
			t.Errorf("%s without a command: %v", target, err)
		}
	}
}
