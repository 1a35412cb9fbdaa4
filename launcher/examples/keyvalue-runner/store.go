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

// A store is a bbolt file, and the writes that are on their way to it.
//
//	put ──▶ queue ──commit, a chunk at a time──▶ the file, fsync ──▶ whoever waits is told
//
// One goroutine at a time commits: run, and after it close. While it waits for the disk the queue grows, so that the
// busier the store is, the more writes share an fsync. Invariants:
//
//   - Writes reach the file in the order in which they came, whether or not somebody waits for them.
//   - Nobody is told before the fsync of what he has written.
//   - A write that nobody waits for leaves the queue only when it is in the file.
type store struct {
	options
	db      *bbolt.DB
	wake    chan struct{} // somebody waits
	closing chan struct{}
	stopped chan struct{} // closed when run has returned

	mu     sync.Mutex
	queue  []write
	bytes  int64         // of the queue
	took   time.Duration // the last commit
	failed bool          // the last commit
}

type options struct {
	path     string
	interval time.Duration // between commits that nobody waits for
	slow     time.Duration
	buffered func(bytes int64) // is told when that changes
}

type write struct {
	key, value []byte // no value: the key is removed
	told       chan error
}

func (w write) size() int64 { return int64(len(w.key) + len(w.value)) }

const (
	chunk       = 256     // writes in a commit
	mostWaiting = 8 << 20 // bytes of writes that nobody waits for
)

var (
	bucket     = []byte("kv")
	errStopped = errors.New("keyvalue-runner: told to stop before the file was free")
	errFull    = errors.New("keyvalue-runner: the disk is behind; try again, or wait for the write")
)

// openStore waits until the file is free, or scope is told to stop.
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

// syncDir has a file that is new survive the machine: its own fsync says nothing about its name.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// warm reads the file once, so that the first clients do not wait for the disk, and returns the number of keys. It stops
// with scope.
func (s *store) warm(scope *ctxshutdown.Swansong) (keys int) {
	s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(_, _ []byte) error {
			keys++
			return scope.Err()
		})
	})
	return keys
}

// get returns what is on disk.
func (s *store) get(key []byte) (value []byte, found bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(bucket).Get(key); v != nil {
			value, found = append([]byte{}, v...), true // v is the file itself, and ends with the transaction
		}
		return nil
	})
	return value, found, err
}

// put returns when the value is on disk; a nil value removes the key. If ctx ends before, nobody knows whether it is.
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
	case err := <-w.told:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// putLater returns at once.
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

// run commits when somebody waits, and at the interval.
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
				break // whoever waited has been told; the rest is tried again at the next tick
			}
			select {
			case <-s.closing:
				return
			default:
			}
		}
	}
}

// commit writes a chunk of the queue, and reports whether there is more.
func (s *store) commit() (more bool, err error) {
	s.mu.Lock()
	part := s.queue[:min(chunk, len(s.queue))]
	s.mu.Unlock()
	if len(part) == 0 {
		return false, nil
	}
	begun := time.Now()
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
	s.took, s.failed = time.Since(begun), err != nil
	var kept []write
	for _, w := range part {
		if err != nil && w.told == nil {
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
		if w.told != nil {
			w.told <- err
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

// sound reports whether the disk took what it was last given.
func (s *store) sound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.failed
}

// left returns how many writes wait, how many bytes they are, and how long they will take if they take as long as the last
// ones did.
func (s *store) left() (writes int, bytes int64, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	commits := (len(s.queue) + chunk - 1) / chunk
	return len(s.queue), s.bytes, s.took * time.Duration(commits)
}

// close writes what waits, and gives the file away. expect is told, before each commit, how long the rest will take. Nobody
// may put anything any more. When ctx ends, what is left is lost, and the error says how much that is.
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
			err = fmt.Errorf("%d writes (%d bytes) that nobody waited for are lost: %w", writes, bytes, context.Cause(ctx))
			break
		}
		expect(takes)
		_, err = s.commit()
	}
	return errors.Join(err, s.db.Close())
}
