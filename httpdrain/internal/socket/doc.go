// Package socket asks the operating system about the socket of a connection or of a listener:
// whether data or connections have arrived that are not read or accepted yet, and how long a round
// trip to the client takes. On a system that cannot be asked, each function reports that it does
// not know the answer.
package socket
