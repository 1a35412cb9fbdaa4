package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Close waits for all that have entered. While it waits, others can still enter, and once the gate
// is closed, they wait until it is open.
func TestGate_CloseWaitsForCallersInsideThenBlocksNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g upgrade.Gate
		g.Enter()
		closed := make(chan error)
		go func() { closed <- g.Close(t.Context()) }()
		time.Sleep(time.Second)
		g.Enter() // this call must not wait for Close, which waits for the first call of Enter to leave
		g.Leave()
		select {
		case <-closed:
			t.Fatal("closed although one has entered")
		default:
		}
		g.Leave()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		entered := false
		go func() { g.Enter(); entered = true; g.Leave() }()
		synctest.Wait()
		testkit.Equal(t, "entered a closed gate", entered, false)
		g.Open()
		synctest.Wait()
		testkit.Equal(t, "entered an open gate", entered, true)
	})
}

// Close gives up when its context ends, and leaves the gate open.
func TestGate_CloseLeavesGateOpenIfItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g upgrade.Gate
		g.Enter()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(ctx); err != upgrade.ErrBusy {
			t.Errorf("Close: %v", err)
		}
		g.Enter()
		g.Leave()
		g.Leave()
	})
}

// Answer refuses a handoff that the program does not understand completely.
func TestAnswer_RefusesHandoffWithUnknownVersionOrField(t *testing.T) {
	contained := proc.Containment{Mark: "m"}
	text, err := json.Marshal(upgrade.Handoff{Version: upgrade.Version, Dir: "/d", State: statefile.State{Containment: contained}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, says string }{
		{string(text), ""},
		// Older programs write the containment under the key "pen".
		{strings.Replace(string(text), `"containment"`, `"pen"`, 1), ""},
		{"nonsense", "not valid JSON"},
		{strings.Replace(string(text), `"Version":1`, `"Version":2`, 1), "has version 2, but this program reads 1 to 1"},
		{strings.Replace(string(text), `"Dir"`, `"Directory"`, 1), `unknown field "Directory"`},
		{strings.Replace(string(text), `"containment"`, `"containments"`, 1), `unknown field "containments"`},
	} {
		var out bytes.Buffer
		err := upgrade.Answer(strings.NewReader(c.text), &out, func(h *upgrade.Handoff) error {
			testkit.Equal(t, "Dir", h.Dir, "/d")
			testkit.Equal(t, "containment", h.State.Containment, contained)
			return nil
		})
		switch {
		case c.says == "" && (err != nil || out.String() != "swansong upgrade ok\n"):
			t.Errorf("%s: %v, %q", c.text, err, out.String())
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || out.Len() > 0):
			t.Errorf("%s: %v, %q; want: %s", c.text, err, out.String(), c.says)
		}
	}
}

// If the context of a check ends first, the error of the check says why.
func TestCheck_ReturnsCauseIfItsContextEnds(t *testing.T) {
	cut := errors.New("the caller has given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cut)
	var h upgrade.Handoff
	if err := h.Check(ctx, "/bin/sleep", []string{"3600"}, os.Environ(), proc.Containment{}); !errors.Is(err, cut) {
		t.Errorf("Check: %v; want: %v", err, cut)
	}
}
