// Package jsonrpc2 tests lspconn.StartProcess, the half of package lspconn that owns the process of
// a server, with gopls and github.com/sourcegraph/jsonrpc2.
package jsonrpc2
