package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// A store is a bbolt file with a queue of writes.
//
//	put ──▶ queue ──commit, a chunk at a time──▶ the file, fsync ──▶ put returns
//
// One goroutine at a time commits: first run, then close. While it waits for the disk the queue
// grows, so a busy store shares an fsync between more writes. Invariants:
//
//   - Writes reach the file in the order of the calls, both synchronous and asynchronous ones.
//   - put does not return before the fsync of its write.
//   - An asynchronous write leaves the queue only when it is in the file.
type store struct {
	options
	db      *bbolt.DB
	wake    chan struct{} // receives a value when a call of put waits
	closing chan struct{}
	stopped chan struct{} // closed when run has returned

	mu     sync.Mutex
	queue  []write
	bytes  int64         // number of bytes in the queue
	took   time.Duration // how long the last commit took
	failed bool          // whether the last commit failed
}

type options struct {
	path     string
	interval time.Duration     // time between two commits of asynchronous writes
	slow     time.Duration     // delay of each commit, for demonstrations
	buffered func(bytes int64) // called with the number of bytes in the queue whenever it changes
}

type write struct {
	key, value []byte     // if value is nil, the key is removed
	done       chan error // receives the result of the commit; nil for an asynchronous write
}

func (w write) size() int64 { return int64(len(w.key) + len(w.value)) }

const (
	chunk       = 256     // the largest number of writes in one commit
	mostWaiting = 8 << 20 // when the queue has this many bytes, asynchronous writes are refused
)

var (
	bucket     = []byte("kv")
	errStopped = errors.New("keyvalue-runner: stopped while another process had the database file open")
	errFull    = errors.New("keyvalue-runner: the disk is too slow for asynchronous writes; try again, or wait for the write")
)

// openStore waits until no other process has the file open, and opens it. If scope is stopped
// before, openStore returns errStopped.
func openStore(scope *ctxshutdown.Swansong, o options) (*store, error) {
	s := &store{options: o, wake: make(chan struct{}, 1), closing: make(chan struct{}), stopped: make(chan struct{})}
	_, err := os.Stat(o.path)
	isNew := errors.Is(err, os.ErrNotExist)
	for s.db == nil {
		if scope.Err() != nil {
			return nil, errStopped
		}
		db, err := bbolt.Open(o.path, 0o600, &bbolt.Options{Timeout: 100 * time.Millisecond, FreelistType: bbolt.FreelistMapType})
		if err != nil && !errors.Is(err, bolterrors.ErrTimeout) {
			return nil, fmt.Errorf("%s: %w", o.path, err)
		}
		s.db = db
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err == nil && isNew {
		err = syncDir(filepath.Dir(o.path))
	}
	if err != nil {
		s.db.Close()
		return nil, fmt.Errorf("%s: %w", o.path, err)
	}
	go s.run()
	return s, nil
}

// syncDir makes sure that the name of a new file survives a crash of the machine. An fsync of the
// file alone does not ensure that.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// warm reads the file once, so that the first clients do not wait for the disk, and returns the
// number of keys. It stops when scope is stopped.
func (s *store) warm(scope *ctxshutdown.Swansong) (keys int) {
	s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(_, _ []byte) error {
			keys++
			return scope.Err()
		})
	})
	return keys
}

// get returns the value that is stored on disk.
func (s *store) get(key []byte) (value []byte, found bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(bucket).Get(key); v != nil {
			value, found = append([]byte{}, v...), true // v points into the mapped file, and is valid only during the transaction
		}
		return nil
	})
	return value, found, err
}

// put writes a value, and returns when the value is on disk. A nil value removes the key. If ctx
// ends before, put returns an error, and the value might still be written.
func (s *store) put(ctx context.Context, key, value []byte) error {
	w := write{key, value, make(chan error, 1)}
	s.mu.Lock()
	s.add(w)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// putLater writes a value asynchronously. It returns at once, and errFull if the queue is full.
func (s *store) putLater(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := write{key: key, value: value}
	if s.bytes+w.size() > mostWaiting {
		return errFull
	}
	s.add(w)
	return nil
}

func (s *store) add(w write) {
	s.queue = append(s.queue, w)
	s.bytes += w.size()
	s.buffered(s.bytes)
}

// run commits the queue whenever a call of put waits, and at regular intervals.
func (s *store) run() {
	defer close(s.stopped)
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		select {
		case <-s.wake:
		case <-tick.C:
		case <-s.closing:
			return
		}
		for more := true; more; {
			var err error
			if more, err = s.commit(); err != nil {
				// Each pending call of put returns the error to its caller. Asynchronous writes
				// stay in the queue, and the store tries them again at the next tick.
				break
			}
			select {
			case <-s.closing:
				return
			default:
			}
		}
	}
}

// commit writes a part of the queue to disk, and reports whether the queue has more.
func (s *store) commit() (more bool, err error) {
	s.mu.Lock()
	part := s.queue[:min(chunk, len(s.queue))]
	s.mu.Unlock()
	if len(part) == 0 {
		return false, nil
	}
	begin := time.Now()
	time.Sleep(s.slow)
	err = s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, w := range part {
			if err := apply(b, w); err != nil {
				return err
			}
		}
		return nil
	})
	s.mu.Lock()
	s.took, s.failed = time.Since(begin), err != nil
	var kept []write
	for _, w := range part {
		if err != nil && w.done == nil {
			kept = append(kept, w)
		} else {
			s.bytes -= w.size()
		}
	}
	s.queue = s.queue[len(part):]
	if len(kept) > 0 {
		s.queue = append(kept, s.queue...)
	}
	more = len(s.queue) > 0
	s.buffered(s.bytes)
	s.mu.Unlock()
	for _, w := range part {
		if w.done != nil {
			w.done <- err
		}
	}
	return more, err
}

func apply(b *bbolt.Bucket, w write) error {
	if w.value == nil {
		return b.Delete(w.key)
	}
	return b.Put(w.key, w.value)
}

// sound reports whether the last commit succeeded.
func (s *store) sound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.failed
}

// left returns the number and the bytes of the writes in the queue, and how long they will take at
// the speed of the last commit.
func (s *store) left() (writes int, bytes int64, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	commits := (len(s.queue) + chunk - 1) / chunk
	return len(s.queue), s.bytes, s.took * time.Duration(commits)
}

// close writes the queue to disk and closes the file. Before each commit it calls the function
// expect with the estimated time for the rest of the queue. put and putLater must not be called
// after close. If ctx ends, the rest of the queue is lost, and the error says how many writes that
// is.
func (s *store) close(ctx context.Context, expect func(left time.Duration)) error {
	close(s.closing)
	<-s.stopped
	var err error
	for err == nil {
		writes, bytes, takes := s.left()
		if writes == 0 {
			break
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("asynchronous writes lost: %d (bytes: %d): %w", writes, bytes, context.Cause(ctx))
			break
		}
		expect(takes)
		_, err = s.commit()
	}
	return errors.Join(err, s.db.Close())
}
