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

// A service accepts orders and confirms them by mail. It acknowledges an order once the order is in
// a buffer. A background goroutine writes the buffer to disk once a second, and another one sends
// the confirmations in batches. The service is the same in all three runs; only the way to stop it
// differs.
type service struct {
	orders *journal // accepted orders
	mails  *journal // sent confirmations; a mail is a line in a file here
	queue  chan int // IDs of orders that are not confirmed yet
}

const (
	// The service writes to disk once a second, as Redis does by default with its append-only file,
	// because a sync is expensive.
	flushEvery = time.Second
	mailEvery  = time.Second
	// A stream sends this number of chunks, or fewer if the service is told to stop.
	chunks     = 20
	chunkEvery = 10 * time.Millisecond
	reportTime = 4 * time.Second
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

// stream stands for a response that lasts longer than a deploy can wait. It therefore ends when the
// scope in its context is done, which is when the service is told to stop. The context of the
// request itself is not cancelled then, so the last chunk can still be sent. Without a scope,
// stream sends all of its chunks.
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

// report is work that must finish. The context of the request does not end when the service is told
// to stop, but only when the client goes away or the drain is cut short.
func (sv *service) report(w http.ResponseWriter, r *http.Request) {
	if !ctxshutdown.Sleep(r.Context(), reportTime) {
		http.Error(w, "the report was cancelled", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "feathers sold: all of them")
}

// sendMails confirms orders until ctx ends, and then the orders that are still in the queue.
func (sv *service) sendMails(ctx context.Context) {
	for more := true; more; {
		more = ctxshutdown.Sleep(ctx, mailEvery)
		for range len(sv.queue) {
			sv.mails.addID(<-sv.queue)
		}
		sv.mails.flush()
	}
}

// flushOrders writes the buffer to disk periodically until ctx ends, and then once more.
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

// A journal is a file of lines that begin with an order ID. New lines are buffered until flush.
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

// add appends a line with the next ID, which it returns.
func (j *journal) add(text string) (id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	fmt.Fprintf(&j.buf, "%d %q\n", j.last, text)
	return j.last
}

// addID appends a line with the given ID.
func (j *journal) addID(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(&j.buf, "%d\n", id)
}

// flush writes the buffer to the disk. If that fails, the service prints the error and exits,
// because it can no longer keep its promise.
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
