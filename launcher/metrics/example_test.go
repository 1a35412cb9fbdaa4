//go:build unix

package metrics_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/metrics"
)

// launchExample returns a launcher with two ready processes, and a function that stops it.
func launchExample() (m *launcher.Manager, stop func()) {
	dir, err := os.MkdirTemp("", "swm") // the paths of sockets have to be short
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	m, err = launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{
		{Name: "sleeper", Command: []string{"sleep", "1000"}, Protocol: launcher.Signals, Desired: 2},
	}})
	if err == nil {
		err = m.Ready(ctx)
	}
	if err != nil {
		panic(err)
	}
	return m, func() {
		m.Shutdown().Wait(ctx)
		os.RemoveAll(dir)
	}
}

// A program that has a registry registers the collector there.
func ExampleNew() {
	m, stop := launchExample()
	defer stop()
	registry := prometheus.NewRegistry()
	c, err := metrics.New(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	registry.MustRegister(c)

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "swansong_launcher_ready_processes" {
			fmt.Println(f.GetHelp(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// Processes that have been ready for min_ready, and are in routing. 2
}

// A program that has no registry of Prometheus metrics calls Serve, which listens on a port.
func ExampleServe() {
	m, stop := launchExample()
	defer stop()
	addr, err := metrics.Serve(m, "127.0.0.1:0") // an empty address means metrics.DefaultAddress
	if err != nil {
		fmt.Println(err)
		return
	}
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get("http://" + addr.String() + "/metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "swansong_launcher_ready_processes") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// swansong_launcher_ready_processes{group="sleeper"} 2
}
