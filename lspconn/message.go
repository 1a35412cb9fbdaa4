package lspconn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A message is what comes from the server: a request (with id and method), a notification (method), a response (id).
type message struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *ResponseError  `json:"error"`
}

func decode(body []byte) (m message, err error) {
	if err := json.Unmarshal(body, &m); err != nil {
		return m, &ProtocolError{What: "a message that cannot be read, " + quoted(body), Err: err}
	}
	if bytes.Equal(m.ID, null) {
		m.ID = nil
	}
	switch {
	case m.ID == nil:
	case len(m.ID) > maxID:
		return m, &ProtocolError{What: fmt.Sprintf("an id of %d bytes, more than the %d that are kept", len(m.ID), maxID)}
	case m.ID[0] != '"' && m.ID[0] != '-' && (m.ID[0] < '0' || m.ID[0] > '9'):
		return m, &ProtocolError{What: "an id that is neither text nor a number: " + quoted(m.ID)}
	}
	if m.Method == nil && m.ID == nil && m.Error == nil {
		return m, &ProtocolError{What: "neither request, notification nor response: " + quoted(body)}
	}
	return m, nil
}

var null = []byte("null")

// check refuses what would not be JSON once it is written.
func check(method string, params json.RawMessage) error {
	if method == "" || !utf8.ValidString(method) {
		return &ResponseError{Code: CodeInvalidRequest, Message: fmt.Sprintf("lspconn: a method must be a name, not %q", method)}
	}
	switch method {
	case "initialize", "initialized", "shutdown", "exit":
		return &ResponseError{Code: CodeInvalidRequest, Message: fmt.Sprintf("lspconn: %s is sent by the connection itself, once; see Server.Initialize and Close", method)}
	}
	if len(params) > maxBody-1<<10 {
		return &ResponseError{Code: CodeInvalidParams, Message: fmt.Sprintf("lspconn: params of %s have %d bytes, more than a message may", method, len(params))}
	}
	if len(params) > 0 && !json.Valid(params) {
		return &ResponseError{Code: CodeInvalidParams, Message: fmt.Sprintf("lspconn: params of %s are not JSON: %s", method, quoted(params))}
	}
	return nil
}

// headerRoom is what the header of a frame takes at most.
const headerRoom = len("Content-Length: \r\n\r\n") + 10

// frame returns a message with its header: of a request, or where id is negative, of a notification.
func frame(id int64, method string, params json.RawMessage) []byte {
	b := make([]byte, headerRoom, headerRoom+64+len(method)+len(params))
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id >= 0 {
		b = append(b, `,"id":`...)
		b = strconv.AppendInt(b, id, 10)
	}
	b = append(b, `,"method":`...)
	b = appendString(b, method)
	if len(params) > 0 {
		b = append(b, `,"params":`...)
		b = append(b, params...)
	}
	return withHeader(append(b, '}'))
}

// reply returns a response with its header. The id is as the server wrote it.
func reply(id, result json.RawMessage, failure *ResponseError) []byte {
	b := make([]byte, headerRoom, headerRoom+64+len(id)+len(result))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	if failure == nil {
		b = append(b, `,"result":`...)
		b = append(b, result...)
	} else {
		text, err := json.Marshal(failure)
		if err != nil { // its Data is not JSON
			text, _ = json.Marshal(&ResponseError{Code: failure.Code, Message: failure.Message})
		}
		b = append(b, `,"error":`...)
		b = append(b, text...)
	}
	return withHeader(append(b, '}'))
}

// withHeader puts the header into the room before the body.
func withHeader(b []byte) []byte {
	h := make([]byte, 0, headerRoom)
	h = append(h, "Content-Length: "...)
	h = strconv.AppendInt(h, int64(len(b)-headerRoom), 10)
	h = append(h, "\r\n\r\n"...)
	b = b[headerRoom-len(h):]
	copy(b, h)
	return b
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			text, _ := json.Marshal(s)
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
