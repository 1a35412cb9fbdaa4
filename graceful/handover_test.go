package graceful

import (
	"errors"
	"testing"
)

// However close they come: what f gives is taken, or f is told that it is not.
func TestHandover(t *testing.T) {
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
		for range i % 300 { // to meet every moment of it
			h.over.Load()
		}
		err, taken := h.last()
		if gave := <-given; gave != taken || taken != (err == said) {
			t.Fatalf("given: %v; taken: %v, %v", gave, taken, err)
		}
		first[taken]++
	}
	t.Logf("f was first %d times, Run %d", first[true], first[false])
}
