package transport

import (
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Explain returns in plain words why a gRPC call from the launcher to a process has failed. If the
// process has answered with an error, Explain returns the message of that error unchanged. The text
// continues a sentence such as "the process does not answer: ", and is in statuses and events,
// whose readers know nothing of gRPC.
func Explain(err error) string {
	message := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		if _, cause, ok := strings.Cut(message, "connection error: "); ok { // the call has waited for a connection, and cause is why there was none
			return ExplainUnavailable(cause)
		}
		return "no answer in time"
	case codes.Canceled:
		return "the call was cancelled"
	case codes.Unimplemented:
		return "the process does not implement the call"
	case codes.Unavailable:
		return ExplainUnavailable(message)
	}
	return message
}

// steps matches the beginnings of errors of package grpc, which describe the steps that led to the
// cause.
var steps = regexp.MustCompile(`^(connection error: |desc = "|transport: |Error while dialing: |authentication handshake failed: |dial \w+ \S+: |connect: |error reading from server: |error reading server preface: |name resolver error: )`)

// ExplainUnavailable returns the cause of an error of package grpc with the code Unavailable.
// Package grpc passes an error of the system on only as a part of its message, so the words of the
// message tell the causes apart. A cause that is not known here is returned without the steps that
// led to it.
func ExplainUnavailable(message string) string {
	cause := strings.TrimSuffix(message, `"`)
	for next := steps.ReplaceAllString(cause, ""); next != cause; next = steps.ReplaceAllString(cause, "") {
		cause = next
	}
	switch {
	case strings.Contains(cause, "no such file or directory"):
		return "nothing listens on the socket"
	case strings.Contains(cause, "connection refused"):
		return "nothing listens on the socket any more"
	case strings.HasPrefix(cause, "http2: "): // what was read is not HTTP/2
		return "what listens on the socket does not serve gRPC"
	case strings.Contains(cause, "use of closed network connection"): // package grpc has closed the connection after a time without an answer
		return "the connection is accepted, but there is no answer"
	case isClosed(cause):
		return "the connection was closed"
	}
	return cause
}

// isClosed reports whether a cause means that the other end has closed the connection.
func isClosed(cause string) bool {
	return cause == "EOF" || slices.ContainsFunc([]string{"connection reset by peer", "broken pipe", "transport is closing", "closing transport",
		"the connection is draining"}, func(text string) bool { return strings.Contains(cause, text) })
}
