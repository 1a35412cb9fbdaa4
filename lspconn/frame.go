package lspconn

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// What a message may be. A server that exceeds it, or whose stream has lost its place, must not make us allocate.
const (
	maxHeaderLine = 8 << 10
	maxHeader     = 32 << 10
	maxBody       = 256 << 20
	maxID         = 1 << 10
	trusted       = 1 << 20 // a body up to this size is allocated before it has arrived
)

// A frameReader reads the messages of the base protocol: header lines, an empty line, and as many bytes as they say.
type frameReader struct{ r *bufio.Reader }

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{bufio.NewReaderSize(r, maxHeaderLine+2)}
}

// next returns the body of the next message, which is the caller's. It returns io.EOF between two messages, and a
// *ProtocolError for what is no message.
func (f *frameReader) next() ([]byte, error) {
	length, total := -1, 0
	for first := true; ; first = false {
		line, err := f.r.ReadSlice('\n')
		total += len(line)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || len(line) > maxHeaderLine+2:
			return nil, &ProtocolError{What: fmt.Sprintf("a header line of more than %d bytes, which begins %s", maxHeaderLine, quoted(line))}
		case err == io.EOF && first && len(line) == 0:
			return nil, io.EOF
		case err == io.EOF:
			return nil, &ProtocolError{What: "its output ends within a header", Err: io.ErrUnexpectedEOF}
		case err != nil:
			return nil, err
		case total > maxHeader:
			return nil, &ProtocolError{What: fmt.Sprintf("a header of more than %d bytes", maxHeader)}
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(line) == 0 {
			if first {
				return nil, &ProtocolError{What: "an empty line where a header should be"}
			}
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") {
			return nil, &ProtocolError{What: "no header: " + quoted(line)}
		}
		if !strings.EqualFold(string(name), "Content-Length") {
			continue // Content-Type; there is one encoding
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64) // digits only: no sign
		switch {
		case err != nil:
			return nil, &ProtocolError{What: "no length: " + quoted(line)}
		case n > maxBody:
			return nil, &ProtocolError{What: fmt.Sprintf("a message of %d bytes, more than the %d that are read", n, maxBody)}
		case length >= 0 && length != int(n):
			return nil, &ProtocolError{What: fmt.Sprintf("two lengths, %d and %d", length, n)}
		}
		length = int(n)
	}
	if length < 0 {
		return nil, &ProtocolError{What: "a header without Content-Length"}
	}
	body := make([]byte, min(length, trusted))
	n, err := io.ReadFull(f.r, body)
	if err == nil && length > trusted {
		grown := bytes.NewBuffer(body)
		var more int64
		more, err = io.CopyN(grown, f.r, int64(length-trusted))
		n, body = n+int(more), grown.Bytes()
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, &ProtocolError{What: fmt.Sprintf("its output ends after %d of the %d bytes of a message", n, length), Err: io.ErrUnexpectedEOF}
	}
	return body, err
}

// quoted is for errors: what a server sends may be long, and may not be text.
func quoted(b []byte) string {
	if len(b) > 60 {
		return strconv.Quote(string(b[:60])) + "…"
	}
	return strconv.Quote(string(b))
}
