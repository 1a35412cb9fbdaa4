// Package socket asks the operating system what it knows about the socket of a connection or of a
// listener: what has arrived and is not read yet, and how far away the client is. Each question has
// an answer for the systems on which it is not known.
package socket
