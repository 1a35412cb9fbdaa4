// Package wire follows the bytes of a connection far enough for the drain: where the client's part
// of a TLS handshake ends, and where one HTTP/2 frame ends and another may follow. Its types do no
// input or output and start no goroutines.
package wire
