package httpdrain

import (
	"bytes"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

const (
	paceDraining = 250 * time.Millisecond // between two looks, and so between two events
	paceRunning  = 500 * time.Millisecond
	paceShare    = 10 // looking may take one part in so many of the time
	heartbeat    = 15 * time.Second
	slowest      = 10 * time.Second // that a reader may take for one event
)

// uncountKey is where Serve puts a function into the context of a request, by which the one with that ResponseWriter leaves what
// the drain waits for.
type uncountKey struct{}

// stream sends what there is to see whenever it has changed. It waits for nobody but the reader: events are made when
// there is somebody to take them, from the newest state. It has no goroutine but the request's.
func (d *debug) stream(w http.ResponseWriter, r *http.Request, filter string) {
	if leave, ok := r.Context().Value(uncountKey{}).(func(http.ResponseWriter)); ok {
		leave(w)
	}
	s, record := d.record.scope, d.record
	h, c := w.Header(), http.NewResponseController(w)
	h.Set("X-Accel-Buffering", "no") // asks a proxy to pass it on at once
	defer c.SetWriteDeadline(time.Time{})
	html := r.URL.Query().Get("part") == "html" // as the page's own script wants it

	var body bytes.Buffer
	send := func(event string, data []byte) bool {
		if event != "" {
			body.WriteString("event: " + event + "\n")
			for line := range bytes.Lines(bytes.TrimRight(data, "\n")) {
				body.WriteString("data: ")
				body.Write(bytes.TrimRight(line, "\r\n"))
				body.WriteByte('\n')
			}
		}
		body.WriteByte('\n')
		c.SetWriteDeadline(time.Now().Add(slowest)) // where there are none, the reader's end is noticed by TCP
		_, err := w.Write(body.Bytes())
		body.Reset()
		return err == nil && c.Flush() == nil
	}
	body.WriteString("retry: 1000\n")

	rung := make(chan struct{}, 1)
	if record.ladder != nil {
		stop := record.ladder.Watch(func(graceful.Status) {
			select {
			case rung <- struct{}{}:
			default:
			}
		})
		defer stop()
	}
	var (
		sent          uint64
		looked, told  time.Time
		soft          = s.Done()
		hard, done    <-chan struct{} // asked for after the stop: Work pins the scope
		timer         = time.NewTimer(0)
		age           time.Duration
		gone, changes = r.Context().Done(), (<-chan struct{})(rung)
		closing       bool
	)
	defer timer.Stop()
	for {
		if hard == nil && s.Err() != nil {
			soft, hard, done = nil, s.Work().Done(), s.Completion().Done()
		}
		closing = ended(hard) || ended(done)
		now := record.look(age)
		looked = time.Now()
		if now.version != sent {
			data := debugJSON
			if html {
				data = debugPart
			}
			if !send("state", data(now, filter)) {
				return
			}
			sent, told = now.version, looked
		}
		if closing {
			reason := "forced"
			if now.state == ctxshutdown.Complete || ended(done) {
				reason = "complete"
			}
			send("end", []byte(reason))
			return
		}
		if looked.Sub(told) >= heartbeat {
			body.WriteString(": still here\n")
			if !send("", nil) {
				return
			}
			told = looked
		}
		pace := paceRunning
		if hard != nil || now.status != nil && now.status.Rung != graceful.Serving {
			pace = paceDraining
		}
		timer.Reset(max(pace, paceShare*record.price()))
		age, changes = 0, rung
		for waiting := true; waiting; {
			waiting = false
			select {
			case <-timer.C:
				age = pace / 2 // what others have just seen will do
			case <-changes: // may be many: each extension is one
				if early := paceDraining - time.Since(looked); early > 0 {
					timer.Reset(early)
					waiting, changes = true, nil
				}
			case <-soft:
			case <-hard:
			case <-done:
			case <-gone:
				// Where the request's context ends with the scope, as it does under Work, there is a last event to send.
				if s.Err() == nil || !ended(s.Work().Done()) {
					return
				}
			}
		}
	}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
