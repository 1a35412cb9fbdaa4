package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// json returns JSON as far as it may be seen, which is JSON still, with all else as it was written; false: it is no JSON, or a
// text that is as good as none. Strings in it are texts, which may be JSON themselves.
func (r *Redactor) json(s string) (shown string, ok bool) {
	trimmed := strings.TrimLeft(s, " \t\r\n")
	if trimmed == "" || !strings.Contains(`{["`, trimmed[:1]) || !json.Valid([]byte(s)) {
		return "", false
	}
	w := jsonWriter{redactor: r, rest: s}
	w.value(false)
	return w.out.String() + w.rest, true
}

// A jsonWriter goes through valid JSON once.
type jsonWriter struct {
	redactor *Redactor
	rest     string
	out      strings.Builder
}

// value takes the next value over, or, hidden, what stands in its place.
func (w *jsonWriter) value(hidden bool) {
	w.space()
	if hidden {
		w.rest = w.rest[len(w.next()):]
		w.out.WriteString(`"` + Redacted + `"`)
		return
	}
	switch w.rest[0] {
	case '{':
		w.all('}', func() {
			name := w.text() // counters by URL have passwords in theirs
			w.space()
			w.take(1) // the colon
			w.value(w.redactor.secret(name))
		})
	case '[':
		flag := false // the element before is one, whose value comes
		w.all(']', func() {
			hidden := flag
			flag = false
			if !hidden && w.rest[0] == '"' {
				element := w.peek()
				name, _, given := strings.Cut(element, "=")
				flag = strings.HasPrefix(element, "-") && !given && w.redactor.secret(name)
			}
			w.value(hidden)
		})
	case '"':
		w.text()
	default:
		w.take(len(w.next()))
	}
}

// all takes over what is between brackets.
func (w *jsonWriter) all(end byte, each func()) {
	w.take(1)
	for w.space(); w.rest[0] != end; w.space() {
		if w.rest[0] == ',' {
			w.take(1)
			w.space()
		}
		each()
	}
	w.take(1)
}

func (w *jsonWriter) take(n int) {
	w.out.WriteString(w.rest[:n])
	w.rest = w.rest[n:]
}

func (w *jsonWriter) space() { w.take(len(w.rest) - len(strings.TrimLeft(w.rest, " \t\r\n"))) }

// text takes a string over as far as it may be seen, be it a value or a name, and returns all that it says.
func (w *jsonWriter) text() string {
	text := w.peek()
	if shown := w.redactor.Text(text); shown != text {
		w.rest = w.rest[len(w.next()):]
		w.out.WriteString(jsonString(shown))
	} else {
		w.take(len(w.next()))
	}
	return text
}

// peek returns what the string says that comes next.
func (w *jsonWriter) peek() (text string) {
	json.Unmarshal([]byte(w.next()), &text)
	return text
}

// next returns the value that comes next, as it is written.
func (w *jsonWriter) next() string {
	depth := 0
	for i := 0; i < len(w.rest); i++ {
		switch w.rest[i] {
		case '"':
			for i++; w.rest[i] != '"'; i++ {
				if w.rest[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return w.rest[:i+1]
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return w.rest[:i] // of what the value is the last
			} else if depth == 0 {
				return w.rest[:i+1]
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return w.rest[:i]
			}
		}
	}
	return w.rest
}

func jsonString(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(text) // a string has no error
	return strings.TrimSuffix(b.String(), "\n")
}
