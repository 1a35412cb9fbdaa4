package config_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"go.yaml.in/yaml/v4"
)

// A program can have a GroupConfig in a YAML file of its own: the tags, which are for package
// config, are accepted by a YAML package.
func TestGroupConfig_TagsAreAcceptedByYAMLPackage(t *testing.T) {
	g := launcher.DefaultGroup()
	g.Name, g.Command, g.Shutdown.Grace = "kv", []string{"kv", "--fast"}, time.Minute
	g.PreStop = []launcher.Hook{{Command: []string{"bye"}, Timeout: time.Second}}
	text, err := yaml.Dump(g)
	if err != nil {
		t.Fatal(err)
	}
	var again launcher.GroupConfig
	if err := yaml.Load(text, &again); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "what is read", []any{again.Name, again.Command, again.Shutdown.Grace, again.PreStop}, []any{g.Name, g.Command, g.Shutdown.Grace, g.PreStop})
}
