//go:build !amd64 && !arm64

package ctxshutdown

import "runtime"

func callers() (at site) {
	runtime.Callers(3, at[:])
	return at
}
