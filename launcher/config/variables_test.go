package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// Variables in values are replaced in the way of Docker Compose. A configuration that was read and
// then printed means the same as its file.
func TestParse_ReplacesVariables(t *testing.T) {
	t.Setenv("SET", "yes")
	t.Setenv("EMPTY", "")
	t.Setenv("NUMBER", "3")
	t.Setenv("PAUSE", "7s")
	os.Unsetenv("UNSET")
	for in, want := range map[string]string{
		"${SET}":                      "yes",
		"a${SET}b${NUMBER}c":          "ayesb3c",
		"${EMPTY}":                    "",
		"${EMPTY:-other}":             "other",
		"${EMPTY-other}":              "",
		"${UNSET:-${SET}}":            "yes",
		"${UNSET-a b}":                "a b",
		"${UNSET:-}":                  "",
		"${SET:+on}${UNSET:+off}":     "on",
		"${EMPTY+on}${EMPTY:+off}":    "on",
		"${SET:?must be set}":         "yes",
		"$$SET $${SET} $$$$ $$":       "$SET ${SET} $$ $",
		"$SET $(id) $? 5$":            "$SET $(id) $? 5$",
		"${UNSET:-a$${b}":             "a${b",
		"it has no variable":          "it has no variable",
		"${UNSET:-{\"json\": [1,2]}}": "{\"json\": [1,2]}",
	} {
		c := parse(t, "process_groups: [{name: kv, args: ['"+in+"', '"+in+"'], env: {A: '"+in+"'}}]")
		testkit.Equal(t, in, c.Groups[0].Command[1:], []string{want, want})
		testkit.Equal(t, in+" in env", c.Groups[0].Env[0], "A="+want)
		again := parse(t, print(t, c))
		testkit.Equal(t, in+", printed and read", again.Groups[0].Command[1:], []string{want, want})
	}
	c := parse(t, "process_groups: [{name: kv, desired_instances: \"${NUMBER}\", health_check_timeout: \"${PAUSE}\", clear_env: \"${UNSET:-true}\", env: {N: \"${NUMBER}\"}}]")
	testkit.Equal(t, "a number", c.Groups[0].Desired, 3)
	testkit.Equal(t, "a duration", c.Groups[0].HealthCheckTimeout.String(), "7s")
	testkit.Equal(t, "a boolean", c.Groups[0].ClearEnv, true)
	testkit.Equal(t, "a number as a string", c.Groups[0].Env, []string{"N=3"})
}

func TestParse_ReportsWrongVariablesByLine(t *testing.T) {
	os.Unsetenv("UNSET")
	for value, want := range map[string]string{
		"${UNSET}":                "the variable UNSET is not set in the launcher's environment; set it, or write ${UNSET:-default}, or $${UNSET} for the text",
		"${UNSET:?name the host}": "the variable UNSET is not set in the launcher's environment: name the host",
		"${UNSET:-${UNSET}}":      "the variable UNSET is not set in the launcher's environment; set it, or write ${UNSET:-default}, or $${UNSET} for the text",
		"${":                      "has ${ without }; write $${ for the text ${",
		"${}":                     "has ${ without the name of a variable after it; write $${ for the text ${",
		"${1}":                    "has ${ without the name of a variable after it; write $${ for the text ${",
		"${UNSET/a/b}":            `after ${UNSET come }, :-, :? or :+, not "/a/b"`,
	} {
		_, err := config.Parse("f", []byte("process_groups:\n- {name: kv, args: [a, '"+value+"']}"))
		testkit.Equal(t, value, err.Error(), "f:2:24: process_groups[0].args[1]: "+want)
	}
	_, err := config.Parse("f", []byte("process_groups:\n- {name: kv, desired_instances: '${UNSET:-many}'}"))
	testkit.Equal(t, "a word for a number", err.Error(), "f:2:33: process_groups[0].desired_instances: must be a whole number, not a string")
	_, err = config.Parse("f", []byte("process_groups:\n- {name: kv, clear_env: 1}"))
	testkit.Equal(t, "a number for a boolean", err.Error(), "f:2:25: process_groups[0].clear_env: must be true or false, not a number")
}

// A secret that comes from the environment is not printed.
func TestPrint_MasksSecretsThatComeFromEnvironment(t *testing.T) {
	t.Setenv("DB_PASSWORD", "correct horse")
	c := parse(t, "process_groups: [{name: kv, args: ['--to=${DB_PASSWORD}@db'], env: {URL: 'x${DB_PASSWORD}'}}]")
	if text := print(t, c); strings.Contains(text, "horse") || !strings.Contains(text, "--to=***@db") {
		t.Errorf("printed:\n%s", text)
	}
}

// A secret that comes from the environment is masked in the value of each key, even if nothing in
// the name of the key says that the value may be a secret.
func TestPrint_MasksSecretsEverywhere(t *testing.T) {
	t.Setenv("DB_PASSWORD", "horse-battery")
	c := parse(t, "process_groups:\n- {name: kv, working_dir: '/${DB_PASSWORD}', logs: {dir: '/log/${DB_PASSWORD}'}, limits: {memory: 1GiB},\n"+
		"   readinessProbe: {httpGet: {port: 80, host: 'x${DB_PASSWORD}'}}, rlimits: {nofile: 5}, listeners: [{name: web, address: ':80'}]}")
	text := print(t, c)
	if strings.Contains(text, "battery") || strings.Count(text, "***") != 3 {
		t.Errorf("printed:\n%s", text)
	}
	testkit.Equal(t, "the configuration itself", c.Groups[0].WorkDir, "/horse-battery")
}

// A secret value is masked in the values that are printed, but not in the names of variables and
// limits, which can contain the same text.
func TestPrint_DoesNotMaskNamesThatContainSecretValue(t *testing.T) {
	text := print(t, parse(t, "secret: {values: [postgres, nofile]}\nprocess_groups:\n"+
		"- {name: kv, env: {postgres_a: '1', postgres_b: 'on postgres'}, rlimits: {nofile: 5}}"))
	g := parse(t, text).Groups[0]
	testkit.Equal(t, "env", g.Env, []string{"postgres_a=1", "postgres_b=on ***"})
	testkit.Equal(t, "rlimits", g.Rlimits, []launcher.Rlimit{{Name: "nofile", Soft: 5, Hard: 5}})
}

// Clients find the launcher's directory although they lack the variables of the launcher.
func TestDirOf_FindsDirectoryEvenIfVariablesOfLauncherAreUnset(t *testing.T) {
	os.Unsetenv("UNSET")
	file := filepath.Join(t.TempDir(), "f.yaml")
	for text, want := range map[string]string{
		"state_dir: /s\nprocess_groups: [{name: '${UNSET}', desired_instances: '${UNSET}'}]": "/s",
		"state_dir: ${UNSET}\nprocess_groups: [{name: kv}]":                                  "f.yaml:1:12: state_dir: the variable UNSET is not set",
		"state_dir: /s\nprocess_groups: [{name: kv, nme: x}]":                                "f.yaml:2:29: process_groups[0].nme: unknown key",
		"state_dir: [": "f.yaml:2:1: is not YAML",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.DirOf(file)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// The variables that a group takes from an env_file are part of its configuration: they are
// checked, a reload compares them, and env overrides them. If the configuration is printed, it has
// the name of the file instead of the variables.
func TestLoad_VariablesOfEnvFilesBelongToConfigurationOfGroup(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a.env", "\uFEFF# comment\n\nA=1\nexport B = two words # comment\nC='single $x \\n'\nD=\"double \\\"q\\\" \\n \\$x\" # comment\r\nE=\nF=a#b\nDB_PASSWORD=hunter2000\n")
	write("b.env", "A=2\nG='it#s'\n")
	yaml := "process_groups: [{name: kv, command: sleep, env_file: [" + dir + "/a.env, " + dir + "/b.env], env: {B: mine}}]"
	file := write("f.yaml", yaml)
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"A=2", "B=mine", "C=single $x \\n", "D=double \"q\" \n $x", "DB_PASSWORD=hunter2000", "E=", "F=a#b", "G=it#s"}
	if diff := cmp.Diff(want, c.Launcher().Groups[0].Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if text := print(t, c); strings.Contains(text, "hunter") || !strings.Contains(text, "env_file: ["+dir+"/a.env") {
		t.Errorf("printed:\n%s", text)
	}
	write("b.env", "A=2\nDB_PASSWORD=hunter3000\n")
	next, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, change := range config.Diff(c, next) {
		changes = append(changes, change.String())
	}
	testkit.Equal(t, "changes", changes, []string{
		`~ kv: env_file.DB_PASSWORD: "***" → "***", changed (rolls the group)`,
		`~ kv: env_file.G: "***" → – (rolls the group)`,
	})
	for text, want := range map[string]string{
		"A":            "b.env:1: must be NAME=value, or a comment that begins with #",
		"\n=secret":    "b.env:2: must be NAME=value, or a comment that begins with #",
		"A='b":         "b.env:1: the value of A begins with a quote and does not end with one; a value has one line",
		"A=\"b\\\"":    "b.env:1: the value of A begins with a quote and does not end with one; a value has one line",
		"A='b' c":      "b.env:1: the value of A has text after the closing quote",
		"LISTEN_FDS=3": "b.env: LISTEN_FDS is reserved: the launcher sets it for the process",
		"A=\x00":       "b.env is not a text in UTF-8",
	} {
		write("b.env", text)
		_, err := config.Load(file)
		if err == nil || !strings.HasPrefix(err.Error(), file+":1:") || !strings.Contains(err.Error(), "process_groups[0].env_file[1]: "+dir+"/") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v\nwant …%s", text, err, want)
		}
	}
	write("b.env", "A\nB=1\nC='\n")
	var all config.Errors
	if _, err := config.Load(file); !errors.As(err, &all) || len(all) != 2 || !strings.Contains(all[0].Rule, "b.env:1: ") || !strings.Contains(all[1].Rule, "b.env:3: ") {
		t.Errorf("a file with two errors: %v", err)
	}
	write("b.env", strings.Repeat("A\n", 1000))
	if _, err := config.Load(file); !errors.As(err, &all) || len(all) != 21 || !strings.HasSuffix(all[20].Rule, "b.env: 980 more lines are wrong") {
		t.Errorf("a file that is no env_file: %v", err)
	}
	os.Remove(filepath.Join(dir, "b.env"))
	if _, err := config.Load(file); err == nil || !strings.HasSuffix(err.Error(), "b.env cannot be read: no such file or directory") {
		t.Errorf("a missing file: %v", err)
	}
}

// An error of the function that opens the files is part of the message, whatever its type.
func TestLoadSourceFunc_ReportsErrorsOfOpen(t *testing.T) {
	dir := t.TempDir()
	file, env := filepath.Join(dir, "f.yaml"), filepath.Join(dir, "a.env")
	if err := os.WriteFile(file, []byte("process_groups: [{name: kv, command: sleep, env_file: ["+env+"]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	errAccess := errors.New("no access")
	denied := &fs.PathError{Op: "open", Path: env, Err: fs.ErrPermission}
	for want, err := range map[string]error{
		"vault: " + denied.Error(): fmt.Errorf("vault: %w", denied),
		"no access":                errAccess,
		"vault: no access":         fmt.Errorf("vault: %w", errAccess),
		"permission denied":        denied,
	} {
		_, _, got := config.LoadSourceFunc(file, func(name string) (*os.File, error) {
			if name == env {
				return nil, err
			}
			return os.Open(name)
		})
		if want = env + " cannot be read: " + want; got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("the error is %v, want one that contains %q", got, want)
		}
	}
}
