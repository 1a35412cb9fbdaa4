//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"syscall"
	"testing"
)

// A person presses ^C: all processes of the terminal get SIGINT. The server drains, and the clients see it to its end.
func TestOpen_ClosesOnInterrupt(t *testing.T) {
	for _, test := range []struct {
		name    string
		presses int
		code    int
		wants   []string
	}{
		{"once", 1, 0, []string{" 0 requests lost", " 0 acknowledged orders not on disk"}},
		{"again and again", 3, 1, []string{"hurried along", " 0 acknowledged orders not on disk"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, err := itself(context.Background(), visitRole)
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
				// Ready means that signals are listened to; each rung is one press.
				steps := []string{"INFO ready", "rung=LameDuck", "rung=Soft"}
				if pressed < test.presses && strings.Contains(out.Text(), steps[pressed]) {
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
					t.Errorf("it does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log(all.String())
			}
		})
	}
}
