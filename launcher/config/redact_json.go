package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// json returns s without secrets, if it is a JSON object, list or string, with everything else
// unchanged. A string in it is redacted as a text, which may be JSON itself.
func (r *Redactor) json(s string) (shown string, ok bool) {
	trimmed := strings.TrimLeft(s, " \t\r\n")
	if trimmed == "" || !strings.Contains(`{["`, trimmed[:1]) || !json.Valid([]byte(s)) {
		return "", false
	}
	w := jsonWriter{redactor: r, rest: s}
	w.value(false)
	return w.out.String() + w.rest, true
}

// A jsonWriter copies valid JSON, and redacts it on the way.
type jsonWriter struct {
	redactor *Redactor
	rest     string
	out      strings.Builder
}

// value copies the next value, or writes Redacted instead if hidden is set.
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
			name := w.text() // the name itself can contain a secret, for example a counter named after a URL with a password
			w.space()
			w.take(1) // copies the colon
			w.value(w.redactor.secret(name))
		})
	case '[':
		flag := false // whether the previous element is a flag, so that this element is its value
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

// all copies the text between brackets, and calls each for every element.
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

// text copies a string without secrets, be it a value or a name, and returns the original content.
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

// peek returns the content of the next string.
func (w *jsonWriter) peek() (text string) {
	json.Unmarshal([]byte(w.next()), &text)
	return text
}

// next returns the text of the next value, unchanged.
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
				return w.rest[:i] // the value is the last one of its object or list
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
	e.Encode(text) // encoding a string cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}
