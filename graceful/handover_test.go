package graceful

import (
	"errors"
	"testing"
)

// In every order of the calls of give and close, either close returns the error that was given, or
// give returns false.
func TestHandover_ErrorGivenDuringCloseIsDeliveredOrRefused(t *testing.T) {
	said := errors.New("said")
	meet := make(chan *handover)
	given := make(chan bool)
	go func() {
		defer close(given)
		for h := range meet {
			given <- h.give(said)
		}
	}()
	defer close(meet)
	first := map[bool]int{}
	for i := range 10_000 {
		h := &handover{result: make(chan error, 1)}
		meet <- h
		for range i % 300 { // varies the time between the calls of give and close
			h.closed.Load()
		}
		err, taken := h.close()
		if gave := <-given; gave != taken || taken != (err == said) {
			t.Fatalf("given: %v; taken: %v, %v", gave, taken, err)
		}
		first[taken]++
	}
	t.Logf("f was first %d times, Run %d", first[true], first[false])
}
