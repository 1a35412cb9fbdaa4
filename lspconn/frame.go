package lspconn

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits on what is read. They bound the memory that a server can make the connection allocate when
// it sends too much, or when its output is not divided into messages correctly.
const (
	maxHeaderLine = 8 << 10
	maxHeader     = 32 << 10
	maxBody       = 256 << 20
	maxID         = 1 << 10
	maxPrealloc   = 1 << 20 // the memory for a body larger than this is allocated as the body arrives
)

// A frameReader reads messages in the framing of the LSP base protocol: header lines, an empty
// line, and Content-Length bytes.
type frameReader struct{ r *bufio.Reader }

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{bufio.NewReaderSize(r, maxHeaderLine+2)}
}

// next returns the body of the next message in a new slice. It returns io.EOF if the input ends
// between two messages, and a *ProtocolError for input that is not a message.
func (f *frameReader) next() ([]byte, error) {
	length, err := f.readHeader()
	if err != nil {
		return nil, err
	}
	return f.readBody(length)
}

// readHeader reads the header lines and the empty line, and returns Content-Length.
func (f *frameReader) readHeader() (length int, err error) {
	length = -1
	for total := 0; ; {
		line, err := f.r.ReadSlice('\n')
		first := total == 0
		total += len(line)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || len(line) > maxHeaderLine+2:
			return 0, &ProtocolError{What: fmt.Sprintf("a header line longer than %d bytes, which begins %s", maxHeaderLine, quoted(line))}
		case err == io.EOF && first && len(line) == 0:
			return 0, io.EOF
		case err == io.EOF:
			return 0, &ProtocolError{What: "output that ends within a header", Err: io.ErrUnexpectedEOF}
		case err != nil:
			return 0, err
		case total > maxHeader:
			return 0, &ProtocolError{What: fmt.Sprintf("a header longer than %d bytes", maxHeader)}
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		switch {
		case len(line) > 0:
			if length, err = parseHeaderLine(line, length); err != nil {
				return 0, err
			}
		case first:
			return 0, &ProtocolError{What: "an empty line instead of a header"}
		case length < 0:
			return 0, &ProtocolError{What: "a header without Content-Length"}
		default:
			return length, nil
		}
	}
}

// parseHeaderLine parses a header line. It returns the value of a Content-Length header. For any
// other header it returns length unchanged. The caller passes a negative length before the first
// Content-Length.
func parseHeaderLine(line []byte, length int) (int, error) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") {
		return 0, &ProtocolError{What: "a line that is not a header: " + quoted(line)}
	}
	if !strings.EqualFold(string(name), "Content-Length") {
		return length, nil // Content-Type can be ignored, since LSP has only one encoding
	}
	// ParseUint refuses a sign, which the protocol does not allow.
	n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
	switch {
	case err != nil:
		return 0, &ProtocolError{What: "an invalid length: " + quoted(line)}
	case n > maxBody:
		return 0, &ProtocolError{What: fmt.Sprintf("a message of %d bytes; the limit is %d", n, maxBody)}
	case length >= 0 && length != int(n):
		return 0, &ProtocolError{What: fmt.Sprintf("two different values of Content-Length, %d and %d", length, n)}
	}
	return int(n), nil
}

func (f *frameReader) readBody(length int) ([]byte, error) {
	body := make([]byte, min(length, maxPrealloc))
	n, err := io.ReadFull(f.r, body)
	if err == nil && length > maxPrealloc {
		grown := bytes.NewBuffer(body)
		var more int64
		more, err = io.CopyN(grown, f.r, int64(length-maxPrealloc))
		n, body = n+int(more), grown.Bytes()
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, &ProtocolError{What: fmt.Sprintf("output that ends after %d of the %d bytes of a message", n, length), Err: io.ErrUnexpectedEOF}
	}
	return body, err
}

// quoted quotes output of the server for an error message. It shortens long output.
func quoted(b []byte) string {
	beginning, more := cut(b)
	return strconv.Quote(beginning) + more
}

// shortened cuts the server's output to a length fit for the log. It does not quote the output: the
// log handler does that.
func shortened(b []byte) string {
	beginning, more := cut(b)
	return beginning + more
}

// maxQuoted is how many bytes of the server's output an error message or the log contains.
const maxQuoted = 60

// cut returns the first maxQuoted bytes of b, or fewer so that no character is cut in two. If b is
// longer, more is an ellipsis, otherwise it is empty.
func cut(b []byte) (beginning, more string) {
	if len(b) <= maxQuoted {
		return string(b), ""
	}
	n := maxQuoted
	for n > maxQuoted-utf8.UTFMax && !utf8.RuneStart(b[n]) {
		n--
	}
	return string(b[:n]), "…"
}
