package main

import (
	"bytes"
	"io"
	"time"
)

// A printer prints what it is told on a goroutine of its own, so that who tells it need not wait for somebody to read: a pager, a
// terminal that ^S has stopped, a collector of logs that hangs. What is more than it holds is not printed.
type printer struct {
	to    io.Writer
	queue chan []byte // nil: all before it was printed
	all   chan struct{}
}

func newPrinter(to io.Writer) *printer {
	p := &printer{to, make(chan []byte, 1000), make(chan struct{}, 1)}
	go func() {
		for text := range p.queue {
			if text == nil {
				p.all <- struct{}{}
				continue
			}
			p.to.Write(text) // nobody could be told
		}
	}()
	return p
}

// Write never fails, and keeps nothing of text.
func (p *printer) Write(text []byte) (int, error) {
	if len(text) > 0 {
		select {
		case p.queue <- bytes.Clone(text):
		default:
		}
	}
	return len(text), nil
}

// end waits until all is printed that there is, but not for long.
func (p *printer) end() {
	late := time.After(lastPatience)
	select {
	case p.queue <- nil:
	case <-late:
		return
	}
	select {
	case <-p.all:
	case <-late:
	}
}

// lastPatience is how long the last word waits for somebody to read it.
const lastPatience = 2 * time.Second
