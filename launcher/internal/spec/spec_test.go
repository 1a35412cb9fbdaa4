package spec_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// valid returns a group that breaks no rule.
func valid(name string) spec.Group {
	g := spec.Default()
	g.Name, g.Command = name, []string{"true"}
	g.Desired, g.MinHealthy = 1, 1
	return g
}

func TestConfig_CheckAcceptsDefaults(t *testing.T) {
	c := spec.Config{Dir: "/run/launcher", Groups: []spec.Group{valid("web"), valid("db")}}
	if problems := c.Check(); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestConfig_CheckAcceptsExplicitZero(t *testing.T) {
	g := valid("web")
	g.LivenessInterval = 0
	g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout = 0, 0
	g.Restart = spec.Restart{Policy: spec.OnFailure}
	g.Roll = spec.Roll{OnFailure: spec.Pause, Retry: spec.Manual}
	c := spec.Config{Dir: "/run/launcher", Groups: []spec.Group{g}}
	if problems := c.Check(); len(problems) > 0 {
		t.Error(problems)
	}
}

// A field with a problem of its own is not compared with others.
func TestConfig_CheckReportsEachFieldOnce(t *testing.T) {
	g := valid("web")
	g.Shutdown.Max, g.Shutdown.Grace = 0, time.Second
	g.Restart.MinBackoff = 2 * time.Minute
	c := spec.Config{Dir: "/run/launcher", Groups: []spec.Group{valid("db"), g}}
	problems := c.Check()
	var fields []spec.Field
	for _, p := range problems {
		if p.Group != 1 {
			t.Errorf("%s is reported for group %d", p.Field, p.Group)
		}
		fields = append(fields, p.Field)
	}
	if want := []spec.Field{"Shutdown.Max", "Restart.MaxBackoff"}; !slices.Equal(fields, want) {
		t.Errorf("problems of %v, want %v", fields, want)
	}
	if want := []spec.Field{"Restart.MinBackoff"}; !slices.Equal(problems[1].ComparedWith(), want) {
		t.Errorf("compared with %v, want %v", problems[1].ComparedWith(), want)
	}
	upper := func(f spec.Field) string { return strings.ToUpper(string(f)) }
	if got, want := problems[1].Rule(upper), "1m0s is shorter than RESTART.MINBACKOFF, 2m0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRestart_BackoffDoublesUpToMaximum(t *testing.T) {
	for _, c := range []struct {
		restart  spec.Restart
		failures int
		want     time.Duration
	}{
		{spec.Restart{MinBackoff: time.Second, MaxBackoff: 5 * time.Second}, 1, time.Second},
		{spec.Restart{MinBackoff: time.Second, MaxBackoff: 5 * time.Second}, 3, 4 * time.Second},
		{spec.Restart{MinBackoff: time.Second, MaxBackoff: 5 * time.Second}, 1000, 5 * time.Second},
		{spec.Restart{}, 1000, 0},
	} {
		if got := c.restart.Backoff(c.failures); got != c.want {
			t.Errorf("%+v: %v after %d failures, want %v", c.restart, got, c.failures, c.want)
		}
	}
}

// If a user has set the timeout of liveness checks to more than their interval, FillIn does not
// shorten the timeout.
func TestFillIn_KeepsLivenessTimeoutLongerThanInterval(t *testing.T) {
	g := spec.Group{LivenessInterval: time.Millisecond, LivenessTimeout: time.Minute}
	g.FillIn()
	testkit.Equal(t, "LivenessTimeout", g.LivenessTimeout, time.Minute)
}
