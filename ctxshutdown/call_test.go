package ctxshutdown_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// A returned holds the two results of a call of Call.
type returned struct {
	Value string
	Err   error
}

func call(ctx context.Context, f func(ctx context.Context) (string, error)) returned {
	v, err := ctxshutdown.Call(ctx, f)
	return returned{v, err}
}

func wantReturned(t *testing.T, want, got returned) {
	t.Helper()
	if diff := cmp.Diff(want, got, sameErrors); diff != "" {
		t.Errorf("Call (-want +got):\n%s", diff)
	}
}

func TestCall_ReturnsResult(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, _ func()) {
		for _, want := range []returned{{"value", nil}, {"", errLate}, {"value", errLate}, {}} {
			wantReturned(t, want, call(ctx, func(given context.Context) (string, error) {
				if given != ctx {
					t.Errorf("the function is given %v, want %v", given, ctx)
				}
				return want.Value, want.Err
			}))
		}
		s, _ := ctxshutdown.FromContext(ctx)
		other := s.GuardCount() // if ctx is a Work context, a helper of the test holds a guard, too
		call(ctx, func(context.Context) (string, error) {
			if n := s.GuardCount(); n <= other {
				t.Errorf("%d guards are held while the function runs", n)
			}
			return "", nil
		})
	})
}

func TestCall_ReturnsAtStopButHoldsGuardUntilFunctionReturns(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		s, _ := ctxshutdown.FromContext(ctx)
		before := s.GuardCount()
		let, got := make(chan struct{}), make(chan returned)
		go func() {
			got <- call(ctx, func(context.Context) (string, error) { <-let; return "too late", nil })
		}()
		synctest.Wait()
		end()
		wantReturned(t, returned{"", errCause}, <-got)
		synctest.Wait()
		if n := s.GuardCount(); n != before+1 || s.State() != ctxshutdown.ShuttingDown {
			t.Errorf("%d guards and state %v while the function runs, %d guards before", n, s.State(), before)
		}
		close(let)
		synctest.Wait()
		if n := s.GuardCount(); n != before {
			t.Errorf("%d guards after the function has returned, %d before", n, before)
		}
	})
}

// If the function returns at the moment when its context ends, Call returns the result of the
// function and not the cause of the context.
func TestCall_ReturnsResultIfContextEndsAtSameMoment(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		for range manyTimes {
			wantReturned(t, returned{"value", nil}, call(resultFirst{ctx}, func(context.Context) (string, error) { return "value", nil }))
		}
	})
}

// resultFirst is a context whose Done waits for all other goroutines of the bubble and then returns
// a closed channel.
type resultFirst struct{ context.Context }

func (ctx resultFirst) Done() <-chan struct{} {
	synctest.Wait()
	return closedChannel
}

func TestCall_DoesNotRunFunctionIfContextIsDone(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		end()
		wantReturned(t, returned{"", errCause}, call(ctx, func(context.Context) (string, error) {
			t.Error("the function runs although the context is done")
			return "value", nil
		}))
	})
}

func TestCall_ReturnsErrorIfFunctionCallsGoexit(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, _ func()) {
		got := call(ctx, func(context.Context) (string, error) {
			runtime.Goexit()
			return "value", nil
		})
		const want = "ctxshutdown: Call: the function ended its goroutine with runtime.Goexit"
		if got.Value != "" || got.Err == nil || got.Err.Error() != want {
			t.Errorf("Call: %v", got)
		}
	})
}

func TestCall_ReturnsCauseIfContextOutsideAnyScopeIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		wantReturned(t, returned{"value", nil}, call(ctx, func(context.Context) (string, error) { return "value", nil }))
		let := make(chan struct{})
		got := make(chan returned)
		go func() { got <- call(ctx, func(context.Context) (string, error) { <-let; return "", nil }) }()
		synctest.Wait()
		cancel(errCause)
		wantReturned(t, returned{"", errCause}, <-got)
		close(let)
	})
}
