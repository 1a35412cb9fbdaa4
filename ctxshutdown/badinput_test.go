package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// noPanic is what panicOf returns for a function that does not panic.
const noPanic = "(no panic)"

// panicOf calls f and returns the text of the value that f panics with.
func panicOf(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	return noPanic
}

// input is an invalid call, and the complete text of the panic that it must cause.
type input struct {
	name string
	call func()
	want string
}

func testInputs(t *testing.T, inputs []input) {
	for _, in := range inputs {
		t.Run(in.name, func(t *testing.T) {
			testkit.Equal(t, "panic", panicOf(in.call), in.want)
		})
	}
}

func TestFunctions_PanicOnNilContext(t *testing.T) {
	var none context.Context
	nothing := func(context.Context) {}
	const want = "ctxshutdown: nil context"
	testInputs(t, []input{
		{"New", func() { ctxshutdown.New(none) }, "ctxshutdown: cannot create a scope from a nil context"},
		{"WithCancel", func() { child(none) }, want},
		{"NewGroup", func() { ctxshutdown.NewGroup(none) }, want},
		{"FromContext", func() { ctxshutdown.FromContext(none) }, want},
		{"Acquire", func() { ctxshutdown.Acquire(none) }, want},
		{"Go", func() { ctxshutdown.Go(none, nothing) }, want},
		{"Work", func() { ctxshutdown.Work(none) }, want},
		{"Sleep", func() { ctxshutdown.Sleep(none, 0) }, want},
		{"Wait", func() { ctxshutdown.New(t.Context()).Completion().Wait(none) }, "ctxshutdown: Wait with a nil context"},
		{"Wait when complete", func() { ctxshutdown.New(t.Context()).Shutdown().Wait(none) }, "ctxshutdown: Wait with a nil context"},
	})
}

func TestSwansong_PanicsOnUseOfZeroValue(t *testing.T) {
	zero := func() *ctxshutdown.Swansong { return new(ctxshutdown.Swansong) }
	testInputs(t, usesOf(t, zero, "ctxshutdown: use of a zero Swansong; make one with New or WithCancel"))
}

func TestSwansong_PanicsOnUseOfNilPointer(t *testing.T) {
	none := func() *ctxshutdown.Swansong { return nil }
	testInputs(t, usesOf(t, none, "ctxshutdown: use of a nil *Swansong; make one with New or WithCancel"))
}

// usesOf returns an input for each way to use a scope. The inputs use the scope that the function
// zero returns, and each use must panic with the text want.
func usesOf(t *testing.T, zero func() *ctxshutdown.Swansong, want string) []input {
	nothing := func(context.Context) {}
	return []input{
		{"Deadline", func() { zero().Deadline() }, want},
		{"Done", func() { zero().Done() }, want},
		{"Err", func() { zero().Err() }, want},
		{"Value", func() { zero().Value(key("k")) }, want},
		{"Shutdown", func() { zero().Shutdown() }, want},
		{"ShutdownCause", func() { zero().ShutdownCause(errCause) }, want},
		{"Force", func() { zero().Force(nil) }, want},
		{"Completion", func() { zero().Completion() }, want},
		{"State", func() { zero().State() }, want},
		{"GuardCount", func() { zero().GuardCount() }, want},
		{"GuardReport", func() { zero().GuardReport() }, want},
		{"Guard", func() { zero().Guard() }, want},
		{"TryGuard", func() { zero().TryGuard() }, want},
		{"Go", func() { zero().Go(nothing) }, want},
		{"Work", func() { zero().Work() }, want},
		{"BaseContext", func() { zero().BaseContext(nil) }, want},
		{"String, which fmt calls on what it is given", func() { _ = zero().String() }, noPanic},
		{"twice", func() { z := zero(); panicOf(func() { z.Guard() }); z.Guard() }, want},
		{"as the context of Acquire", func() { ctxshutdown.Acquire(zero()) }, want},
		{"as the context of Go", func() { ctxshutdown.Go(zero(), nothing) }, want},
		{"as the context of Work", func() { ctxshutdown.Work(zero()) }, want},
		{"as the context of Sleep", func() { ctxshutdown.Sleep(zero(), 0) }, want},
		{"as the context of Wait", func() { ctxshutdown.New(t.Context()).Completion().Wait(zero()) }, want},
		{"as the context of New", func() { ctxshutdown.New(zero()) }, want},
		{"as the parent of a scope", func() { child(zero()) }, want},
		{"as the context of a Group", func() { ctxshutdown.NewGroup(zero()) }, want},
		{"as the parent of a standard context", func() { context.AfterFunc(zero(), func() {}) }, want},
	}
}

func TestZeroValues_PanicOrAreUsableAsDocumented(t *testing.T) {
	f := func(context.Context) error { return nil }
	const (
		group      = "ctxshutdown: use of a zero Group; make one with NewGroup"
		completion = "ctxshutdown: use of a nil or zero Completion; get one from Shutdown or Completion of a scope"
		reader     = "ctxshutdown: use of a zero Reader; make one with NewReader"
		writer     = "ctxshutdown: use of a zero Writer; make one with NewWriter"
	)
	testInputs(t, []input{
		{"Group.Go", func() { new(ctxshutdown.Group).Go(f) }, group},
		{"Group.TryGo", func() { new(ctxshutdown.Group).TryGo(f) }, group},
		{"Group.SetLimit", func() { new(ctxshutdown.Group).SetLimit(1) }, group},
		{"Group.Wait", func() { new(ctxshutdown.Group).Wait() }, group},
		{"Guard.Release", func() { new(ctxshutdown.Guard).Release() }, noPanic},
		{"Guard.Clone", func() { new(ctxshutdown.Guard).Clone() }, "ctxshutdown: Clone of a released Guard"},
		{"nil Completion.Done", func() { (*ctxshutdown.Completion)(nil).Done() }, completion},
		{"nil Completion.Wait", func() { (*ctxshutdown.Completion)(nil).Wait(t.Context()) }, completion},
		{"Completion.Done", func() { new(ctxshutdown.Completion).Done() }, completion},
		{"Completion.Wait", func() { new(ctxshutdown.Completion).Wait(t.Context()) }, completion},
		{"Reader.Read", func() { new(ctxshutdown.Reader).Read(nil) }, reader},
		{"Reader.WriteTo", func() { new(ctxshutdown.Reader).WriteTo(io.Discard) }, reader},
		{"Reader.CanWake", func() { new(ctxshutdown.Reader).CanWake() }, reader},
		{"Reader.SetReadDeadline", func() { new(ctxshutdown.Reader).SetReadDeadline(time.Time{}) }, reader},
		{"Reader.Rest", func() { new(ctxshutdown.Reader).Rest() }, reader},
		{"Reader.Close", func() { new(ctxshutdown.Reader).Close() }, reader},
		{"Writer.Write", func() { new(ctxshutdown.Writer).Write(nil) }, writer},
		{"Writer.SetWriteDeadline", func() { new(ctxshutdown.Writer).SetWriteDeadline(time.Time{}) }, writer},
		{"Writer.Close", func() { new(ctxshutdown.Writer).Close() }, writer},
		{"Writer.ReadFrom", func() { new(ctxshutdown.Writer).ReadFrom(strings.NewReader("x")) }, writer},
		{"nil Guard.Release", func() { (*ctxshutdown.Guard)(nil).Release() }, noPanic},
		{"nil Guard.Clone", func() { (*ctxshutdown.Guard)(nil).Clone().Clone().Release() }, noPanic},
	})
	const dereference = "runtime error: invalid memory address or nil pointer dereference"
	testInputs(t, []input{ // not explained, as no function of the package returns a nil *Group
		{"nil Group", func() { (*ctxshutdown.Group)(nil).Wait() }, dereference},
	})
	t.Run("the clone of a nil guard is nil", func(t *testing.T) {
		if g := (*ctxshutdown.Guard)(nil).Clone(); g != nil {
			t.Errorf("the clone of a nil Guard is %v, want nil", g)
		}
	})
	t.Run("GuardReport", func(t *testing.T) {
		var r ctxshutdown.GuardReport
		if r.Count() != 0 || len(r.Entries()) != 0 || r.String() != "no guards" || r.LogValue().String() != "[count=0]" {
			t.Errorf("the zero GuardReport prints as %v and logs as %v", r, r.LogValue())
		}
	})
	t.Run("DrainError", func(t *testing.T) {
		const want = "ctxshutdown: Wait ended (<nil>) although no guard was held; if the scope was not told to stop, call Shutdown before Wait"
		if err := (&ctxshutdown.DrainError{}); err.Error() != want || err.Unwrap() != nil {
			t.Errorf("the zero DrainError: %v", err)
		}
	})
	t.Run("State", func(t *testing.T) {
		got := fmt.Sprint(ctxshutdown.State(-1), ctxshutdown.Running, ctxshutdown.ShuttingDown, ctxshutdown.Complete, ctxshutdown.State(3))
		if want := "State(?) Running ShuttingDown Complete State(?)"; got != want {
			t.Errorf("states print as %q, want %q", got, want)
		}
	})
}

func TestGo_PanicsOnNilFunction(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	limited := ctxshutdown.NewGroup(s)
	limited.SetLimit(1)
	stopped := ctxshutdown.New(t.Context())
	stopped.Shutdown()
	const want = "ctxshutdown: Go with a nil function"
	testInputs(t, []input{
		{"Swansong.Go", func() { s.Go(nil) }, want},
		{"Swansong.Go when stopped", func() { stopped.Go(nil) }, want},
		{"Go", func() { ctxshutdown.Go(s, nil) }, want},
		{"Go when stopped", func() { ctxshutdown.Go(stopped, nil) }, want},
		{"Go without a scope", func() { ctxshutdown.Go(t.Context(), nil) }, want},
		{"Group.Go", func() { ctxshutdown.NewGroup(s).Go(nil) }, want},
		{"Group.Go when stopped", func() { ctxshutdown.NewGroup(stopped).Go(nil) }, want},
		{"Group.TryGo", func() { ctxshutdown.NewGroup(s).TryGo(nil) }, want},
		{"Group.Go with a limit", func() { limited.Go(nil) }, want},
		{"Group.Go with a limit, again", func() { limited.Go(nil) }, want},
	})
	if n := s.GuardCount(); n != 0 {
		t.Errorf("%d guards are held after all calls have panicked", n)
	}
}

func TestOptions_MayBeNilOrRepeated(t *testing.T) {
	s := ctxshutdown.New(t.Context(), nil, ctxshutdown.WithLogger(nil), ctxshutdown.WithTrace(), nil, ctxshutdown.WithTrace(), ctxshutdown.WithLogger(nil))
	s.Force(nil)
	s.Guard().Release() // a release after Force is logged; this must not panic, because the logger is nil
	for _, test := range []struct {
		names []string
		want  string
	}{
		{nil, "Swansong(app)"},
		{[]string{""}, "Swansong(app)"},
		{[]string{"a", "b"}, "Swansong(app/b)"},
		{[]string{"a", ""}, "Swansong(app)"},
	} {
		opts := []ctxshutdown.Option{nil}
		for _, n := range test.names {
			opts = append(opts, ctxshutdown.WithName(n), nil)
		}
		root := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
		if got := child(root, opts...).String(); got != test.want {
			t.Errorf("named %q: %s, want %s", test.names, got, test.want)
		}
	}
}

func TestWithName_EscapesUntrustedNames(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"as it is", "http/conn-42 é 世界 👋", "http/conn-42 é 世界 👋"},
		{"newlines", "a\nb\r\n", `a\nb\r\n`},
		{"terminal escapes", "\x1b[2J\x1b]0;owned\x07", `\x1b[2J\x1b]0;owned\a`},
		{"quotes and backslashes", `a"b\`, `a\"b\\`},
		{"a bidirectional override", "nosj.\u202egpj", `nosj.\u202egpj`},
		{"invisible characters", "a\u200bb\u2028c\u00a0d\ufeff", `a\u200bb\u2028c\u00a0d\ufeff`},
		{"invalid UTF-8", "a\xff\xc3(", `a\xff\xc3(`},
		{"zero bytes", "a\x00b", `a\x00b`},
		{"just not too long", strings.Repeat("x", 128), strings.Repeat("x", 128)},
		{"too long", strings.Repeat("x", 129), strings.Repeat("x", 128) + "…"},
		{"too long, in the middle of a character", strings.Repeat("世", 43), strings.Repeat("世", 42) + "…"},
		{"too long, and invalid", strings.Repeat("\x80", 200), strings.Repeat(`\x80`, 124) + "…"},
		{"a megabyte", strings.Repeat("0123456789abcdef", 1<<16), strings.Repeat("0123456789abcdef", 8) + "…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context(), ctxshutdown.WithName(test.in))
			defer s.Guard().Release()
			want := []string{"Swansong(" + test.want + ")", test.want, "1 guard: " + test.want + " ×1"}
			r := s.GuardReport()
			testkit.Equal(t, "the name in String", []string{s.String(), r.Entries()[0].Path, r.String()}, want)
		})
	}
}

func FuzzWithName_ShowsPrintableCharactersOnly(f *testing.F) {
	f.Add("a\nb\u202e\xff")
	f.Add(strings.Repeat("é", 100))
	f.Fuzz(func(t *testing.T, name string) {
		s := ctxshutdown.New(t.Context(), ctxshutdown.WithName(name))
		got := s.String()
		if len(got) > 600 || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the scope named %q is shown as %q", name, got)
		}
	})
}

func TestGuard_CountStaysRightAfterUseOfReleasedGuard(t *testing.T) {
	t.Run("a second release does nothing", func(t *testing.T) {
		s := ctxshutdown.New(t.Context())
		g, other := s.Guard(), s.Guard()
		for range 3 {
			g.Release()
		}
		if s.GuardCount() != 1 || isResolved(s.Shutdown()) {
			t.Errorf("%d guards are held, want one", s.GuardCount())
		}
		other.Release()
	})
	t.Run("clone of a released guard", func(t *testing.T) {
		s := ctxshutdown.New(t.Context())
		g := s.Guard()
		g.Release()
		if got := panicOf(func() { g.Clone() }); got != "ctxshutdown: Clone of a released Guard" {
			t.Error(got)
		}
		if s.GuardCount() != 0 {
			t.Error("a refused Clone is counted")
		}
	})
	// Only a copy of a Guard can be released too often. The tool go vet reports such copies.
	for _, stopped := range []bool{false, true} {
		for _, opts := range [][]ctxshutdown.Option{nil, {ctxshutdown.WithTrace()}} {
			t.Run(fmt.Sprintf("more releases than acquisitions, stopped %v, %d options", stopped, len(opts)), func(t *testing.T) {
				root := ctxshutdown.New(t.Context())
				s := child(root, opts...)
				g := s.Guard()
				forged := copyGuard(g)
				g.Release()
				if stopped {
					root.Shutdown()
				}
				for range 3 {
					again := copyGuard(forged)
					if got, want := panicOf(again.Release), "ctxshutdown: a guard was released that was never acquired; do not copy a Guard"; got != want {
						t.Errorf("panic %q, want %q", got, want)
					}
				}
				late := s.Guard()
				if root.GuardCount() != 1 || s.GuardCount() != 1 || s.GuardReport().Count() != 1 {
					t.Errorf("guards of the root: %d, of the scope: %d, in the report: %d; want 1 each", root.GuardCount(), s.GuardCount(), s.GuardReport().Count())
				}
				late.Release()
				if err := root.Shutdown().Wait(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	t.Run("a guard on a complete scope", func(t *testing.T) {
		s := ctxshutdown.New(t.Context())
		done := s.Shutdown()
		g := s.Guard()
		if s.State() != ctxshutdown.ShuttingDown || !isResolved(done) || isResolved(s.Completion()) {
			t.Errorf("state %v under a late guard, want ShuttingDown with a new completion", s.State())
		}
		g.Release()
		if s.State() != ctxshutdown.Complete {
			t.Errorf("state %v after the release, want Complete", s.State())
		}
	})
}

// copyGuard copies a Guard by reflection, so that go vet does not report the copy.
func copyGuard(g *ctxshutdown.Guard) *ctxshutdown.Guard {
	forged := new(ctxshutdown.Guard)
	reflect.ValueOf(forged).Elem().Set(reflect.ValueOf(g).Elem())
	return forged
}

func TestWait_RejectsContextOfStoppedScope(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	defer s.Guard().Release()
	timed, cancel := context.WithTimeout(s, time.Hour)
	defer cancel()
	for name, ctx := range map[string]context.Context{"the scope": s, "derived": timed, "a child": child(s)} {
		err := s.Shutdown().Wait(ctx)
		const want = "ctxshutdown: the context passed to Wait ended with the shutdown, so Wait did not wait; " +
			"pass a separate context, such as context.WithTimeout(context.Background(), 10*time.Second)"
		if !errors.Is(err, ctxshutdown.ErrWaitContext) || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the error matches a time-out", name)
		}
	}
}
