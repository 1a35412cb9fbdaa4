package main

import (
	"errors"
	"io"
	"net/http"
)

const (
	longestKey   = 1 << 10
	longestValue = 1 << 20
)

// handler returns the HTTP API of a store.
func handler(s *store) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /kv/{key...}", func(w http.ResponseWriter, r *http.Request) {
		key, ok := keyOf(w, r)
		if !ok {
			return
		}
		value, found, err := s.get(key)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !found:
			http.Error(w, "no such key", http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Write(value)
		}
	})
	mux.HandleFunc("PUT /kv/{key...}", func(w http.ResponseWriter, r *http.Request) {
		key, ok := keyOf(w, r)
		if !ok {
			return
		}
		value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestValue))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			http.Error(w, "values have at most 1 MiB", http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			http.Error(w, "the request ended before the whole value was received", http.StatusBadRequest)
			return
		}
		change(w, r, s, key, value)
	})
	mux.HandleFunc("DELETE /kv/{key...}", func(w http.ResponseWriter, r *http.Request) {
		if key, ok := keyOf(w, r); ok {
			change(w, r, s, key, nil)
		}
	})
	return mux
}

func keyOf(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	key := r.PathValue("key")
	if key == "" || len(key) > longestKey {
		http.Error(w, "keys have 1 to 1024 bytes", http.StatusBadRequest)
		return nil, false
	}
	return []byte(key), true
}

// change stores a value and answers the request. A client that does not want to wait for the disk
// sends the header Prefer: respond-async; see RFC 7240.
func change(w http.ResponseWriter, r *http.Request, s *store, key, value []byte) {
	if r.Header.Get("Prefer") == "respond-async" {
		if err := s.putLater(key, value); err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if err := s.put(r.Context(), key, value); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
