package lostscope

import (
	"context"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestScopeOfTest_IsNotReported(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	s.Guard().Release()
	ctxshutdown.New(context.Background())
}

func TestEarlyReturn_LosesScope(t *testing.T) {
	s := ctxshutdown.New(context.Background()) // want `the scope s is not shut down`
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

func BenchmarkOfABenchmark(b *testing.B) {
	s := ctxshutdown.New(b.Context())
	for b.Loop() {
		s.Guard().Release()
	}
}
