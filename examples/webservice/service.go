package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A service takes orders and confirms them. It is the same in all three runs, written the way such services are
// written: an order is answered once it is in the buffer, a flusher writes the buffer to disk every now and then, and
// a worker sends the confirmations in batches. What differs is how it is stopped.
type service struct {
	orders *journal // what was ordered
	mails  *journal // what was confirmed: here, a line in a file
	queue  chan int // orders that wait for their confirmation
}

const (
	// Once a second, as Redis syncs its log by default: each sync costs the disk something, so they are rare.
	flushEvery = time.Second
	mailEvery  = time.Second
	// A stream sends chunks for a fifth of a second, or until the service stops.
	chunks     = 20
	chunkEvery = 10 * time.Millisecond
	// A report takes as long as this, and is of no use unfinished.
	reportTakes = 4 * time.Second
)

func openService(dir string) (*service, error) {
	orders, err := openJournal(filepath.Join(dir, ordersFile))
	if err != nil {
		return nil, err
	}
	mails, err := openJournal(filepath.Join(dir, mailsFile))
	if err != nil {
		return nil, err
	}
	return &service{orders: orders, mails: mails, queue: make(chan int, 1<<20)}, nil
}

func (sv *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", sv.order)
	mux.HandleFunc("GET /stream", sv.stream)
	mux.HandleFunc("GET /report", sv.report)
	return mux
}

func (sv *service) order(w http.ResponseWriter, r *http.Request) {
	var o struct{ Item string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&o); err != nil || o.Item == "" {
		http.Error(w, `send {"item": "…"}`, http.StatusBadRequest)
		return
	}
	id := sv.orders.add(o.Item)
	sv.queue <- id
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%d\n", id)
}

// stream never ends by itself within the patience of a deploy, so it asks: the scope in its context is done when the
// service is told to stop, while the request's own context lives on and the last chunk can be sent. Where there is no
// scope, it runs to its end.
func (sv *service) stream(w http.ResponseWriter, r *http.Request) {
	stopping := context.Background()
	if s, ok := ctxshutdown.FromContext(r.Context()); ok {
		stopping = s
	}
	for i := range chunks {
		fmt.Fprintf(w, "chunk %d\n", i)
		http.NewResponseController(w).Flush()
		if !ctxshutdown.Sleep(stopping, chunkEvery) {
			break
		}
	}
	fmt.Fprintln(w, "the end")
}

// report is work that is seen through: the request's context does not end with the stop, only when the drain is cut short.
func (sv *service) report(w http.ResponseWriter, r *http.Request) {
	if !ctxshutdown.Sleep(r.Context(), reportTakes) {
		http.Error(w, "no time for a report", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "feathers sold: all of them")
}

// sendMails confirms orders until ctx ends, and then those still in the queue.
func (sv *service) sendMails(ctx context.Context) {
	for more := true; more; {
		more = ctxshutdown.Sleep(ctx, mailEvery)
		for range len(sv.queue) {
			sv.mails.note(<-sv.queue)
		}
		sv.mails.flush()
	}
}

// flushOrders writes the buffer to disk until ctx ends, and then once more.
func (sv *service) flushOrders(ctx context.Context) {
	for more := true; more; {
		more = ctxshutdown.Sleep(ctx, flushEvery)
		sv.orders.flush()
	}
}

const (
	ordersFile = "orders"
	mailsFile  = "mails"
)

// A journal is a file of numbered lines with a buffer in front.
type journal struct {
	mu   sync.Mutex
	last int
	buf  bytes.Buffer
	file *os.File
}

func openJournal(name string) (*journal, error) {
	f, err := os.Create(name)
	return &journal{file: f}, err
}

// add appends a line under the next number.
func (j *journal) add(text string) (id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	fmt.Fprintf(&j.buf, "%d %q\n", j.last, text)
	return j.last
}

// note appends a line under a number given.
func (j *journal) note(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(&j.buf, "%d\n", id)
}

// flush writes what is in the buffer. A disk that fails is no matter of shutdown: the service says so and gives up.
func (j *journal) flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err := j.buf.WriteTo(j.file)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "webservice:", err)
		os.Exit(1)
	}
}
