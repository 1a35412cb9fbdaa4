// Package scopekey has the keys under which the contexts of package ctxshutdown carry their scope, for packages that put
// contexts together from several.
package scopekey

// Nearest finds the nearest scope: a *ctxshutdown.Swansong.
type Nearest struct{}

// Soft finds the scope whose soft tier a context derives from: a *ctxshutdown.Swansong, and a nil one for a context on the
// hard tier. A context without a scope has no value for it.
type Soft struct{}
