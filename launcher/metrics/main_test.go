//go:build unix

package metrics_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
	"github.com/swansong-go/swansong/launcher/metrics"
	"go.uber.org/goleak"
)

// asRole is the environment variable that makes the test binary act as a subprocess.
const asRole = "METRICS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(asRole) {
	case "testrunner":
		os.Unsetenv(asRole)
		os.Exit(testrunner.Main(os.Args[1:], os.Stderr))
	case "exit":
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// tooLong is a timeout that only broken code reaches.
const tooLong = time.Minute

func group(name string, desired int, role string, args ...string) launcher.GroupConfig {
	return launcher.GroupConfig{
		Name:    name,
		Command: append([]string{os.Args[0]}, args...),
		Env:     []string{asRole + "=" + role, "GORACE=atexit_sleep_ms=0", "GOMAXPROCS=1"},
		Desired: desired,
		// With the protocol Auto, a process that a busy machine delays would count as ready before
		// it has said so.
		Protocol: launcher.GRPC,
		Shutdown: launcher.ShutdownConfig{
			Grace: 20 * time.Second, Max: 40 * time.Second, Poll: 50 * time.Millisecond, SIGTERMTimeout: 20 * time.Second,
		},
		Restart: launcher.RestartConfig{MinBackoff: time.Millisecond},
	}
}

func runners(name string, desired int, args ...string) launcher.GroupConfig {
	return group(name, desired, "testrunner", append([]string{"--process-id", "{id}", "--work-duration", "1ms"}, args...)...)
}

// launch starts a launcher, and stops it at the end of the test.
func launch(t *testing.T, groups ...launcher.GroupConfig) *launcher.Manager {
	t.Helper()
	return launchIn(t, shortDir(t), groups...)
}

// shortDir returns a new directory for a launcher.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "swm") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func launchIn(t *testing.T, dir string, groups ...launcher.GroupConfig) *launcher.Manager {
	t.Helper()
	m, err := launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drain(t, m) })
	return m
}

func drain(t *testing.T, m *launcher.Manager) {
	t.Helper()
	if err := m.Shutdown().Wait(soon(t)); err != nil {
		t.Errorf("the launcher does not drain: %v", err)
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	t.Cleanup(cancel)
	return ctx
}

func registry(t *testing.T, m *launcher.Manager) *prometheus.Registry {
	t.Helper()
	c, err := metrics.New(m)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	return reg
}

// values returns the non-zero metrics of a registry or a scrape, by name and labels. The value of a
// histogram is its count.
func values(families []*dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "swansong_launcher_")
		if !ours || name == "build_info" {
			continue
		}
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			if v := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); v != 0 {
				all[key] = v
			}
		}
	}
	return all
}

func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return values(families)
}
