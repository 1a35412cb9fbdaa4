//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(role) == "probed" {
		if err := probedProcess(os.Args[1]); err != nil {
			fatal(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// A roll of servers that do not know the launcher loses no request with any kind of probe, and
// pauses if the probe fails for the new servers. The measurement does the same with more rolls.
func TestProbes_RollLosesNoRequest(t *testing.T) {
	for _, c := range []struct {
		kind, role int
		fails      bool
	}{{0, 0, false}, {0, 1, true}, {1, 1, false}, {2, 1, true}, {3, 0, true}, {3, 2, true}} {
		t.Run(fmt.Sprintf("%s %s %v", probeKinds[c.kind].name, probeRoles[c.role], c.fails), func(t *testing.T) {
			dir, done, err := shortDir()
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := probeUnderLoad(ctx, filepath.Join(dir, "d"), c.kind, c.role, c.fails)
			if err != nil {
				t.Fatal(err)
			}
			if r.whole == c.fails || r.ready < 2 || r.requests == 0 || len(r.lost) > 0 {
				t.Errorf("%+v; the first lost: %v", r, errors.Join(r.lost[:min(len(r.lost), 3)]...))
			}
		})
	}
}
