//go:build unix

package guardian

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// endNow kills the process at once, rather than at the deadline, which is an hour away here.
func TestEndNow_KillsProcessBeforeItsDeadline(t *testing.T) {
	p, err := proc.Start(proc.Spec{Args: []string{"cat"}}) // cat ends when this test program ends, because its stdin is closed then
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := endNow(p.Adoptable(proc.Containment{}), time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	<-p.Done()
	if p.Exit().Signal == 0 {
		t.Error("the process was not killed by a signal")
	}
}
