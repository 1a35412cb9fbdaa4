package lostguard

import (
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestGuardsInTest_NotReleasedAtEnd(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	s.Guard()
	if _, ok := s.TryGuard(); !ok {
		t.Error("refused")
	}
	g, ok := s.TryGuard()
	if !ok {
		t.Fatal("refused")
	}
	g.Release()
}

func TestEarlyReturn_LosesGuard(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	g := s.Guard() // want `the guard g is not released when the function returns at line 26`
	if work() != nil {
		return
	}
	g.Release()
}
