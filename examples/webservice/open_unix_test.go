//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
)

// A ^C sends SIGINT to all processes of the terminal. The server drains, and the other processes
// wait until the server has ended.
func TestOpenServer_DrainsOnInterrupt(t *testing.T) {
	for _, test := range []struct {
		name    string
		presses int
		code    int
		wants   []string
	}{
		{"once", 1, 0, []string{"  lost requests: 0 of ", " acknowledged orders not on disk: 0"}},
		{"three times", 3, 1, []string{"the drain was cut short", " acknowledged orders not on disk: 0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, err := selfCommand(context.Background(), openOnlyRole)
			if err != nil {
				t.Fatal(err)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			r, w := io.Pipe()
			cmd.Stdout, cmd.Stderr = w, w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { cmd.Wait(); w.Close() }()
			var all strings.Builder
			out := bufio.NewScanner(r)
			pressed := 0
			for out.Scan() {
				all.WriteString(out.Text() + "\n")
				if _, report, ok := strings.Cut(out.Text(), "shop: "); ok {
					requestReport(t, report)
				}
				// The server handles signals once it is ready. Each further signal begins the next
				// phase.
				phases := []string{"INFO ready", "phase=LameDuck", "phase=Soft"}
				if pressed < test.presses && strings.Contains(out.Text(), phases[pressed]) {
					pressed++
					if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
						t.Error(err)
					}
				}
			}
			if got := cmd.ProcessState.ExitCode(); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			for _, want := range test.wants {
				if !strings.Contains(all.String(), want) {
					t.Errorf("the output does not contain %q", want)
				}
			}
			if t.Failed() {
				t.Log(all.String())
			}
		})
	}
}

// requestReport sends a request for a report, and returns when the request is sent. The report
// takes four seconds, so the server cannot have drained before the last ^C.
func requestReport(t *testing.T, url string) {
	sent := make(chan struct{})
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) },
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		if response, err := client.Do(r); err == nil { // Do fails in the case "three times", which cuts the drain short
			response.Body.Close()
		}
	}()
	select {
	case <-sent:
	case <-done:
		t.Error("the request for a report was not sent")
	}
}
