package lspconn

import "context"

// Link is the process of a connection, for tests that put something else in its place.
type Link = link

// StartOver is Start with something else than a process.
func StartOver(ctx context.Context, server Server, l Link) (*Conn, error) {
	return start(ctx, server, func(Server) (link, error) { return l, nil })
}
