package config_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

var update = flag.Bool("update", false, "write the golden files")

func print(t testing.TB, c *config.Config) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestConfig_PrintsEveryKeyWithoutSecrets(t *testing.T) {
	for _, name := range []string{"full", "rfc"} {
		t.Run(name, func(t *testing.T) {
			c := read(t, name+".yaml")
			got, golden := print(t, c), filepath.Join("testdata", name+".effective.yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			testkit.Equal(t, "the printed configuration is another one", parse(t, got), c.Masked())
			if strings.Contains(got, "hunter2") || strings.Contains(got, "1234") {
				t.Errorf("the output has a secret:\n%s", got)
			}
		})
	}
	if c := read(t, "full.yaml"); c.Masked() == c || c.Groups[1].Env[0] != "CARD_PIN=1234" || c.Groups[1].Command[3] != "--api-token=hunter2" {
		t.Error("the secrets are removed from the configuration itself")
	}
}

// Errors do not repeat values of the wrong type, which may be secret.
func TestParse_ErrorsDoNotShowSecrets(t *testing.T) {
	for _, text := range []string{
		"process_groups: [{name: kv, env: {PASSWORD: 13371337}}]",
		"process_groups: [{name: kv, env: {PASSWORD: [hunter2]}}]",
		"process_groups: [{name: kv, args: [--password, 13371337]}]",
		"process_groups: [{name: kv, env: hunter2}]",
		"process_groups: [{name: kv, env: {PASSWORD: \"hunter2}}]",
	} {
		_, err := config.Parse("f.yaml", []byte(text))
		if err == nil || strings.Contains(err.Error(), "1337") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A configuration that a program has made can leave MinHealthy to package launcher.
func TestPrint_PrintsConfigurationThatProgramMadeWithoutFile(t *testing.T) {
	g := launcher.DefaultGroup()
	g.Name, g.Command = "kv", []string{"kv"}
	made := &config.Config{Groups: []config.Group{{GroupConfig: g, Export: config.Export{Port: 50051, ServicePort: 8080}}}}
	read := parse(t, "process_groups: [{name: kv}]")
	again := parse(t, print(t, made))
	again.TotalDeadline = read.TotalDeadline
	testkit.Equal(t, "changes to what is printed", config.Diff(read, again), []config.Change(nil))
	var changed []string
	for _, c := range config.Diff(read, made) {
		changed = append(changed, c.Key)
	}
	testkit.Equal(t, "changes", changed, []string{"total_deadline", "min_healthy_instances"})
}

func FuzzParse_FileIsValidOrErrorHasPosition(f *testing.F) {
	for _, name := range []string{"full.yaml", "rfc.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("process_groups: [{name: kv, env: &a {<<: *a}, args: ['', ' ', \"\\u2028\", 'null', '1', '- a', '#', \"a\\r\\n\"]}]"))
	f.Add([]byte("process_groups: [{name: kv, restart_policy: never, min_ready_seconds: 0.0000001, total_deadline: 0}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse("f.yaml", text)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f.yaml:") && !strings.Contains(err.Error(), "\\n") && !bytes.ContainsAny(text, "\r\n\u0085\u2028\u2029") {
					t.Errorf("%q has no position", line)
				}
			}
			return
		}
		to := c.Launcher()
		to.Guardian = []string{"guard"} // the command launcher adds the guardian, which keep requires
		if c.StateDir == "" {
			to.Dir = "/d"
		}
		if err := to.Validate(); err != nil {
			t.Errorf("package launcher refuses a valid file: %v", err)
		}
		printed := print(t, c)
		again, err := config.Parse("printed", []byte(printed))
		if err != nil {
			t.Fatalf("what is printed is not understood: %v\n%s", err, printed)
		}
		if diff := config.Diff(c.Masked(), again); len(diff) > 0 {
			t.Errorf("what is printed is something else: %v\n%s", diff, printed)
		}
	})
}
