// Package testkit has the helpers that the tests of several packages share. Only tests and
// measurements import it.
package testkit

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal marks the test as failed if got and want differ in the sense of [cmp.Diff]. The message has
// the name of the value and the differences.
func Equal(t testing.TB, name string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// ErrorIs marks the test as failed unless errors.Is(got, want). The message begins with the name of
// the error.
func ErrorIs(t testing.TB, name string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got the error %v, want %v", name, got, want)
	}
}

// ErrorText returns the text of err, and "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// IsClosed reports whether a channel to which nothing is sent has been closed.
func IsClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
