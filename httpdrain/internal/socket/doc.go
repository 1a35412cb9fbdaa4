// Package socket asks the operating system what it knows about the socket of a connection or of a
// listener: what has arrived and is not read yet, and how far away the client is. On other systems,
// each function reports that it does not know the answer.
package socket
