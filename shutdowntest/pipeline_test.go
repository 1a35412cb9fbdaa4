package shutdowntest_test

import (
	"context"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/shutdowntest"
)

// A pipeline reads numbers, squares them and adds them up. Every number that was read must be
// added.
type pipeline struct {
	s         *ctxshutdown.Swansong
	read, sum int
}

// run starts three stages. The first stage ends when the scope is stopped. Each other stage ends
// when the stage before it has closed its channel.
func (p *pipeline) run(square func(p *pipeline, in <-chan int, out chan<- int)) {
	numbers, squares := make(chan int), make(chan int)
	read := p.s.Go(func(context.Context) {
		defer close(numbers)
		for n := 1; n <= 4 && ctxshutdown.Sleep(p.s, time.Millisecond); n++ {
			p.read += n * n
			numbers <- n
		}
	})
	if !read {
		return
	}
	// Use Guard, not TryGuard: these stages process what the first one has read, so they must run
	// even if the scope is stopped in between.
	rest := p.s.Guard()
	go func() {
		defer rest.Release()
		for n := range squares {
			p.sum += n
		}
	}()
	g := p.s.Guard()
	go func() {
		defer g.Release()
		defer close(squares)
		square(p, numbers, squares)
	}()
}

func square(_ *pipeline, in <-chan int, out chan<- int) {
	for n := range in {
		time.Sleep(2 * time.Millisecond)
		out <- n * n
	}
}

func TestPipeline_AddsEveryNumberRead(t *testing.T) { shutdowntest.Run(t, pipelineScenario(square)) }

func pipelineScenario(square func(p *pipeline, in <-chan int, out chan<- int)) scenario {
	return func(t *testing.T, s *ctxshutdown.Swansong) func() {
		p := &pipeline{s: s}
		p.run(square)
		// Run stops the scope before or after an operation on a guard. The stages hold their guards
		// while they work, so use other guards to let Run stop the scope in the meantime, too.
		for range 17 {
			time.Sleep(730 * time.Microsecond)
			s.Guard().Release()
		}
		return func() {
			if p.sum != p.read {
				t.Errorf("the sum is %d, and what has been read adds up to %d", p.sum, p.read)
			}
		}
	}
}

func squareThatDropsWhatItHas(p *pipeline, in <-chan int, out chan<- int) {
	for n := range in {
		time.Sleep(2 * time.Millisecond)
		ctxshutdown.Send(p.s, out, n*n)
	}
}

func squareThatEndsWithTheStop(p *pipeline, in <-chan int, out chan<- int) {
	for n := range ctxshutdown.All(p.s, in) {
		time.Sleep(2 * time.Millisecond)
		out <- n * n
	}
}
