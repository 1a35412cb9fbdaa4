package lspconn_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

func TestFrameReader_ReadsOrRejectsFrames(t *testing.T) {
	long := strings.Repeat("x", 3<<20) // a text that is longer than maxPrealloc
	for _, test := range []struct {
		name, in string
		want     []string
		err      string // the expected error; empty means io.EOF
	}{
		{"nothing", "", nil, ""},
		{"two", "Content-Length: 2\r\n\r\n{}Content-Length: 3\r\n\r\n[1]", []string{"{}", "[1]"}, ""},
		{"an empty one", "Content-Length: 0\r\n\r\n", []string{""}, ""},
		{"other headers, other case", "Content-Type: application/vscode-jsonrpc; charset=utf8\r\ncontent-length:2 \r\n\r\n{}", []string{"{}"}, ""},
		{"without CR", "Content-Length: 2\n\n{}", []string{"{}"}, ""},
		{"the same length twice", "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", []string{"{}"}, ""},
		{"a long one", "Content-Length: 3145728\r\n\r\n" + long, []string{long}, ""},
		{"the longest header line", "X: " + strings.Repeat("x", 8<<10-3) + "\r\nContent-Length: 1\r\n\r\n1", []string{"1"}, ""},

		{"two lengths", "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", nil, "two different values of Content-Length, 2 and 3"},
		{"an invalid length", "X: y\r\n\r\n", nil, "a header without Content-Length"},
		{"negative", "Content-Length: -2\r\n\r\n", nil, `an invalid length: "Content-Length: -2"`},
		{"with a sign", "Content-Length: +5\r\n\r\n[1,2]", nil, `an invalid length: "Content-Length: +5"`},
		{"negative zero", "Content-Length: -0\r\n\r\n", nil, `an invalid length: "Content-Length: -0"`},
		{"no number", "Content-Length: 2x\r\n\r\n", nil, `an invalid length: "Content-Length: 2x"`},
		{"past 64 bits", "Content-Length: 99999999999999999999\r\n\r\n", nil, "an invalid length"},
		{"oversized", "Content-Length: 268435457\r\n\r\n", nil, "a message of 268435457 bytes; the limit is 268435456"},
		{"a promise that is not kept", "Content-Length: 268435456\r\n\r\nabc", nil, "output that ends after 3 of the 268435456 bytes"},
		{"a long promise", "Content-Length: 3145729\r\n\r\n" + long, nil, "output that ends after 3145728 of the 3145729 bytes"},
		{"the end within a header", "Content-Length: 2\r\n", nil, "output that ends within a header"},
		{"text", "hello\r\n", nil, `a line that is not a header: "hello"`},
		{"text with a colon", "error: no such file\r\n\r\n", nil, "a header without Content-Length"},
		{"an empty line", "\r\nContent-Length: 2\r\n\r\n{}", nil, "an empty line instead of a header"},
		{"a space in the name", "Content Length: 2\r\n\r\n", nil, "a line that is not a header"},
		{"long text", strings.Repeat("é", 40) + "\r\n", nil, `a line that is not a header: "` + strings.Repeat("é", 30) + `"…`},
		{"long text with a character at the limit", "x" + strings.Repeat("é", 40) + "\r\n", nil, `a line that is not a header: "x` + strings.Repeat("é", 29) + `"…`},
		{"long text that is not UTF-8", strings.Repeat("\x80", 80) + "\r\n", nil, `a line that is not a header: "` + strings.Repeat(`\x80`, 56) + `"…`},
		{"a header line too long", "X: " + strings.Repeat("x", 8<<10-2) + "\r\n", nil, "a header line longer than 8192 bytes"},
		{"a header line without end", strings.Repeat("x", 100<<10), nil, "a header line longer than 8192 bytes"},
		{"a header too long", strings.Repeat("X: y\r\n", 6000), nil, "a header longer than 32768 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(test.in), iotest.HalfReader(strings.NewReader(test.in))} {
				got, err := lspconn.ReadFrames(r)
				testkit.Equal(t, "messages", got, test.want)
				var broken *lspconn.ProtocolError
				switch {
				case test.err == "" && err != io.EOF:
					t.Errorf("%v", err)
				case test.err != "" && (!errors.As(err, &broken) || !strings.Contains(err.Error(), test.err)):
					t.Errorf("%v, want %q", err, test.err)
				}
			}
		})
	}
	broken := errors.New("broken")
	if _, err := lspconn.ReadFrames(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a failed read returned %v", err)
	}
}

func FuzzFrameReader_FailsWithProtocolErrorOnly(f *testing.F) {
	f.Add([]byte("Content-Length: 2\r\n\r\n{}Content-Length: 0\n\n"))
	f.Add([]byte("Content-Length: 99\r\nX: y\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		bodies, err := lspconn.ReadFrames(strings.NewReader(string(in)))
		var broken *lspconn.ProtocolError
		if err != io.EOF && !errors.As(err, &broken) {
			t.Errorf("%v is not a ProtocolError", err)
		}
		size := 0
		for _, body := range bodies {
			size += len(body)
		}
		if size > len(in) {
			t.Errorf("%d bytes of messages out of %d", size, len(in))
		}
	})
}

// A message with any method name can be written and read back.
func FuzzFrame_CanBeReadBack(f *testing.F) {
	f.Add(int64(1), "textDocument/hover", "a")
	f.Add(int64(-1), "\"\\\x00\u2028é", "")
	f.Fuzz(func(t *testing.T, id int64, method, param string) {
		params, _ := json.Marshal(param)
		bodies, err := lspconn.ReadFrames(strings.NewReader(string(lspconn.Frame(id, method, params))))
		if err != io.EOF || len(bodies) != 1 {
			t.Fatalf("%q, %v", bodies, err)
		}
		var m struct {
			ID             *int64
			Method, Params string
		}
		if err := json.Unmarshal([]byte(bodies[0]), &m); err != nil {
			t.Fatal(err)
		}
		var want string
		json.Unmarshal(params, &want)
		var name string // method as JSON transmits it: invalid UTF-8 is replaced
		text, _ := json.Marshal(method)
		json.Unmarshal(text, &name)
		if m.Params != want || m.Method != name || (m.ID == nil) != (id < 0) || m.ID != nil && *m.ID != id {
			t.Errorf("%d %q %q was written as %s", id, method, param, bodies[0])
		}
	})
}
