package lspconn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A message is what the server has sent: a request (with id and method), a notification (with a
// method only), a response (with neither, or with an id only), or valid JSON that is none of these.
type message struct {
	ID     json.RawMessage // nil if the message has no id, or its id is null
	Method *string
	Params json.RawMessage
	Result json.RawMessage
	Error  *ResponseError
	Defect string // why the message is none of the three kinds; empty if it is one of them

	cancelled bool               // the server has cancelled the request before its handler was called
	guard     *ctxshutdown.Guard // the guard of a request; held until its response has been written
}

// rawMessage contains the members of a message, none of which has been checked.
type rawMessage struct {
	ID     json.RawMessage `json:"id"`
	Method json.RawMessage `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// decode parses the body of a message. The error is a *ProtocolError for a body that is not JSON,
// and for a request whose id is too long.
func decode(body []byte) (m message, err error) {
	var raw rawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return m, &ProtocolError{What: "a message that is not valid JSON, " + quoted(body), Err: err}
		}
		return message{Defect: "the message is not an object"}, nil
	}
	m = message{ID: raw.ID, Params: raw.Params, Result: raw.Result}
	if bytes.Equal(m.ID, null) {
		m.ID = nil
	}
	if raw.Method == nil || bytes.Equal(raw.Method, null) {
		m.Error = decodeError(raw.Error)
		return m, nil
	}
	m.Method = new(string)
	switch {
	case json.Unmarshal(raw.Method, m.Method) != nil:
		m.Defect = "the method is not a string"
	case m.ID == nil:
	case len(m.ID) > maxID:
		return m, &ProtocolError{What: fmt.Sprintf("an id of %d bytes; the limit is %d", len(m.ID), maxID)}
	case m.ID[0] != '"' && m.ID[0] != '-' && (m.ID[0] < '0' || m.ID[0] > '9'):
		m.Defect = "the id is neither a string nor a number"
	}
	return m, nil
}

// decodeError returns the error in the member error of a response, or nil if there is none. If the
// member does not have the form that JSON-RPC prescribes, the message of the error contains the
// text of the member. So the call is answered in any case.
func decodeError(raw json.RawMessage) *ResponseError {
	if raw == nil || bytes.Equal(raw, null) {
		return nil
	}
	e := new(ResponseError)
	if json.Unmarshal(raw, e) != nil {
		return &ResponseError{Code: CodeInternalError, Message: "the server answered with an error that is not of the form of JSON-RPC: " + quoted(raw)}
	}
	return e
}

// callID returns the id of a call that a response names. Calls have positive integers as ids. A
// number may be written in any way, such as 2.0 or 2e0; a string is never the id of a call.
func callID(raw json.RawMessage) (id int64, ok bool) {
	if id, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return id, id > 0
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if id = int64(f); err != nil || f < 1 || f > 1<<53 || float64(id) != f {
		return 0, false
	}
	return id, true
}

var null = []byte("null")

// maxParams limits the params that this side sends. It leaves room for the rest of the message
// within maxBody, because the other side may have the same limit.
const maxParams = maxBody - 1<<10

// checkMessage returns an error for a message that would not be valid JSON, and for one that only
// the connection itself is allowed to send.
func checkMessage(method string, params json.RawMessage) error {
	if method == "" || !utf8.ValidString(method) {
		return &ResponseError{Code: CodeInvalidRequest, Message: fmt.Sprintf("lspconn: invalid method %q: it must be non-empty UTF-8", method)}
	}
	switch method {
	case "initialize", "initialized", "shutdown", "exit":
		return &ResponseError{Code: CodeInvalidRequest, Message: fmt.Sprintf("lspconn: %s is sent by the connection itself; see Server.Initialize and Conn.Close", method)}
	}
	if len(params) > maxParams {
		return &ResponseError{Code: CodeInvalidParams, Message: fmt.Sprintf("lspconn: params of %s have %d bytes; the limit is %d", method, len(params), maxParams)}
	}
	if len(params) > 0 && !json.Valid(params) {
		return &ResponseError{Code: CodeInvalidParams, Message: fmt.Sprintf("lspconn: params of %s are not valid JSON: %s", method, quoted(params))}
	}
	return nil
}

// headerRoom is the size of the longest possible header of a message.
const headerRoom = len("Content-Length: \r\n\r\n") + 10

// frame returns an encoded message with its header: a request, or a notification if id is negative.
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

// replyFrame returns an encoded response with its header. The response repeats the id exactly as
// the server wrote it.
func replyFrame(id, result json.RawMessage, failure *ResponseError) []byte {
	b := make([]byte, headerRoom, headerRoom+64+len(id)+len(result))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	if failure == nil {
		b = append(b, `,"result":`...)
		b = append(b, result...)
	} else {
		text, err := json.Marshal(failure)
		if err != nil { // the error's Data is not valid JSON, so send the error without Data
			text, _ = json.Marshal(&ResponseError{Code: failure.Code, Message: failure.Message})
		}
		b = append(b, `,"error":`...)
		b = append(b, text...)
	}
	return withHeader(append(b, '}'))
}

// withHeader writes the header into the headerRoom bytes before the body.
func withHeader(b []byte) []byte {
	h := make([]byte, 0, headerRoom)
	h = append(h, "Content-Length: "...)
	h = strconv.AppendInt(h, int64(len(b)-headerRoom), 10)
	h = append(h, "\r\n\r\n"...)
	b = b[headerRoom-len(h):]
	copy(b, h)
	return b
}

// appendString appends s as a JSON string. Methods rarely need escaping, so the common case avoids
// json.Marshal.
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
