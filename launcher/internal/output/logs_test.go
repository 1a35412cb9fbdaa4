package output_test

import (
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

type slowWriter struct{ ready chan struct{} }

func (w slowWriter) Write(b []byte) (int, error) { <-w.ready; return len(b), nil }

// The result of Flush says whether all lines have been written.
func TestLogs_FlushReportsWhetherLinesAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slowWriter{make(chan struct{})}
		l := output.NewLogs(w, nil)
		f, done := l.Open(spec.Log{}, "main-1")
		f.WriteLine("main-1", "hello", l.Counts("main"))
		done()
		err := l.Flush()
		if err == nil {
			t.Fatal("Flush says that the line was written")
		}
		testkit.Equal(t, "error", err.Error(), "output: the reader of this output did not take the last lines within 1s")
		close(w.ready)
		if err := l.Flush(); err != nil {
			t.Error(err)
		}
		l.Close()
	})
}
